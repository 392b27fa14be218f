//! Decides whether the bytes of a file are trusted.
//!
//! A batch of lookups first verifies the blocks that it reads, and then copies bytes of these blocks. The batch is
//! correct if nobody changed the file until the end of the copy. [`Blocks`](super::blocks::Blocks) tracks verified
//! blocks, and [`WatchedFile`] detects changes.

use std::fs::File;
use std::io;
use std::ops::Range;

use thiserror::Error;
use zerocopy::IntoBytes;

use super::epoch::Epoch;
use super::page_copies::{FixedCopies, LockedCopies};
use super::sealed::reopened;
use super::stamp::{Stamp, WatchedFile};
use super::{Pace, Store, check, verification};
use crate::format::FormatError;

/// The reason why [`Store::look_again`] does not trust a changed file again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Mistrust {
    /// The system cannot examine the file, or no longer grants a lease on it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The root of the file's block sums has changed, so the file has other contents.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The check was canceled.
    #[error("the check was canceled")]
    Canceled,
    /// The file changed while it was checked, or a process has it open for writing.
    #[error("the file is still being written to")]
    Changing,
}

/// The maximum number of attempts to begin a trusted epoch, if other threads end it at once because the file's names or
/// permissions have changed again.
const BEGIN_ATTEMPTS_MAX: usize = 4;

impl Store {
    /// Returns the current epoch. Every change of the file begins a new epoch. See [`Store::is_unchanged_since`].
    #[inline(always)]
    pub fn epoch(&self) -> Epoch {
        self.blocks.epoch()
    }

    /// Begins a batch of lookups: returns the current epoch, for [`Store::is_unchanged_since`].
    ///
    /// If somebody has changed only the file's names or permissions, the change time (ctime) shows no more than that
    /// somebody may also have written to the file and restored the modification time. This function then verifies the
    /// root of the block sums and trusts the file again, so lookups verify each block again on first access.
    ///
    /// In the first 50 ms after such a change, a further write may leave the change time as it is. During this time,
    /// lookups copy the pages of each block before they verify the block, and read only the copies. Such a lookup must
    /// be repeated if it copied a page, because it may have read the page before: [`Store::is_unchanged_since`] then
    /// returns `false`.
    #[inline(always)]
    pub fn begin_batch(&self) -> Epoch {
        let epoch = self.epoch();
        if epoch.is_distrust() { self.recheck_after_change_of_metadata() } else { epoch }
    }

    /// Trusts the file again if its change time may be all that has changed, and the root of its block sums is intact.
    /// Returns the current epoch.
    #[cold]
    #[inline(never)]
    fn recheck_after_change_of_metadata(&self) -> Epoch {
        let Some(file) = self.watched_file().filter(|_| !verification::has_fixed_copies()) else { return self.epoch() };
        for _ in 0..BEGIN_ATTEMPTS_MAX {
            let stamp = file.stamp_after_change_of_metadata().ok().flatten();
            let Some(stamp) = stamp.filter(|stamp| !file.is_root_bad(stamp)) else { break };
            let mut copies = file.lock_copies();
            if self.epoch().is_distrust()
                && let Ok(detects_changes) = self.verify_root(file, &mut copies, &stamp)
            {
                self.begin_trusted_epoch(file, &mut copies, &stamp, detects_changes);
            }
            if !self.epoch().is_distrust() {
                break;
            }
        }
        self.epoch()
    }

    /// Verifies the root of the block sums. Returns whether every change of the file from now on is detected. If not,
    /// copies the root before it is verified. No epoch may be trusted meanwhile.
    fn verify_root(
        &self,
        file: &WatchedFile,
        copies: &mut LockedCopies<'_>,
        stamp: &Stamp,
    ) -> Result<bool, FormatError> {
        copies.restore();
        let detects_changes = file.detects_changes(stamp);
        let is_read = detects_changes || file.copier().copy(copies, self.block_data().root.as_bytes());
        // If the system refuses the copy, the root counts as damaged until changes are detected again.
        let root = if is_read { check::root(self) } else { Err(check::damaged_root(self)) };
        if root.is_err() {
            file.note_bad_root(stamp);
        }
        root.map(|()| detects_changes)
    }

    fn begin_trusted_epoch(
        &self,
        file: &WatchedFile,
        copies: &mut LockedCopies<'_>,
        stamp: &Stamp,
        detects_changes: bool,
    ) {
        file.trust(stamp, detects_changes);
        copies.begin((!detects_changes).then(|| self.epoch().next(true)));
        self.blocks.trust_again(!detects_changes);
    }

    /// Begins another attempt at a rejected batch, like [`Store::begin_batch`]. If lookups copy pages, no thread copies
    /// more pages until the second result is dropped. A lookup that needs another copy is then interrupted, as by the
    /// [`VerificationLimit`](verification::VerificationLimit); any other lookup is correct.
    pub(crate) fn begin_batch_again(&self) -> (Epoch, Option<FixedCopies<'_>>) {
        let begun = self.begin_batch();
        let file = self.watched_file().filter(|_| begun.is_copying() && !verification::has_fixed_copies());
        let fixed = file.map(|file| FixedCopies::new(file.lock_copies()));
        // If the epoch has ended meanwhile, the batch is rejected, and not answered with errors.
        let now = self.epoch();
        (if now.is_distrust() { begun } else { now }, fixed)
    }

    /// Begins a batch that is about the whole file, of which nothing is copied. Waits until every change of the file is
    /// detected. Returns `None` if its names or permissions change too often, or if the file is not trusted.
    pub(crate) fn begin_batch_of_whole_file(&self) -> Option<Epoch> {
        use super::settling::{SETTLE, SETTLE_COARSE};

        let nap = SETTLE / 10;
        let mut waited = std::time::Duration::ZERO;
        loop {
            let epoch = self.begin_batch();
            if !epoch.is_copying() || waited > SETTLE_COARSE + SETTLE {
                return Some(epoch).filter(|epoch| !epoch.is_copying() && !epoch.is_distrust());
            }
            std::thread::sleep(nap);
            waited += nap;
            // Ends the epoch if changes are detected now.
            self.is_unchanged_since(epoch);
        }
    }

    /// Returns whether a file whose change time is not settled has no other change, so that a batch that read only
    /// copies is correct. Returns `false` if the change time is settled now, so that lookups need no more copies.
    #[cold]
    fn is_right_in_copies(&self, epoch: Epoch, file: &WatchedFile) -> bool {
        epoch.is_copying()
            && file.stamp().is_ok_and(|stamp| file.has_trusted_content(&stamp) && !file.detects_changes(&stamp))
    }

    /// Returns whether the lookups since the beginning of an epoch are correct: the file was not written to or
    /// truncated meanwhile, its lease was not lost, and all its pages could be read. While [`WatchedFile::is_leased`]
    /// returns `true`, this check makes no system call. After this function has returned `false`, every lookup fails
    /// with [`LookupError::Damaged`](super::LookupError) until [`Store::look_again`] succeeds, or, if only the file's
    /// names or permissions have changed, until the next call of [`Store::begin_batch`].
    ///
    /// In the first moments after the file was created or renamed, lookups copy the pages that they need, and the
    /// result is `false`, too. Repeat the lookups then.
    ///
    /// Bytes borrowed from a mapping can change at any time: copy them before this call.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// # bake::bake_csv("7,seven\n".as_bytes(), &path, &Options::default())?;
    /// use zero_kv::Lookup;
    ///
    /// // SAFETY: Every value is copied, and the copy is used only if the file is unchanged after it.
    /// let store = unsafe { zero_kv::Store::map(&path)? };
    /// let (epoch, value) = loop {
    ///     let epoch = store.begin_batch();
    ///     let value = store.get(7)?.map(<[u8]>::to_vec);
    ///     if store.is_unchanged_since(epoch) {
    ///         break (epoch, value);
    ///     }
    /// };
    /// assert_eq!(value.as_deref(), Some(&b"seven"[..]));
    ///
    /// // Somebody writes into the file.
    /// let file = std::fs::File::options().write(true).open(&path)?;
    /// # file.set_modified(std::time::UNIX_EPOCH)?;
    /// std::os::unix::fs::FileExt::write_all_at(&file, b"???", 300)?;
    /// assert!(!store.is_unchanged_since(epoch));
    /// assert!(store.get(7).is_err());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn is_unchanged_since(&self, epoch: Epoch) -> bool {
        self.watched_file().is_none_or(|file| {
            self.blocks.accept(epoch, || file.is_unchanged() || self.is_right_in_copies(epoch, file))
        })
    }

    /// Returns the mapped file, whose changes this process detects. Returns `None` if nobody can change the bytes that
    /// lookups read.
    #[inline]
    pub fn watched_file(&self) -> Option<&WatchedFile> {
        self.map.watched()
    }

    /// Opens the file read-only. The result can be passed to other processes, which can map it and read the table's
    /// bytes. Returns `None` if the bytes are a copy in this process's memory.
    ///
    /// # Errors
    /// The system's error if the file cannot be opened.
    pub fn share(&self) -> io::Result<Option<File>> {
        self.map.file().map(reopened).transpose()
    }

    /// Returns whether the file is unchanged, or was checked after its last change. If this function returns `false`,
    /// every lookup fails.
    pub fn is_trusted(&self) -> bool {
        let is_unchanged = self.is_unchanged_since(self.begin_batch());
        !(if is_unchanged { self.epoch() } else { self.begin_batch() }).is_distrust()
    }

    /// Rechecks a file that has changed or whose lease was lost: verifies the root of the block sums, which leads to
    /// the checksum of every block. If the root is intact, trusts the file again. Lookups then verify each block again
    /// on first access. If this process called [`take_leases`](super::take_leases), this function first tries to take a
    /// lease on the file.
    ///
    /// Only one thread may call this function at a time. Without a lease, the result is [`Mistrust::Changing`] until 50
    /// ms after the last write to the file, or 2.05 s if the file system may store times with a resolution of seconds.
    ///
    /// # Errors
    /// [`Mistrust`], which gives the reason. Every lookup then still fails.
    pub fn look_again(&self) -> Result<(), Mistrust> {
        self.look_again_at(&Pace::default())
    }

    /// Like [`Store::look_again`], but `pace` can cancel the check.
    pub(crate) fn look_again_at(&self, pace: &Pace) -> Result<(), Mistrust> {
        if !self.epoch().is_distrust() {
            return Ok(());
        }
        // The lease is taken first, so that nobody changes the file during the check. No batch can mistake this lease
        // for the lost one, because no byte is trusted in this epoch.
        let Some(file) = self.watched_file() else { return Ok(()) };
        file.retake_lease().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Mistrust::Changing,
            _ => Mistrust::Io(error),
        })?;
        let stamp = file.settled_stamp()?.ok_or(Mistrust::Changing)?;
        let mut copies = file.lock_copies();
        if !self.epoch().is_distrust() {
            return Ok(());
        }
        let detects_changes = self.verify_root(file, &mut copies, &stamp)?;
        if !pace.goes_on() {
            return Err(Mistrust::Canceled);
        }
        // Without a lease, only the stamp reveals a write during the check. If the change time has changed, the next
        // batch rechecks the file.
        if !file.is_lease_held_or_unused() || !file.stamp()?.has_content_of(&stamp) {
            return Err(Mistrust::Changing);
        }
        self.begin_trusted_epoch(file, &mut copies, &stamp, detects_changes);
        Ok(())
    }

    /// Ends an epoch, unless it has already ended. From then on, every lookup fails.
    pub(crate) fn distrust(&self, epoch: Epoch) {
        self.blocks.distrust(epoch);
    }

    /// Returns whether nobody can change the bytes that lookups read. Such bytes can be passed to system calls without
    /// a copy.
    #[inline]
    pub fn is_private(&self) -> bool {
        self.watched_file().is_none()
    }

    /// Returns the number of the file's blocks, and the number of verified blocks.
    pub fn block_counts(&self) -> (usize, usize) {
        (self.blocks.tags().len(), self.blocks.verified_count())
    }

    /// Verifies the block with the number `block`, counted from 0, unless it is already verified. The blocks of the
    /// records come first. Returns whether the block is intact, or `None` if the file has no such block. While lookups
    /// trust only copies of pages, the result is not recorded, and nothing is copied.
    pub fn verify_block(&self, block: usize) -> Option<bool> {
        let is_block = block < self.blocks.tags().len();
        is_block.then(|| self.blocks.verify_block(self.epoch(), &self.block_data(), block))
    }

    /// Returns the blocks that were found damaged since the last call, as block numbers counted from 0. Between two
    /// changes of the file, each damaged block is returned once, and at most 64 damaged blocks are recorded.
    pub fn take_damaged_blocks(&self) -> Vec<usize> {
        self.blocks.take_damaged()
    }

    /// Returns the number of blocks that were found damaged since the file was opened or last changed, at most 64.
    pub fn damaged_block_count(&self) -> usize {
        self.blocks.damaged_count()
    }

    /// Returns how many bytes of the file are resident in memory, according to the system, or 0 if the system does not
    /// report this number.
    pub fn resident_len_bytes(&self) -> u64 {
        self.map.resident_len_bytes().unwrap_or(0)
    }

    /// Verifies a range of the records, unless it is already verified. Returns whether the range is intact; an empty
    /// range is intact.
    #[inline(always)]
    pub(crate) fn are_intact(&self, range: Range<usize>) -> bool {
        let epoch = self.epoch();
        self.blocks.are_verified(epoch, range.start, range.end)
            || range.is_empty()
            || self.blocks.verify_range(epoch, &self.lookup_data(), range.start, range.end)
    }

    /// Begins a new epoch, in which every block is unverified.
    #[cfg(all(test, feature = "bake", feature = "server"))]
    pub(crate) fn forget_verified_blocks(&self) {
        assert!(self.blocks.distrust(self.epoch()) && self.blocks.trust_again(false));
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;
    use crate::Lookup;
    use crate::bake::{Keys, Options, bake_csv};
    use crate::store::{LookupError, MappedStore};

    const ROWS: u64 = 2000;

    fn value(key: u64) -> Vec<u8> {
        format!("value {key} ").repeat(1 + key as usize % 40).into_bytes()
    }

    /// A mapped table, whose file has no lease, because this process has it open for writing.
    struct Scene {
        _folder: tempfile::TempDir,
        db: PathBuf,
        file: File,
        table: MappedStore,
    }

    impl Scene {
        fn new(csv: &str) -> Scene {
            let folder = tempfile::tempdir().unwrap();
            let db = folder.path().join("storage.db");
            bake_csv(csv.as_bytes(), &db, &Options { keys: Keys::U64, ..Options::default() }).unwrap();
            let file = File::options().read(true).write(true).open(&db).unwrap();
            let table = MappedStore::open(&db).unwrap();
            // The bake has just renamed the file. Until that is settled, lookups copy pages, and a test of what is
            // detected would read the copies.
            assert!(table.has_unchanged_file());
            Scene { _folder: folder, db, file, table }
        }

        /// Creates a table with [`ROWS`] rows, of which every block is verified.
        fn verified() -> Scene {
            let text = |key| String::from_utf8(value(key)).unwrap();
            let scene = Scene::new(&(0..ROWS).map(|key| format!("{key},{}\n", text(key))).collect::<String>());
            (0..ROWS).for_each(|key| assert_eq!(scene.table.get(key), Ok(Some(value(key)))));
            scene
        }

        /// Changes the change time of the file, and no byte.
        fn change_names(&self) {
            fs::hard_link(&self.db, self.db.with_extension("link")).unwrap();
            fs::remove_file(self.db.with_extension("link")).unwrap();
        }

        /// Overwrites bytes, and restores the modification time.
        fn overwrite(&self, bytes: &[u8], at: usize) {
            let modified = self.file.metadata().unwrap().modified().unwrap();
            self.file.write_all_at(bytes, at as u64).unwrap();
            self.file.set_modified(modified).unwrap();
        }
    }

    #[test]
    fn lookups_after_a_change_of_names_do_bounded_work() {
        const LOOKUPS: u64 = 50;
        // The root, and for each of two keys, the blocks of its pilot, place, and record (two if it spans a boundary),
        // and the block of their checksums.
        const BLOCKS_MAX: u64 = 2 * 5;
        let scene = Scene::verified();
        let table = &scene.table;
        for round in 0..200 {
            let before = table.unverified().epoch();
            scene.change_names();
            for lookup in 0..LOOKUPS {
                let key = (round * 7 + lookup % 2) % ROWS;
                assert_eq!(table.get(key), Ok(Some(value(key))), "round {round}, key {key}");
            }
            // One change ends at most the epoch before it, begins a copying epoch, ends it 50 ms later, and begins
            // another epoch. Each copied block counts once.
            let work = table.unverified().epoch().counted_since(before);
            assert!(work <= 4 + BLOCKS_MAX, "round {round}: {LOOKUPS} lookups did {work} rechecks and copies");
        }
        for key in 0..ROWS {
            assert_eq!(table.get(key), Ok(Some(value(key))));
            assert_eq!(table.get(key + ROWS), Ok(None));
        }
        let rows: Vec<_> = table.iter().map(|row| row.unwrap().1).collect();
        assert!(rows.iter().zip(0..).all(|(row, key)| *row == value(key)) && rows.len() as u64 == ROWS);
    }

    #[test]
    fn what_is_overwritten_before_the_times_are_restored_is_an_error_while_names_change() {
        let scene = Scene::verified();
        let table = &scene.table;
        let (damaged, wrong) = (value(77), vec![b'#'; value(77).len()]);
        let at = fs::read(&scene.db).unwrap().windows(damaged.len()).position(|window| window == damaged).unwrap();
        scene.change_names();
        assert_eq!(table.get(78), Ok(Some(value(78))));
        scene.overwrite(&wrong, at);
        for key in (0..ROWS).chain(0..ROWS) {
            scene.change_names();
            match table.get(key) {
                Ok(found) => assert_eq!(found, Some(value(key))),
                Err(error) => assert_eq!(error, LookupError::Damaged, "key {key}"),
            }
        }
        assert_eq!(table.get(1900), Ok(Some(value(1900))), "an intact block");
    }

    #[test]
    fn a_long_value_is_found_while_names_change() {
        let long = "x".repeat(3 << 20);
        let scene = Scene::new(&format!("1,{long}\n2,two\n"));
        for _ in 0..20 {
            scene.change_names();
            assert_eq!(scene.table.get(1).unwrap().map(|value| value.len()), Some(long.len()));
            assert_eq!(scene.table.get(2), Ok(Some(b"two".to_vec())));
        }
    }

    #[test]
    fn a_damaged_root_is_read_once() {
        let scene = Scene::verified();
        let store = scene.table.unverified();
        let root_at = store.block_data().root.as_ptr().addr() - store.map.bytes().as_ptr().addr();
        let intact = store.map.bytes()[root_at];
        scene.overwrite(&[!intact], root_at);
        let watched = store.watched_file().unwrap();
        loop {
            let before = watched.stamp().unwrap();
            assert_eq!(scene.table.get(7), Err(LookupError::Damaged));
            if watched.detects_changes(&before) {
                break;
            }
        }
        // From now on, the root is read with a stamp that does not change by itself.
        assert_eq!(scene.table.get(7), Err(LookupError::Damaged));
        assert!(watched.is_root_bad(&watched.stamp().unwrap()));
        // The byte is restored. The file is trusted again, at the latest when its change time is settled.
        scene.overwrite(&[intact], root_at);
        while scene.table.get(7).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(scene.table.get(7), Ok(Some(value(7))));
    }
}
