//! A baked file, opened, checked and ready to be asked.
//!
//! In: a path, then keys. Out: values, borrowed from the mapping. It knows no
//! socket and no runtime.

mod check;
mod compare;
mod map;
mod prefetch;
mod search;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zerocopy::FromBytes;

use crate::format::FormatError;
use crate::format::header::{Layout, Section};
use crate::format::index::{Leaf, Node};
#[cfg(feature = "server")]
use crate::format::record::Record;
use crate::format::record::{Locator, RECORD_HEADER_LEN_BYTES};
use map::Map;
use search::Index;

/// Why a file cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file's bytes are not what they must be.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        source: FormatError,
    },
}

/// An immutable table, mapped from a baked file.
///
/// It is `Send` and `Sync`: any number of threads look up in one `Store`.
/// Values are borrowed from the mapping and live as long as the `Store`.
///
/// # The file must not change
/// Put a new file in place by rename, as `baker` does; the `Store` goes on with
/// the old one. A process that truncates or overwrites the file that is mapped
/// can make a reader die of `SIGBUS` or read bytes that were not checked. No
/// lookup reads outside the mapping even then.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// use zero_kv::Store;
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("storage.db");
/// bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
///
/// let store = Store::open(&path)?;
/// assert_eq!(store.len(), 2);
/// assert_eq!(store.get(7), Some(&b"seven"[..]));
/// assert_eq!(store.get(8), None);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    map: Map,
    layout: Layout,
}

impl Store {
    /// Opens a baked file and checks everything that lookups rely on: header,
    /// section table, and every row of the index, which it reads as a whole
    /// (17 bytes a row). Values are checked by [`Store::verify`].
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be opened or mapped,
    /// [`StoreError::Format`] if it is not an undamaged file of this version.
    ///
    /// # Example
    /// ```
    /// let error = zero_kv::Store::open("no/such/file.db").unwrap_err();
    /// assert!(error.to_string().starts_with("no/such/file.db: "));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let path = path.as_ref();
        let open = || match fs::metadata(path)?.is_file() {
            true => File::open(path),
            // Opening a pipe would wait for a writer.
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        };
        let file = open().map_err(|source| StoreError::Io { path: path.to_path_buf(), source })?;
        Store::of_file(&file, path)
    }

    /// Like [`Store::open`], for a file that is open; `path` is what errors call it.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<Store, StoreError> {
        let path = path.to_path_buf();
        let map = match Map::of(file) {
            Ok(map) => map,
            Err(source) => return Err(StoreError::Io { path, source }),
        };
        let layout = match Layout::decode(map.bytes()) {
            Ok(layout) => layout,
            Err(source) => return Err(StoreError::Format { path, source }),
        };
        let store = Store { path, map, layout };
        check::index(&store).map_err(|source| store.refuse(source))?;
        Ok(store)
    }

    /// Checks every record against its block's checksum, which reads the whole
    /// file.
    ///
    /// # Errors
    /// [`StoreError::Format`], naming the first block that is damaged.
    pub fn verify(&self) -> Result<(), StoreError> {
        check::records(self, 0..self.section(&self.layout.records).len()).map_err(|source| self.refuse(source))
    }

    /// The value of a key, or `None` if the key is not in the table.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&[u8]> {
        self.value(self.index().find(key))
    }

    /// Like [`Store::get`], but first checks the blocks that hold the value
    /// against their checksums: a microsecond or more for each.
    ///
    /// # Errors
    /// [`StoreError::Format`] if a block is damaged.
    pub fn get_verified(&self, key: u64) -> Result<Option<&[u8]>, StoreError> {
        let locator = self.index().find(key);
        if locator == Locator::MISSING {
            return Ok(None);
        }
        let value = self.value(locator);
        let checked = match value {
            Some(value) => {
                let start = locator.offset_bytes() as usize;
                check::records(self, start..start + RECORD_HEADER_LEN_BYTES + value.len())
            }
            // Opening has followed every locator: one that leads nowhere has changed since, or its record has.
            None => check::record_header(self, locator).and_then(|()| check::index(self)),
        };
        checked.map_err(|source| self.refuse(source))?;
        Ok(value)
    }

    /// Whether a key is in the table.
    #[inline]
    pub fn contains(&self, key: u64) -> bool {
        self.index().find(key) != Locator::MISSING
    }

    /// Looks up many keys and hands each answer on, in order, with the key's
    /// position in `keys`. Memory accesses of neighbouring keys overlap, so this
    /// is several times faster than as many calls of [`Store::get`].
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// # bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
    /// let store = zero_kv::Store::open(&path)?;
    /// let mut found = Vec::new();
    /// store.get_many(&[9, 8, 7], |_, value| found.push(value));
    /// assert_eq!(found, [Some(&b"nine"[..]), None, Some(&b"seven"[..])]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many<'s>(&'s self, keys: &[u64], mut answer: impl FnMut(usize, Option<&'s [u8]>)) {
        const BATCH_KEYS: usize = 64;
        let mut locators = [Locator::MISSING; BATCH_KEYS];
        for (batch, keys) in keys.chunks(BATCH_KEYS).enumerate() {
            self.find_many(keys, &mut locators);
            for (i, locator) in locators[..keys.len()].iter().enumerate() {
                answer(batch * BATCH_KEYS + i, self.value(*locator));
            }
        }
    }

    /// How many rows the table has.
    pub fn len(&self) -> usize {
        self.layout.shape.row_count
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file's length.
    pub fn file_len_bytes(&self) -> u64 {
        self.layout.file_len_bytes()
    }

    /// A number that tells this table from every other: two files with the same
    /// digest hold the same bytes.
    pub fn digest(&self) -> u128 {
        self.layout.digest()
    }

    /// The key and value of a row, counted from 0 in key order.
    pub fn row(&self, row: usize) -> Option<(u64, &[u8])> {
        let (key, locator) = self.index().row(row)?;
        Some((key, self.value(locator)?))
    }

    /// All rows in key order.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "bake")] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("storage.db");
    /// # bake::bake_csv("9,nine\n7,seven\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
    /// let store = zero_kv::Store::open(&path)?;
    /// let keys: Vec<u64> = store.iter().map(|(key, _)| key).collect();
    /// assert_eq!(keys, [7, 9]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &[u8])> {
        (0..self.len()).filter_map(|row| self.row(row))
    }

    /// The key of a row, counted from 0 in key order.
    #[inline]
    pub fn key(&self, row: usize) -> Option<u64> {
        self.index().row(row).map(|(key, _)| key)
    }

    /// Finds many keys at once, and starts to load the records that were found.
    ///
    /// `locators` takes one answer for each key, [`Locator::MISSING`] for a key
    /// that is not there.
    ///
    /// # Panics
    /// If `locators` is shorter than `keys`.
    pub(crate) fn find_many(&self, keys: &[u64], locators: &mut [Locator]) {
        self.index().find_many(keys, locators, self.section(&self.layout.records));
    }

    /// The value behind a locator of this index; `None` for [`Locator::MISSING`].
    #[inline]
    fn value(&self, locator: Locator) -> Option<&[u8]> {
        locator.value_in(self.section(&self.layout.records))
    }

    /// The record behind a locator of this index; `None` for
    /// [`Locator::MISSING`], and where the record's header is not that of its
    /// value.
    #[cfg(feature = "server")]
    #[inline]
    pub(crate) fn record(&self, locator: Locator) -> Option<Record<'_>> {
        locator.record_in(self.section(&self.layout.records))
    }

    #[inline]
    fn index(&self) -> Index<'_> {
        Index {
            shape: &self.layout.shape,
            directory: typed::<Node>(self.section(&self.layout.directory)),
            leaves: typed::<Leaf>(self.section(&self.layout.leaves)),
        }
    }

    #[inline]
    fn section(&self, section: &Section) -> &[u8] {
        // In bounds: Layout::decode has checked every section against the mapping's length.
        let start = section.offset_bytes as usize;
        &self.map.bytes()[start..start + section.len_bytes as usize]
    }

    fn refuse(&self, source: FormatError) -> StoreError {
        StoreError::Format { path: self.path.clone(), source }
    }
}

#[inline]
fn typed<T: FromBytes + zerocopy::Immutable + zerocopy::Unaligned + zerocopy::KnownLayout>(section: &[u8]) -> &[T] {
    // The lengths of sections are whole numbers of T: Layout::decode has checked them.
    <[T]>::ref_from_bytes(section).unwrap_or_default()
}
