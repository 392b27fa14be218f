//! Opens a file as a copy, as a copy in sealed memory, or as a mapping.

use std::fs::File;
use std::path::Path;

#[cfg(feature = "bake")]
use super::check;
use super::memory::{self, Memory, OpenOptions, Step, Verify};
use super::regular::open_regular;
use super::unchecked::Unchecked;
use super::{Store, StoreError};
#[cfg(feature = "bake")]
use crate::format::header::Layout;
use crate::progress::WithProgress;

impl Store {
    /// Opens a baked file in memory that nobody can change. Each block is verified when a lookup first reads it: a
    /// lookup never returns a wrong value, and returns [`LookupError::Damaged`](super::LookupError::Damaged) if it needs
    /// a damaged block. To verify the whole file now, use [`Store::open_with`] and
    /// [`Verify::Full`].
    ///
    /// The memory is a copy of the file, unless the file is a sealed memory file. A sealed memory file cannot change,
    /// so it is mapped. To use a large table without a copy, see [`MappedStore`](super::MappedStore).
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be opened, [`StoreError::Memory`] if there is not enough memory for a
    /// copy, [`StoreError::Format`] if the file's header is damaged or it is not a baked file of this version.
    ///
    /// # Example
    /// ```
    /// let error = zero_kv::Store::open("no/such/file.db").unwrap_err();
    /// assert!(error.to_string().starts_with("no/such/file.db: "));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::open_with(path, &OpenOptions::default())
    }

    /// Opens a baked file as [`Store::open`] does, with options. If the file is copied, the copy is verified, not the
    /// file.
    ///
    /// # Errors
    /// The errors of [`Store::open`], [`StoreError::Format`] if a verified block is damaged, [`StoreError::Memory`] if the system rejects a request in the options, such as to
    /// lock memory, and [`StoreError::Canceled`] if `options.pace` cancels the work. A copy that is not entirely in
    /// huge pages is not an error: see [`Step::lacks_huge_pages`].
    pub fn open_with<'a>(
        path: impl AsRef<Path>,
        options: impl Into<WithProgress<'a, OpenOptions, Step>>,
    ) -> Result<Store, StoreError> {
        let path = path.as_ref();
        options.into().run(|options, done| {
            let map = memory::load_immutable(&open_file(path)?, path, options, done)?;
            Unchecked::new(map, path)?.check_as(options.verify, false, &options.pace)
        })
    }

    /// Copies a baked file into sealed memory, which [`Store::share`] can transfer to other processes.
    ///
    /// # Errors
    /// The errors of [`Store::open_with`].
    pub fn open_sealed<'a>(
        path: impl AsRef<Path>,
        options: impl Into<WithProgress<'a, OpenOptions, Step>>,
    ) -> Result<Store, StoreError> {
        let path = path.as_ref();
        options.into().run(|options, done| Store::from_file(&open_file(path)?, path, Memory::Sealed, options, done))
    }

    /// Maps a baked file. Blocks are verified as [`Store::open`] does it. Lookups borrow values from the file's pages,
    /// which all processes share.
    ///
    /// # Safety
    /// As long as the `Store` lives, no process, including this one, may write to the file or truncate it. The system
    /// does not enforce this rule. A write changes bytes while they are borrowed, which is undefined behavior. After a
    /// truncation, reading one of the removed pages ends the process with `SIGBUS` unless
    /// [`survive_bus_errors`](super::survive_bus_errors) was called. Deleting the file, or renaming another file over
    /// it, is allowed: `baker` replaces a table by rename.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be opened or mapped, [`StoreError::Format`] if the file's header is damaged
    /// or it is not a baked file of this version.
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
    /// // SAFETY: Only `baker` writes files here, and it replaces them by rename.
    /// let store = unsafe { zero_kv::Store::map(&path)? };
    /// assert_eq!(store.get(7)?, Some(&b"seven"[..]));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        // SAFETY: `map_with` has the safety requirements of this function, which the caller meets.
        unsafe { Store::map_with(path, &OpenOptions::default()) }
    }

    /// Maps a baked file as [`Store::map`] does, with options.
    ///
    /// # Safety
    /// The caller must meet the safety requirements of [`Store::map`].
    ///
    /// # Errors
    /// The errors of [`Store::map`], [`StoreError::Memory`] if the system cannot do what the options request, such as
    /// to lock memory, and [`StoreError::Canceled`] if `options.pace` cancels the work.
    pub unsafe fn map_with<'a>(
        path: impl AsRef<Path>,
        options: impl Into<WithProgress<'a, OpenOptions, Step>>,
    ) -> Result<Store, StoreError> {
        let path = path.as_ref();
        options.into().run(|options, done| Store::from_file(&open_file(path)?, path, Memory::Map, options, done))
    }

    /// Creates a `Store` from an open file. Error messages name the file by `path`. With [`Memory::Map`], the caller
    /// must not lend the store's bytes to safe code. The caller may copy bytes, and must check after the copy that the
    /// file has not changed before it uses the copy.
    pub(crate) fn from_file(
        file: &File,
        path: &Path,
        memory: Memory,
        options: &OpenOptions,
        done: &mut dyn FnMut(Step),
    ) -> Result<Store, StoreError> {
        let map = memory::load(file, path, memory, options, done)?;
        if options.verify == Verify::Touch {
            // Opening the file reads a few pages. The system must not read around each of them.
            map.read_randomly(0..map.bytes().len(), true);
        }
        let unchecked = Unchecked::new(map, path)?;
        // A process may have written to the file while it was copied, so every block of a copy is verified.
        let checked = unchecked.settle(&options.pace)?.check_as(options.verify, memory != Memory::Map, &options.pace);
        checked.map(|store| store.adapted_to_memory(options.assume_cold))
    }

    /// Checks an open file as `plan` requires, and returns its header. Calls `progress` with the number of rows checked
    /// so far.
    #[cfg(feature = "bake")]
    pub(crate) fn check_file(
        file: &File,
        path: &Path,
        plan: &check::Plan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Layout, StoreError> {
        let map = memory::load(file, path, Memory::Map, &OpenOptions::default(), &mut |_| ())?;
        Ok(Unchecked::new(map, path)?.check_by(plan, progress)?.layout)
    }
}

/// Opens a regular file for reading.
pub(crate) fn open_file(path: &Path) -> Result<File, StoreError> {
    open_regular(path).map_err(StoreError::io(path))
}
