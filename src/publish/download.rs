//! Downloads of baked files.
//!
//! In: an entry of a manifest. Out: a file on the disk that was verified after it was written. A download that was
//! interrupted continues with the parts that are missing. The record of complete parts need not be reliable, because
//! the whole file is verified at the end.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use object_store::{GetOptions, GetRange};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::bandwidth::Bandwidth;
use super::bounded_http::is_range_ignored;
use super::error::PublishError;
use super::limits::STATE_LEN_MAX_BYTES;
use super::location::Location;
use super::manifest::{Entry, key_kind_name, schema_names};
use super::transfer::{
    ATTEMPTS_MAX, OnProgress, PART_LEN_BYTES, Parts, Progress, REQUESTS_MAX, Stage, back_off, check,
};
use crate::bake::Cancel;
use crate::folder::{Folder, folder_of};
use crate::store::{MappedStore, Memory, OpenOptions, Pace, Store, Verify, survive_bus_errors};

/// The space that a download leaves free on a disk.
const FREE_MIN_BYTES: u64 = 16 << 20;

/// The parts that a download has completed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DownloadState {
    object_url: String,
    part_len_bytes: u64,
    parts: BTreeSet<u64>,
}

/// Downloads the file of an entry into a folder, and verifies it. The new file replaces what has the name. The part that
/// is already downloaded is stored beside it.
pub(super) async fn download(
    location: &Location,
    entry: &Entry,
    folder: &Folder,
    name: &OsStr,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    let partial =
        Partial { folder, name: with_suffix(name, ".partial"), state_name: with_suffix(name, ".partial.json") };
    let path = folder.path().join(&partial.name);
    let file = loop {
        let (file, resumed_parts) = fetch_parts(location, entry, &partial, bandwidth, cancel, progress).await?;
        match verify(location, entry, &file, &path, cancel) {
            Ok(()) => break file,
            Err(PublishError::Canceled) => return Err(PublishError::Canceled),
            Err(error) => {
                remove(folder, &partial.state_name)?;
                remove(folder, &partial.name)?;
                // The earlier download may have left wrong bytes, for example after a power loss.
                if resumed_parts == 0 {
                    return Err(error);
                }
            }
        }
        progress(Progress { stage: Stage::Download, done_bytes: 0, total_bytes: entry.bytes });
    };
    let place = || -> io::Result<()> {
        // Another download to the same path may have begun anew.
        if !folder.has_file(&partial.name, &file)? {
            return Err(io::Error::other("another process has replaced the file: repeat the download"));
        }
        folder.rename(&partial.name, name)?;
        folder.remove(&partial.state_name)?;
        folder.sync()
    };
    place().map_err(PublishError::io(&path))
}

/// The files of an incomplete download.
struct Partial<'f> {
    folder: &'f Folder,
    name: OsString,
    /// The name of the file with the download's [`DownloadState`].
    state_name: OsString,
}

/// Downloads the parts of a file that are missing. Returns the file, and the number of parts that an earlier download had
/// completed.
async fn fetch_parts(
    location: &Location,
    entry: &Entry,
    partial: &Partial<'_>,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(Arc<File>, usize), PublishError> {
    let folder = partial.folder;
    let path = &folder.path().join(&partial.name);
    let io = PublishError::io(path);
    let len_bytes = bandwidth.range_len_bytes(PART_LEN_BYTES);
    let mut state = DownloadState::read(partial, &location.object_url(&entry.object), len_bytes);
    let parts = Parts::new(entry.bytes, len_bytes);
    let continued = match state.parts.is_empty() {
        true => None,
        false => folder.continue_file(&partial.name).map_err(&io)?,
    };
    // A new file gets its name with its first part, so that a download that fails before leaves nothing.
    let (file, mut new) = match continued {
        Some(file) => (file, None),
        None => {
            state.parts.clear();
            let new = folder.new_file().map_err(&io)?;
            (new.file().try_clone().map_err(&io)?, Some(new))
        }
    };
    let file = Arc::new(file);
    let resumed_parts = state.parts.len();
    let mut done_bytes: u64 = state.parts.iter().map(|part| parts.len_bytes(*part)).sum();
    // What the state claims to be complete may not be on the disk.
    check_space(path, entry.bytes.saturating_sub(allocated_bytes(&file)))?;
    file.set_len(entry.bytes).map_err(&io)?;
    progress(Progress { stage: Stage::Download, done_bytes, total_bytes: entry.bytes });
    let complete = state.parts.clone();
    let missing = (0..parts.count()).filter(|part| !complete.contains(part));
    let write_error = |error| write_error(path, &file, entry.bytes, error);
    let fetch = |part: u64| {
        let (range, file, write_error) = (parts.range(part), Arc::clone(&file), &write_error);
        async move {
            bandwidth.reserve(range.end - range.start).await;
            let bytes = read_range(location, &entry.object, range.clone(), cancel).await?;
            let written = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, range.start)).await;
            written.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(write_error)?;
            Ok::<u64, PublishError>(part)
        }
    };
    let mut fetched = stream::iter(missing.map(fetch)).buffer_unordered(REQUESTS_MAX);
    while let Some(part) = fetched.next().await {
        let part = part?;
        done_bytes += parts.len_bytes(part);
        if let Some(new) = new.take() {
            remove(folder, &partial.name)?;
            new.create(&partial.name).map_err(&io)?;
        }
        state.parts.insert(part);
        state.write(partial);
        progress(Progress { stage: Stage::Download, done_bytes, total_bytes: entry.bytes });
    }
    drop(fetched);
    Ok((file, resumed_parts))
}

/// Reads a range of an object. Repeats failed reads, except of a local folder, whose errors do not pass within seconds.
pub(super) async fn read_range(
    location: &Location,
    object: &str,
    range: Range<u64>,
    cancel: &Cancel,
) -> Result<Bytes, PublishError> {
    let path = location.path(object);
    let attempts_max = if location.is_local() { 1 } else { ATTEMPTS_MAX };
    let mut attempt = 0;
    loop {
        check(cancel)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let read = async { location.store.get_opts(&path, options).await?.bytes().await };
        let error = match read.await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
            Ok(bytes) => {
                let problem = format!(
                    "the store returned {} bytes, expected {}: the object is truncated: publish the generation again",
                    bytes.len(),
                    range.end - range.start
                );
                PublishError::Corrupt { object: location.object_url(object), problem }
            }
            // These errors do not pass.
            Err(error) if is_range_ignored(&error) || matches!(error, object_store::Error::NotFound { .. }) => {
                return Err(location.fault(object)(error));
            }
            Err(error) => location.fault(object)(error),
        };
        attempt += 1;
        if attempt >= attempts_max {
            return Err(error);
        }
        back_off(attempt).await;
    }
}

/// Verifies a downloaded file: its bytes on the disk, and that it is the entry's file.
pub(super) fn verify(
    location: &Location,
    entry: &Entry,
    file: &File,
    path: &Path,
    cancel: &Cancel,
) -> Result<(), PublishError> {
    let io = PublishError::io(path);
    file.sync_all().map_err(&io)?;
    // The verification should read what the disk has, and not what is cached in memory.
    fadvise(file, 0, None, Advice::DontNeed).map_err(|error| io(error.into()))?;
    let object = || location.object_url(&entry.object);
    let store = open_verified(file, path, cancel).map_err(|error| match error {
        PublishError::File(error) => {
            PublishError::Corrupt { object: object(), problem: format!("the downloaded file is rejected: {error}") }
        }
        error => error,
    })?;
    let found = Entry {
        bytes: store.file_len_bytes(),
        rows: store.len() as u64,
        digest: format!("{:032x}", store.digest()),
        key_kind: key_kind_name(store.key_kind()).to_owned(),
        schema: schema_names(store.schema().map(Arc::as_ref)),
        ..entry.clone()
    };
    if found != *entry {
        let text = |entry: &Entry| {
            format!("digest {}, {} rows, {} bytes, keys {}", entry.digest, entry.rows, entry.bytes, entry.key_kind)
        };
        let problem = format!("found {}, expected {}: publish the generation again", text(&found), text(entry));
        return Err(PublishError::Corrupt { object: object(), problem });
    }
    Ok(())
}

/// Opens a file and verifies all its blocks.
pub(super) fn open_verified(file: &File, path: &Path, cancel: &Cancel) -> Result<MappedStore, PublishError> {
    let canceled = cancel.clone();
    let pace = Pace::new(move || !canceled.is_set());
    let options = OpenOptions { verify: Verify::Full, pace, ..OpenOptions::default() };
    survive_bus_errors().map_err(PublishError::io(path))?;
    match Store::from_file(file, path, Memory::Map, &options, &mut |_| ()) {
        Ok(store) => Ok(store.into()),
        Err(_) if cancel.is_set() => Err(PublishError::Canceled),
        Err(error) => Err(error.into()),
    }
}

/// Checks that the disk of a file has space for more bytes.
pub(super) fn check_space(path: &Path, needed_bytes: u64) -> Result<(), PublishError> {
    let available_bytes = available_bytes(path)?;
    if available_bytes < needed_bytes.saturating_add(FREE_MIN_BYTES) {
        return Err(disk_full(path, available_bytes, needed_bytes));
    }
    Ok(())
}

fn available_bytes(path: &Path) -> Result<u64, PublishError> {
    let folder = folder_of(path);
    let disk = rustix::fs::statvfs(folder).map_err(|error| PublishError::io(folder)(error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Converts an error of a write to a partial file. A disk can become full after [`check_space`].
fn write_error(partial: &Path, file: &File, len_bytes: u64, error: io::Error) -> PublishError {
    if error.kind() != io::ErrorKind::StorageFull {
        return PublishError::io(partial)(error);
    }
    let Ok(available_bytes) = available_bytes(partial) else { return PublishError::io(partial)(error) };
    let needed_bytes = len_bytes.saturating_sub(allocated_bytes(file));
    disk_full(partial, available_bytes, needed_bytes)
}

fn disk_full(path: &Path, available_bytes: u64, needed_bytes: u64) -> PublishError {
    let (path, reserve_bytes) = (folder_of(path).to_path_buf(), FREE_MIN_BYTES);
    PublishError::DiskFull { path, available_bytes, needed_bytes, reserve_bytes }
}

/// Returns the number of bytes of a file that have space on the disk.
fn allocated_bytes(file: &File) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(BLOCK_BYTES))
}

/// Returns a name with a suffix.
pub(super) fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

/// Removes a file, if it exists.
pub(super) fn remove(folder: &Folder, name: &OsStr) -> Result<(), PublishError> {
    folder.remove(name).map_err(PublishError::io(&folder.path().join(name)))
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Folder) -> Result<(), PublishError> {
    folder.sync().map_err(PublishError::io(folder.path()))
}

impl DownloadState {
    /// Reads the state of an earlier download of the same object. Returns an empty state if there is none.
    fn read(partial: &Partial<'_>, object_url: &str, part_len_bytes: u64) -> DownloadState {
        let json = partial.folder.read(&partial.state_name, STATE_LEN_MAX_BYTES).ok();
        let state = json.and_then(|json| serde_json::from_slice::<DownloadState>(&json).ok());
        state.filter(|state| state.object_url == object_url && state.part_len_bytes == part_len_bytes).unwrap_or_else(
            || DownloadState { object_url: object_url.to_owned(), part_len_bytes, ..Default::default() },
        )
    }

    /// Writes the state. A failure only means that an interrupted download starts again.
    fn write(&self, partial: &Partial<'_>) {
        let _ = serde_json::to_vec(self).map(|json| partial.folder.write(&partial.state_name, &json));
    }
}
