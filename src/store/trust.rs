//! Decides whether the bytes of a file are trusted.
//!
//! A batch of lookups first verifies the blocks that it reads, and then copies bytes of these blocks. The batch is
//! correct if nobody changed the file until the end of the copy. [`Blocks`](super::blocks::Blocks) tracks verified
//! blocks, and [`WatchedFile`] detects changes.

use std::fs::File;
use std::io;
use std::ops::Range;

use thiserror::Error;

use super::blocks::Epoch;
use super::sealed::reopened;
use super::stamp::WatchedFile;
use super::{Pace, Store, check};
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
    /// root of the block sums and trusts the file again, so lookups verify each block again on first access. It waits
    /// until every further write will change the change time: up to a tick of the kernel's clock, at most 10 ms.
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
        if let Some(file) = self.watched_file()
            && let Ok(Some(stamp)) = file.stamp_after_change_of_metadata()
        {
            let _rechecking = file.rechecking();
            if self.epoch().is_distrust() && check::root(self).is_ok() {
                file.trust(&stamp);
                self.blocks.trust_again();
            }
        }
        self.epoch()
    }

    /// Returns whether the lookups since the beginning of an epoch are correct: the file was not written to or
    /// truncated meanwhile, its lease was not lost, and all its pages could be read. While [`WatchedFile::is_leased`]
    /// returns `true`, this check makes no system call. After this function has returned `false`, every lookup fails
    /// with [`LookupError::Damaged`](super::LookupError) until [`Store::look_again`] succeeds, or, if only the file's
    /// names or permissions have changed, until the next call of [`Store::begin_batch`].
    ///
    /// Bytes borrowed from a mapping can change at any time: copy them before this call.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// # bake::bake_csv("7,seven\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
    /// // SAFETY: Every value is copied, and the copy is used only if the file is unchanged after it.
    /// let store = unsafe { zero_kv::Store::map(&path)? };
    /// let epoch = store.begin_batch();
    /// let value = store.get(7)?.map(<[u8]>::to_vec);
    /// assert!(store.is_unchanged_since(epoch));
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
        self.watched_file().is_none_or(|file| self.blocks.accept(epoch, || file.is_unchanged()))
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

    /// Rechecks a file that has changed or whose lease was lost: verifies the root of the block sums, which leads to the
    /// checksum of every block. If the root is intact, trusts the file again. Lookups then verify each block again on
    /// first access. If this process called [`take_leases`](super::take_leases), this function first tries to take a
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

    /// Does what [`Store::look_again`] does, unless `pace` cancels the check.
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
        check::root(self)?;
        if !pace.goes_on() {
            return Err(Mistrust::Canceled);
        }
        // Without a lease, only the stamp reveals a write during the check.
        if !file.is_lease_held_or_unused() || file.stamp()? != stamp {
            return Err(Mistrust::Changing);
        }
        let _rechecking = file.rechecking();
        file.trust(&stamp);
        self.blocks.trust_again();
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
    /// records come first. Returns whether the block is intact, or `None` if the file has no such block.
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
            || self.blocks.verify_range(epoch, &self.block_data(), range.start, range.end)
    }

    /// Begins a new epoch, in which every block is unverified.
    #[cfg(test)]
    pub(crate) fn forget_verified_blocks(&self) {
        assert!(self.blocks.distrust(self.epoch()) && self.blocks.trust_again());
    }
}
