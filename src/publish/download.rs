//! Downloads of baked files.
//!
//! In: an entry of a manifest. Out: a file on the disk that was verified after it was written. A download that was
//! interrupted continues with the parts that are missing. The record of complete parts need not be reliable, because
//! the whole file is verified at the end.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use object_store::{GetOptions, GetRange};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::bandwidth::Bandwidth;
use super::error::PublishError;
use super::location::Location;
use super::manifest::{Entry, key_kind_name, schema_names};
use super::transfer::{
    ATTEMPTS_MAX, OnProgress, PART_LEN_BYTES, Progress, REQUESTS_MAX, Stage, back_off, check, parts,
};
use crate::bake::Cancel;
use crate::store::{MappedStore, Memory, OpenOptions, Pace, Store, Verify, survive_bus_errors};

/// The space that a download leaves free on a disk.
const FREE_MIN_BYTES: u64 = 16 << 20;

/// The parts that a download has completed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DownloadState {
    object_url: String,
    part_len_bytes: u64,
    parts: BTreeSet<usize>,
}

/// Downloads the file of an entry to `path`, and verifies it. If `path` exists, it is replaced. The part that is
/// already downloaded is stored beside it.
pub(super) async fn download(
    location: &Location,
    entry: &Entry,
    path: &Path,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    let partial = with_suffix(path, ".partial");
    let state_path = with_suffix(path, ".partial.json");
    loop {
        let resumed_parts = fetch_parts(location, entry, &partial, &state_path, bandwidth, cancel, progress).await?;
        match verify(location, entry, &partial, cancel) {
            Ok(()) => break,
            Err(PublishError::Canceled) => return Err(PublishError::Canceled),
            Err(error) => {
                remove(&state_path)?;
                remove(&partial)?;
                // The earlier download may have left wrong bytes, for example after a power loss.
                if resumed_parts == 0 {
                    return Err(error);
                }
            }
        }
        progress(Progress { stage: Stage::Download, done_bytes: 0, total_bytes: entry.bytes });
    }
    fs::rename(&partial, path).map_err(PublishError::io(path))?;
    remove(&state_path)?;
    sync_folder_of(path)
}

/// Downloads the parts of a file that are missing. Returns the number of parts that an earlier download had completed.
async fn fetch_parts(
    location: &Location,
    entry: &Entry,
    partial: &Path,
    state_path: &Path,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<usize, PublishError> {
    let io = PublishError::io(partial);
    let len_bytes = bandwidth.range_len_bytes(PART_LEN_BYTES);
    let mut state = DownloadState::read(state_path, &location.object_url(&entry.object), len_bytes);
    let ranges = parts(entry.bytes, len_bytes);
    if state.parts.is_empty() {
        remove(partial)?;
    }
    let file =
        Arc::new(File::options().create(true).truncate(false).read(true).write(true).open(partial).map_err(&io)?);
    let resumed_parts = state.parts.len();
    let mut done_bytes: u64 =
        state.parts.iter().filter_map(|part| ranges.get(*part)).map(|range| range.end - range.start).sum();
    check_space(partial, entry.bytes.saturating_sub(done_bytes))?;
    file.set_len(entry.bytes).map_err(&io)?;
    progress(Progress { stage: Stage::Download, done_bytes, total_bytes: entry.bytes });
    let missing: Vec<usize> = (0..ranges.len()).filter(|part| !state.parts.contains(part)).collect();
    let write_error = |error| write_error(partial, &file, entry.bytes, error);
    let fetch = |part: usize| {
        let (range, file, write_error) = (ranges[part].clone(), Arc::clone(&file), &write_error);
        async move {
            bandwidth.reserve(range.end - range.start).await;
            let bytes = read_range(location, &entry.object, range.clone(), cancel).await?;
            let written = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, range.start)).await;
            written.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(write_error)?;
            Ok::<usize, PublishError>(part)
        }
    };
    let mut fetched = stream::iter(missing.into_iter().map(fetch)).buffer_unordered(REQUESTS_MAX);
    while let Some(part) = fetched.next().await {
        let part = part?;
        done_bytes += ranges[part].end - ranges[part].start;
        state.parts.insert(part);
        state.write(state_path);
        progress(Progress { stage: Stage::Download, done_bytes, total_bytes: entry.bytes });
    }
    Ok(resumed_parts)
}

/// Reads a range of an object. Repeats failed reads.
pub(super) async fn read_range(
    location: &Location,
    object: &str,
    range: Range<u64>,
    cancel: &Cancel,
) -> Result<Bytes, PublishError> {
    let path = location.path(object);
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
            Err(error @ object_store::Error::NotFound { .. }) => return Err(location.fault(object)(error)),
            Err(error) => location.fault(object)(error),
        };
        attempt += 1;
        if attempt >= ATTEMPTS_MAX {
            return Err(error);
        }
        back_off(attempt).await;
    }
}

/// Verifies a downloaded file: its bytes on the disk, and that it is the entry's file.
pub(super) fn verify(location: &Location, entry: &Entry, path: &Path, cancel: &Cancel) -> Result<(), PublishError> {
    let io = PublishError::io(path);
    let file = File::open(path).map_err(&io)?;
    file.sync_all().map_err(&io)?;
    // The verification should read what the disk has, and not what is cached in memory.
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| io(error.into()))?;
    let object = || location.object_url(&entry.object);
    let store = open_verified(&file, path, cancel).map_err(|error| match error {
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
        return Err(PublishError::DiskFull { path: folder_of(path).to_path_buf(), available_bytes, needed_bytes });
    }
    Ok(())
}

fn available_bytes(path: &Path) -> Result<u64, PublishError> {
    let folder = folder_of(path);
    let disk = rustix::fs::statvfs(folder).map_err(|error| PublishError::io(folder)(error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Converts an error of a write to a partial file. A disk can become full after [`check_space`].
fn write_error(partial: &Path, file: &File, len_bytes: u64, error: std::io::Error) -> PublishError {
    const BLOCK_BYTES: u64 = 512;
    if error.kind() != std::io::ErrorKind::StorageFull {
        return PublishError::io(partial)(error);
    }
    let Ok(available_bytes) = available_bytes(partial) else { return PublishError::io(partial)(error) };
    let written_bytes = file.metadata().map_or(0, |metadata| metadata.blocks() * BLOCK_BYTES);
    let needed_bytes = len_bytes.saturating_sub(written_bytes);
    PublishError::DiskFull { path: folder_of(partial).to_path_buf(), available_bytes, needed_bytes }
}

/// Returns a path with a suffix.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), PublishError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(PublishError::io(path)(error)),
        _ => Ok(()),
    }
}

/// Makes the name of a file durable.
pub(super) fn sync_folder_of(path: &Path) -> Result<(), PublishError> {
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(PublishError::io(folder))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl DownloadState {
    /// Reads the state of an earlier download of the same object. Returns an empty state if there is none.
    fn read(path: &Path, object_url: &str, part_len_bytes: u64) -> DownloadState {
        let state = fs::read(path).ok().and_then(|json| serde_json::from_slice::<DownloadState>(&json).ok());
        state.filter(|state| state.object_url == object_url && state.part_len_bytes == part_len_bytes).unwrap_or_else(
            || DownloadState { object_url: object_url.to_owned(), part_len_bytes, ..Default::default() },
        )
    }

    /// Writes the state. A failure only means that an interrupted download starts again.
    fn write(&self, path: &Path) {
        let _ = serde_json::to_vec(self).map(|json| fs::write(path, json));
    }
}
