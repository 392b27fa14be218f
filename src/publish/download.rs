//! Downloads of baked files.
//!
//! In: an entry of a manifest. Out: a file on the disk that was verified after it was written. An interrupted download
//! continues with the bytes that are missing. The record of what has arrived need not be reliable, because the whole
//! file is verified at the end.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::take;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange};
use rustix::fs::{Advice, fadvise};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::bounded_http::{Streamed, is_range_ignored};
use super::error::PublishError;
use super::location::Location;
use super::manifest::{Entry, schema_names};
use super::partial::{ByteRanges, DownloadState, Partial};
use super::transfer::{
    ATTEMPTS_MAX, Bandwidth, OnProgress, PART_LEN_BYTES, Parts, REQUESTS_MAX, Stage, TransferProgress, allocated_bytes,
    back_off, check, check_space, remove, write_error,
};
use crate::Lookup;
use crate::bake::Cancel;
use crate::counted::counted;
use crate::folder::{Folder, NewFile};
use crate::store::{MappedStore, Memory, OpenOptions, Pace, Store, StoreError, Verify, survive_bus_errors};

/// The length of a write. On a slow link, fewer are written, so that a restart loses little.
const WRITE_LEN_BYTES: usize = 256 << 10;
/// The remedy for an object with other bytes than the published ones.
const REPUBLISH: &str = "if this repeats, the object in the store is damaged: publish the generation again from the \
                         original file, and pin another generation until then";
/// The time after which what has arrived is written and recorded.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// How often the damaged blocks of a download are fetched again, until it fails.
const REPAIRS_MAX: u32 = 3;
/// The number of bytes that a failed request must have received, so that it does not count as a failure.
const PROGRESS_MIN_BYTES: u64 = 16 << 10;

/// Downloads the file of an entry into a folder, and verifies it. The new file replaces what has the name. The part
/// that is already downloaded is stored beside it. Damaged blocks are fetched again, and the others are kept.
pub(super) async fn download(
    location: &Location,
    entry: &Entry,
    folder: &Folder,
    name: &OsStr,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(), PublishError> {
    let partial = Partial::of(folder, name);
    let path = partial.path();
    let mut repairs = 0;
    let file = loop {
        let (file, resumed_bytes) = fetch_missing(location, entry, &partial, bandwidth, cancel, progress).await?;
        match verify(location, entry, &file, &path, cancel) {
            Ok(()) => break file,
            Err(PublishError::Canceled) => return Err(PublishError::Canceled),
            Err(error) => {
                let is_corrupt = matches!(error, PublishError::Corrupt { .. });
                let is_kept = is_corrupt && partial.keep_intact(location, entry, &file, cancel);
                if !is_kept {
                    partial.discard()?;
                    progress(TransferProgress { stage: Stage::Download, done_bytes: 0, total_bytes: entry.bytes });
                }
                // The earlier download may have left wrong bytes, for example after a power loss.
                if repairs == REPAIRS_MAX || !is_kept && resumed_bytes == 0 {
                    return Err(error);
                }
                repairs += 1;
            }
        }
    };
    let place = || -> io::Result<()> {
        // Another download to the same path may have begun anew.
        if !folder.has_file(&partial.name, &file)? {
            return Err(io::Error::other("another process has replaced the file: repeat the download"));
        }
        folder.keep_rights(name, &file)?;
        folder.rename(&partial.name, name)?;
        folder.remove(&partial.state_name)?;
        folder.sync()
    };
    place().map_err(PublishError::io(&path))
}

/// Downloads the bytes of a file that are missing. Returns the file, and the number of bytes that an earlier download
/// had completed. Bytes that have arrived are kept if the download fails or is canceled.
async fn fetch_missing(
    location: &Location,
    entry: &Entry,
    partial: &Partial<'_>,
    bandwidth: &Bandwidth,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<(Arc<File>, u64), PublishError> {
    let folder = partial.folder;
    let path = &partial.path();
    let io = PublishError::io(path);
    for name in [&partial.name, &partial.state_name] {
        if folder.is_folder(name).map_err(&io)? {
            let problem = "is a folder where a partial download was expected: move it, or choose another output";
            let error = io::Error::new(io::ErrorKind::IsADirectory, problem);
            return Err(PublishError::io(&folder.path().join(name))(error));
        }
    }
    let mut state = partial.state(location, entry);
    let continued = match state.complete.is_empty() {
        true => None,
        false => folder.continue_file(&partial.name).map_err(&io)?,
    };
    // A new file gets its name with its first bytes, so that a download that fails before leaves nothing.
    let (file, new) = match continued {
        Some(file) => (file, None),
        None => {
            state.complete = ByteRanges::default();
            let new = folder.new_file().map_err(&io)?;
            (new.file().try_clone().map_err(&io)?, Some(new))
        }
    };
    let file = Arc::new(file);
    let resumed_bytes = state.complete.len_bytes();
    // The state may list bytes that never reached the disk.
    check_space(path, entry.bytes.saturating_sub(allocated_bytes(&file)))?;
    file.set_len(entry.bytes).map_err(&io)?;
    let len_bytes = bandwidth.range_len_bytes(PART_LEN_BYTES);
    let divided = move |gap: Range<u64>| {
        Parts::new(gap.end - gap.start, len_bytes)
            .ranges()
            .map(move |range| gap.start + range.start..gap.start + range.end)
    };
    let missing = state.complete.gaps(entry.bytes).into_iter().flat_map(divided);
    let (sender, mut receiver) = unbounded_channel();
    let write_error = &|error: io::Error| write_error(path, &file, entry.bytes, error);
    let fetch = |range: Range<u64>| {
        let mut arrived = Arrived::new(Arc::clone(&file), sender.clone());
        async move {
            bandwidth.reserve(range.end - range.start).await;
            receive_range(location, &entry.object, range, cancel, async |start_bytes, bytes| {
                arrived.receive(start_bytes, bytes).await.map_err(write_error)
            })
            .await
        }
    };
    let mut fetched = pin!(stream::iter(missing.map(fetch)).buffer_unordered(REQUESTS_MAX));
    let mut record = Recorded { partial, state, new, unrecorded_bytes: 0, recorded_at: Instant::now() };
    let total_bytes = entry.bytes;
    let mut report = |record: &Recorded<'_>| {
        progress(TransferProgress {
            stage: Stage::Download,
            done_bytes: record.state.complete.len_bytes(),
            total_bytes,
        });
    };
    report(&record);
    let result = loop {
        tokio::select! {
            biased;
            Some(range) = receiver.recv() => {
                record.add(range)?;
                report(&record);
            }
            () = sleep_until(record.recorded_at + RECORD_EVERY), if record.unrecorded_bytes > 0 => record.write(),
            fetched = fetched.next() => match fetched {
                None => break Ok(()),
                Some(Ok(())) => {}
                Some(Err(error)) => break Err(error),
            },
        }
    };
    while let Ok(range) = receiver.try_recv() {
        record.add(range)?;
    }
    record.write();
    report(&record);
    result.map(|()| (Arc::clone(&file), resumed_bytes))
}

/// The bytes of a range that have arrived, some of which are not written yet.
struct Arrived {
    file: Arc<File>,
    written: UnboundedSender<Range<u64>>,
    start_bytes: u64,
    bytes: Vec<u8>,
    /// When the first of these bytes arrived.
    since: Instant,
}

impl Arrived {
    fn new(file: Arc<File>, written: UnboundedSender<Range<u64>>) -> Arrived {
        Arrived { file, written, start_bytes: 0, bytes: Vec::new(), since: Instant::now() }
    }

    /// Receives the bytes at an offset, which follow the preceding ones unless those were written. Without bytes,
    /// writes what has arrived.
    async fn receive(&mut self, start_bytes: u64, bytes: Bytes) -> io::Result<()> {
        if self.bytes.is_empty() {
            (self.start_bytes, self.since) = (start_bytes, Instant::now());
        }
        self.bytes.extend_from_slice(&bytes);
        let is_due = bytes.is_empty() || self.bytes.len() >= WRITE_LEN_BYTES || self.since.elapsed() >= RECORD_EVERY;
        if self.bytes.is_empty() || !is_due {
            return Ok(());
        }
        let (file, start_bytes, bytes) = (Arc::clone(&self.file), self.start_bytes, take(&mut self.bytes));
        let end_bytes = start_bytes + bytes.len() as u64;
        let written = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, start_bytes)).await;
        written.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        // Fails only if the download has ended.
        let _ = self.written.send(start_bytes..end_bytes);
        Ok(())
    }
}

/// The recorded state of a download.
struct Recorded<'p> {
    partial: &'p Partial<'p>,
    state: DownloadState,
    /// The file, before it has its name.
    new: Option<NewFile>,
    unrecorded_bytes: u64,
    recorded_at: Instant,
}

impl Recorded<'_> {
    fn add(&mut self, range: Range<u64>) -> Result<(), PublishError> {
        if let Some(new) = self.new.take() {
            remove(self.partial.folder, &self.partial.name)?;
            new.create(&self.partial.name).map_err(PublishError::io(&self.partial.path()))?;
        }
        self.unrecorded_bytes += range.end - range.start;
        self.state.complete.insert(range);
        if self.unrecorded_bytes >= PART_LEN_BYTES || self.recorded_at.elapsed() >= RECORD_EVERY {
            self.write();
        }
        Ok(())
    }

    fn write(&mut self) {
        if self.unrecorded_bytes > 0 {
            self.partial.write_state(&self.state);
        }
        (self.unrecorded_bytes, self.recorded_at) = (0, Instant::now());
    }
}

/// Reads a range of an object: see [`receive_range`].
pub(super) async fn read_range(
    location: &Location,
    object: &str,
    range: Range<u64>,
    cancel: &Cancel,
) -> Result<Bytes, PublishError> {
    let (first_bytes, mut read) = (range.start, Vec::new());
    let receive = async |start_bytes: u64, bytes: Bytes| {
        read.truncate((start_bytes - first_bytes) as usize);
        read.extend_from_slice(&bytes);
        Ok(())
    };
    receive_range(location, object, range, cancel, receive).await?;
    Ok(read.into())
}

/// Receives a range of an object, as its bytes arrive. After a failure, continues after the bytes that have arrived, so
/// a link that is slower than the time limit of a request makes progress. Gives up after several failures without
/// progress, or after the first one of a local folder, whose errors do not pass within seconds. Passes each piece with
/// its offset to `receive`, and an empty piece when a request ends.
async fn receive_range(
    location: &Location,
    object: &str,
    range: Range<u64>,
    cancel: &Cancel,
    mut receive: impl AsyncFnMut(u64, Bytes) -> Result<(), PublishError>,
) -> Result<(), PublishError> {
    let path = location.path(object);
    let attempts_max = if location.is_local() { 1 } else { ATTEMPTS_MAX };
    let (mut at, mut attempt) = (range.start, 0);
    loop {
        check(cancel)?;
        let start = at;
        let mut options = GetOptions { range: Some(GetRange::Bounded(at..range.end)), ..GetOptions::default() };
        options.extensions.insert(Streamed);
        let read = async {
            let mut body = location.store.get_opts(&path, options).await.map_err(ReadError::Store)?.into_stream();
            while let Some(bytes) = body.try_next().await.map_err(ReadError::Store)? {
                // A body that is longer than the range fails before.
                at += bytes.len() as u64;
                receive(at - bytes.len() as u64, bytes).await.map_err(ReadError::Receiver)?;
            }
            Ok(())
        };
        let result = read.await;
        receive(at, Bytes::new()).await?;
        let error = match result {
            Ok(()) if at == range.end => return Ok(()),
            Ok(()) => {
                let (found, expected) = (at.saturating_sub(start), range.end - start);
                let problem = format!(
                    "the store returned {found} bytes, expected {expected}: the object is truncated: {REPUBLISH}"
                );
                // The next response may be another one, so it has to return all of it.
                at = start;
                PublishError::Corrupt { object: location.object_url(object), problem }
            }
            Err(ReadError::Receiver(error)) => return Err(error),
            // These errors do not pass.
            Err(ReadError::Store(error))
                if is_range_ignored(&error) || matches!(error, object_store::Error::NotFound { .. }) =>
            {
                return Err(location.fault(object)(error));
            }
            Err(ReadError::Store(error)) => location.fault(object)(error),
        };
        attempt = if at - start >= PROGRESS_MIN_BYTES { 1 } else { attempt + 1 };
        if attempt >= attempts_max {
            return Err(error);
        }
        back_off(attempt).await;
    }
}

/// Why a request did not return its range.
enum ReadError {
    Store(object_store::Error),
    Receiver(PublishError),
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
            let problem = match &error {
                StoreError::Format { error, .. } => error.without_remedy(),
                error => error.to_string(),
            };
            let problem = format!("the downloaded file is rejected: {problem}: {REPUBLISH}");
            PublishError::Corrupt { object: object(), problem }
        }
        error => error,
    })?;
    let found = Entry {
        bytes: store.file_len_bytes(),
        rows: store.len() as u64,
        digest: format!("{:032x}", store.digest()),
        key_kind: store.key_type().to_string(),
        schema: schema_names(store.schema().as_deref()),
        ..entry.clone()
    };
    if found != *entry {
        let text = |entry: &Entry| {
            let rows = counted(entry.rows, "row");
            format!("digest {}, {rows}, {} bytes, keys {}", entry.digest, entry.bytes, entry.key_kind)
        };
        let problem = format!("found {}, expected {}: {REPUBLISH}", text(&found), text(entry));
        return Err(PublishError::Corrupt { object: object(), problem });
    }
    Ok(())
}

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
