//! Uploads of baked files.
//!
//! In: a baked file and its slots. Out: an object with the same bytes, and the entry that a manifest lists. The file is
//! verified before the upload, and the object is read back after it. An interrupted upload continues with the parts
//! that are missing: see [`UploadState`].

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use object_store::PutPayload;
use object_store::multipart::{MultipartStore, PartId};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::download::{open_verified, read_range};
use super::error::PublishError;
use super::limits::STATE_LEN_MAX_BYTES;
use super::location::Location;
use super::manifest::{Entry, check_coverage, schema_names};
use super::transfer::{
    ATTEMPTS_MAX, OnProgress, Parts, REQUESTS_MAX, Stage, TransferProgress, back_off, check, part_len_bytes,
    with_suffix,
};
use crate::Lookup;
use crate::bake::Cancel;
use crate::folder::{Folder, is_hidden_name};
use crate::slots::{SlotRange, slot_of_typed};
use crate::store::MappedStore;

/// A file of a generation, and its slots.
#[derive(Clone, Debug)]
pub struct ShardFile {
    /// The path of the baked file.
    pub path: PathBuf,
    /// The slots that the file has. All its keys must belong to these slots.
    pub slots: SlotRange,
}

impl ShardFile {
    /// Returns a file that has all slots.
    pub fn whole(path: impl Into<PathBuf>) -> ShardFile {
        ShardFile { path: path.into(), slots: SlotRange::ALL }
    }

    /// Checks that the slots of files cover every slot exactly once.
    ///
    /// # Errors
    /// [`PublishError::Coverage`].
    pub fn check_coverage(shards: &[ShardFile]) -> Result<(), PublishError> {
        check_coverage(shards.iter().map(|shard| shard.slots)).map_err(|problem| PublishError::Coverage { problem })
    }
}

/// The maximum length of a store's name of an upload. The name is a part of each request's URL, and the crate
/// `object_store` panics if a URL has more than 64 KiB. In a URL, a byte can become three.
const UPLOAD_ID_LEN_MAX_BYTES: usize = 8 << 10;

/// The parts that an upload has completed. The state is stored beside the uploaded file until the upload is complete.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct UploadState {
    /// The URL of the object.
    object_url: String,
    /// The name of the object, relative to the table's URL.
    object: String,
    digest: String,
    bytes: u64,
    part_len_bytes: u64,
    /// The store's name of the upload.
    upload_id: String,
    /// The store's name of each complete part, by the part's number.
    parts: BTreeMap<usize, String>,
}

/// How many parts of an upload are sent at the same time. A slow link sends few of them, so that each one arrives
/// within the time of a request, and a failure costs little. Downloads need not adapt, because they keep what has
/// arrived of a part.
struct Concurrency {
    requests: usize,
}

impl Default for Concurrency {
    fn default() -> Concurrency {
        Concurrency { requests: 2 }
    }
}

impl Concurrency {
    const FAST: Duration = Duration::from_secs(10);
    const SLOW: Duration = Duration::from_secs(60);

    fn requests(&self) -> usize {
        self.requests
    }

    /// Adapts to the time that a part took.
    fn adapt(&mut self, took: Duration) {
        if took < Concurrency::FAST {
            self.requests = REQUESTS_MAX.min(self.requests + 1);
        } else if took > Concurrency::SLOW {
            self.requests = 1.max(self.requests / 2);
        }
    }
}

/// An upload of a verified file.
struct Upload<'u> {
    location: &'u Location,
    job: &'u str,
    shard: &'u ShardFile,
    verified: Verified,
    cancel: &'u Cancel,
}

/// A verified file that is ready for its upload.
struct Verified {
    file: Arc<File>,
    store: MappedStore,
    digest: String,
    bytes: u64,
}

pub(super) async fn upload(
    location: &Location,
    job: &str,
    shard: &ShardFile,
    cancel: &Cancel,
    progress: OnProgress<'_>,
) -> Result<Entry, PublishError> {
    location.check_writable()?;
    let upload = Upload { location, job, shard, verified: verify(shard, cancel, progress)?, cancel };
    let object = match &location.multipart {
        Some(multipart) => upload.resumable(multipart, progress).await?,
        None => upload.at_once(progress).await?,
    };
    // A store or a proxy may have stored other bytes, which otherwise only nodes would notice.
    upload.read_back(&object, progress).await?;
    let verified = upload.verified;
    if !is_intact(&verified.store) {
        let problem = "was changed during its upload: publish it again, and replace files only by rename".to_owned();
        return Err(PublishError::Corrupt { object: shard.path.display().to_string(), problem });
    }
    let schema = verified.store.schema();
    Ok(Entry {
        slots: shard.slots,
        object,
        bytes: verified.bytes,
        rows: verified.store.len() as u64,
        digest: verified.digest,
        key_kind: verified.store.key_type().to_string(),
        schema: schema_names(schema.as_deref()),
        key_name: schema.as_deref().and_then(|schema| schema.key_name()).unwrap_or_default().to_owned(),
    })
}

/// Returns whether the file has the bytes that were verified before its upload. If its names or permissions have
/// changed meanwhile, its blocks are verified again.
fn is_intact(store: &MappedStore) -> bool {
    // The first look at a file that was renamed just before it was opened begins a new epoch, and so does a rename
    // during the check. A write makes all attempts fail.
    const ATTEMPTS: usize = 3;
    let store = store.unverified();
    (0..ATTEMPTS).any(|_| {
        let Some(epoch) = store.begin_batch_of_whole_file() else { return false };
        let is_intact = (0..store.block_counts().0).all(|block| store.verify_block(block) == Some(true));
        is_intact && store.is_unchanged_since(epoch)
    })
}

/// Verifies all blocks of a file, and that its keys belong to its slots.
fn verify(shard: &ShardFile, cancel: &Cancel, progress: OnProgress<'_>) -> Result<Verified, PublishError> {
    let path = &shard.path;
    let file = crate::store::open_regular(path).map_err(PublishError::io(path))?;
    let total_bytes = file.metadata().map_err(PublishError::io(path))?.len();
    progress(TransferProgress { stage: Stage::Verify, done_bytes: 0, total_bytes });
    let store = open_verified(&file, path, cancel)?;
    if shard.slots != SlotRange::ALL {
        check_slots(&store, shard, cancel)?;
    }
    let bytes = store.file_len_bytes();
    progress(TransferProgress { stage: Stage::Verify, done_bytes: bytes, total_bytes: bytes });
    Ok(Verified { file: Arc::new(file), digest: format!("{:032x}", store.digest()), bytes, store })
}

fn check_slots(store: &MappedStore, shard: &ShardFile, cancel: &Cancel) -> Result<(), PublishError> {
    let damaged = |error: crate::store::LookupError| PublishError::Corrupt {
        object: shard.path.display().to_string(),
        problem: error.to_string(),
    };
    for (number, row) in store.iter().enumerate() {
        let (key, _) = row.map_err(damaged)?;
        let slot = slot_of_typed(store.key_type(), key.as_key());
        if !shard.slots.has(slot) {
            return Err(PublishError::Slot { path: shard.path.clone(), row: number, slot, slots: shard.slots });
        }
        if number % 4096 == 0 {
            check(cancel)?;
        }
    }
    Ok(())
}

/// Returns a name for the object of a file that no other job uses.
fn object_name(job: &str, shard: &ShardFile, digest: &str) -> String {
    format!("data/{job}/{}-{digest}.zkv", shard.slots)
}

/// Returns whether an upload can have created an object of this name: an object that [`object_name`] names, or the
/// hidden file of an upload into a folder.
pub(super) fn is_object_name(object: &str) -> bool {
    let ["data", job, name] = object.split('/').collect::<Vec<_>>()[..] else { return false };
    let parts = name.strip_suffix(".zkv").and_then(|name| name.rsplit_once('-'));
    let is_file = parts.is_some_and(|(slots, digest)| slots.parse::<SlotRange>().is_ok() && is_hex(digest));
    is_hex(job) && (is_file || is_hidden_name(name))
}

pub(super) fn is_job(text: &str) -> bool {
    is_hex(text)
}

fn is_hex(text: &str) -> bool {
    const DIGITS: usize = 32;
    text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
}

impl Upload<'_> {
    fn object_name(&self) -> String {
        object_name(self.job, self.shard, &self.verified.digest)
    }

    fn read_part(&self, range: &Range<u64>) -> Result<Vec<u8>, PublishError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.verified.file.read_exact_at(&mut bytes, range.start);
        read.map_err(PublishError::io(&self.shard.path))?;
        Ok(bytes)
    }

    fn progress(&self, stage: Stage, done_bytes: u64) -> TransferProgress {
        TransferProgress { stage, done_bytes, total_bytes: self.verified.bytes }
    }

    /// Uploads the file to a store that cannot resume uploads.
    async fn at_once(&self, progress: OnProgress<'_>) -> Result<String, PublishError> {
        let (object, bytes) = (self.object_name(), self.verified.bytes);
        let (path, fault) = (self.location.path(&object), self.location.fault(&object));
        let mut upload = self.location.store.put_multipart_opts(&path, Default::default()).await.map_err(&fault)?;
        progress(self.progress(Stage::Upload, 0));
        for range in Parts::new(bytes, part_len_bytes(bytes)).ranges() {
            let sent = match check(self.cancel).and_then(|()| self.read_part(&range)) {
                Ok(bytes) => upload.put_part(bytes.into()).await.map_err(&fault),
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                // The store removes unfinished uploads itself, so a failure changes nothing.
                let _ = upload.abort().await;
                return Err(error);
            }
            progress(self.progress(Stage::Upload, range.end));
        }
        upload.complete().await.map_err(fault)?;
        Ok(object)
    }

    /// Uploads the file in parallel parts, and continues an earlier upload of the same file if there is one.
    async fn resumable(
        &self,
        multipart: &Arc<dyn MultipartStore>,
        progress: OnProgress<'_>,
    ) -> Result<String, PublishError> {
        let place = StatePlace::beside(&self.shard.path)?;
        let resumed = UploadState::read(&place, self);
        let is_resumed = resumed.is_some();
        let mut state = match resumed {
            Some(state) => state,
            None => UploadState::start(self, multipart).await?,
        };
        match self.send_parts(multipart, &place, &mut state, progress).await {
            Ok(()) => {}
            // The store may have removed the earlier upload. The upload then starts again.
            Err(PublishError::Store { .. }) if is_resumed && !self.cancel.is_set() => {
                state = UploadState::start(self, multipart).await?;
                self.send_parts(multipart, &place, &mut state, progress).await?;
            }
            Err(error) => return Err(error),
        }
        let _ = place.folder.remove(&place.name);
        Ok(state.object)
    }

    /// Uploads the parts that `state` lacks, and completes the upload.
    async fn send_parts(
        &self,
        multipart: &Arc<dyn MultipartStore>,
        place: &StatePlace,
        state: &mut UploadState,
        progress: OnProgress<'_>,
    ) -> Result<(), PublishError> {
        let (path, id) = (self.location.path(&state.object), state.upload_id.clone());
        let (fault, bytes) = (self.location.fault(&state.object), self.verified.bytes);
        let parts = Parts::new(bytes, state.part_len_bytes);
        let missing = (0..parts.count() as usize).filter(|part| !state.parts.contains_key(part));
        let mut waiting: VecDeque<(usize, u32)> = missing.map(|part| (part, 0)).collect();
        let mut done_bytes: u64 = state.parts.keys().map(|part| parts.len_bytes(*part as u64)).sum();
        progress(self.progress(Stage::Upload, done_bytes));
        let send = |part: usize, attempt: u32| {
            let (path, id, range) = (path.clone(), id.clone(), parts.range(part as u64));
            async move {
                check(self.cancel)?;
                if attempt > 0 {
                    back_off(attempt).await;
                }
                let sent = multipart.put_part(&path, &id, part, PutPayload::from(self.read_part(&range)?));
                let (started, sent) = (Instant::now(), sent.await);
                Ok::<_, PublishError>((part, attempt, started.elapsed(), sent))
            }
        };
        let mut concurrency = Concurrency::default();
        let mut sending = FuturesUnordered::new();
        loop {
            while sending.len() < concurrency.requests() {
                let Some((part, attempt)) = waiting.pop_front() else { break };
                sending.push(send(part, attempt));
            }
            let Some(sent) = sending.next().await else { break };
            match sent? {
                (part, _, took, Ok(sent)) => {
                    concurrency.adapt(took);
                    done_bytes += parts.len_bytes(part as u64);
                    state.parts.insert(part, sent.content_id);
                    state.write(place);
                    progress(self.progress(Stage::Upload, done_bytes));
                }
                (_, attempt, _, Err(error)) if attempt + 1 >= ATTEMPTS_MAX => return Err(fault(error)),
                (part, attempt, took, Err(_)) => {
                    // A failure that comes fast does not show that the link is fast.
                    concurrency.adapt(took.max(Concurrency::FAST));
                    waiting.push_front((part, attempt + 1));
                }
            }
        }
        drop(sending);
        let sent = state.parts.values().map(|content_id| PartId { content_id: content_id.clone() }).collect();
        match multipart.complete_multipart(&path, &id, sent).await {
            // The response may be lost. The whole object is read back in any case.
            Err(error) if self.location.len_bytes(&state.object).await.ok().flatten() != Some(bytes) => {
                Err(fault(error))
            }
            _ => Ok(()),
        }
    }

    /// Reads the uploaded object back, and compares it with the file.
    async fn read_back(&self, object: &str, progress: OnProgress<'_>) -> Result<(), PublishError> {
        let (location, bytes) = (self.location, self.verified.bytes);
        let corrupt = |problem: String| PublishError::Corrupt { object: location.object_url(object), problem };
        let found_bytes = location.len_bytes(object).await?.unwrap_or_default();
        if found_bytes != bytes {
            return Err(corrupt(format!("the store has {found_bytes} bytes, expected {bytes}: publish again")));
        }
        let compare = |range: Range<u64>| async move {
            check(self.cancel)?;
            let stored = read_range(location, object, range.clone(), self.cancel).await?;
            if XxHash3_128::oneshot(&stored) != XxHash3_128::oneshot(&self.read_part(&range)?) {
                return Err(corrupt(format!(
                    "the stored bytes {}-{} are not those of the file: publish again",
                    range.start, range.end
                )));
            }
            Ok(range.end - range.start)
        };
        let parts = Parts::new(bytes, part_len_bytes(bytes));
        let mut compared = stream::iter(parts.ranges().map(compare)).buffer_unordered(REQUESTS_MAX);
        let mut done_bytes = 0;
        progress(self.progress(Stage::ReadBack, done_bytes));
        while let Some(len_bytes) = compared.next().await {
            done_bytes += len_bytes?;
            progress(self.progress(Stage::ReadBack, done_bytes));
        }
        Ok(())
    }
}

/// The file with the state of an upload, beside the uploaded file.
struct StatePlace {
    folder: Folder,
    name: OsString,
}

impl StatePlace {
    fn beside(file: &Path) -> Result<StatePlace, PublishError> {
        let (folder, name) = Folder::of(file).map_err(PublishError::io(file))?;
        Ok(StatePlace { folder, name: with_suffix(&name, ".upload.json") })
    }
}

impl UploadState {
    async fn start(upload: &Upload<'_>, multipart: &Arc<dyn MultipartStore>) -> Result<UploadState, PublishError> {
        let (location, verified, object) = (upload.location, &upload.verified, upload.object_name());
        let upload_id = multipart.create_multipart(&location.path(&object)).await.map_err(location.fault(&object))?;
        if upload_id.len() > UPLOAD_ID_LEN_MAX_BYTES {
            let problem = format!(
                "the store's name of the upload has {} bytes, expected at most {UPLOAD_ID_LEN_MAX_BYTES}: check what \
                 answers at this address",
                upload_id.len()
            );
            return Err(location.document_fault(&object, problem));
        }
        Ok(UploadState {
            object_url: location.object_url(&object),
            object,
            digest: verified.digest.clone(),
            bytes: verified.bytes,
            part_len_bytes: part_len_bytes(verified.bytes),
            upload_id,
            parts: BTreeMap::new(),
        })
    }

    /// Reads the state of an earlier upload of the same file to the same table. Returns `None` if there is none.
    fn read(place: &StatePlace, upload: &Upload<'_>) -> Option<UploadState> {
        let verified = &upload.verified;
        let json = place.folder.read(&place.name, STATE_LEN_MAX_BYTES).ok()?;
        let state: UploadState = serde_json::from_slice(&json).ok()?;
        // Other writers to the file's folder must not choose another object, such as a manifest.
        let is_same = is_object_name(&state.object)
            && state.object_url == upload.location.object_url(&state.object)
            && state.digest == verified.digest
            && state.bytes == verified.bytes
            && state.upload_id.len() <= UPLOAD_ID_LEN_MAX_BYTES
            && state.part_len_bytes == part_len_bytes(verified.bytes)
            && state.parts.keys().all(|part| (*part as u64) < verified.bytes.div_ceil(state.part_len_bytes));
        is_same.then_some(state)
    }

    /// Writes the state. A failure only means that an interrupted upload starts again.
    fn write(&self, place: &StatePlace) {
        let _ = serde_json::to_vec(self).map(|json| place.folder.write(&place.name, &json));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_sends_one_part_at_a_time_and_a_fast_one_many() {
        let after = |times_s: &[u64]| {
            let mut concurrency = Concurrency::default();
            times_s.iter().for_each(|time_s| concurrency.adapt(Duration::from_secs(*time_s)));
            concurrency.requests()
        };
        assert_eq!(after(&[]), 2);
        assert_eq!(after(&[30, 30, 30]), 2);
        assert_eq!(after(&[160]), 1);
        assert_eq!(after(&[160, 160, 30]), 1);
        assert_eq!(after(&[1; 20]), REQUESTS_MAX);
        assert_eq!(after(&[1, 1, 1, 1, 1, 1, 90, 90]), 2);
    }

    #[test]
    fn only_names_of_uploaded_files_are_names_of_objects() {
        let (job, digest) = ("0123456789abcdef".repeat(2), "fedcba9876543210".repeat(2));
        let shard = ShardFile::whole("table.db");
        assert!(is_object_name(&object_name(&crate::publish::publication::new_job(), &shard, &digest)));
        assert!(is_object_name(&format!("data/{job}/8192-16383-{digest}.zkv")));
        assert!(is_object_name(&format!("data/{job}/.zkv.{digest}.tmp").replace(".zkv.", ".zero-kv.")));
        let upper = digest.to_uppercase();
        for name in [
            String::new(),
            format!("data/{job}"),
            format!("data/{job}/0-16383-{digest}"),
            format!("data/{job}/0-16383-{digest}.zkv/x"),
            format!("data/{job}/16383-0-{digest}.zkv"),
            format!("data/{job}/0-16384-{digest}.zkv"),
            format!("data/{job}/{digest}.zkv"),
            format!("data/{job}/0-16383-{upper}.zkv"),
            format!("data/{job}/0-16383-{}.zkv", &digest[1..]),
            format!("data/{job}x/0-16383-{digest}.zkv"),
            format!("data/../0-16383-{digest}.zkv"),
            format!("manifests/{job}/0-16383-{digest}.zkv"),
            format!("data/{job}/authorized_keys"),
        ] {
            assert!(!is_object_name(&name), "{name}");
        }
    }
}
