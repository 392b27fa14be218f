//! Opens a file and verifies only its header at first.
//!
//! In: a path. Out: the header, a list of the damaged sections, and, if the whole file is intact, a [`MappedStore`].
//! Does not look keys up.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::blocks::Blocks;
use super::map::Map;
use super::memory::{self, Memory, OpenOptions, Verify};
use super::{MappedStore, PREFETCH_MAX_BYTES, Pace, Store, StoreError, check, survive_bus_errors};
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, section_sum_of};
use crate::format::header::{Layout, SectionKind};
use crate::format::key::KeyKind;

/// A mapped file of which only the header was checked. An `Unchecked` is for programs that describe a damaged file, or
/// that need only the header. [`Unchecked::open`] and [`Unchecked::check`] together do what [`MappedStore::open`] does.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
/// use zero_kv::format::header::SectionKind;
/// use zero_kv::store::Unchecked;
///
/// let file = Unchecked::open(&path)?;
/// assert_eq!(file.layout().dimensions.row_count, 2);
/// assert_eq!(file.damaged_sections(), []);
/// assert_eq!(file.check()?.get(7)?.as_deref(), Some(&b"seven"[..]));
///
/// // Damage one byte of the first value.
/// let mut bytes = std::fs::read(&path)?;
/// let at = bytes.windows(5).position(|window| window == b"seven").expect("the value");
/// bytes[at] = b'S';
/// std::fs::write(&path, bytes)?;
///
/// let file = Unchecked::open(&path)?;
/// assert_eq!(file.damaged_sections(), [SectionKind::Records]);
/// assert!(file.check().is_err());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Unchecked {
    /// The table. The fields that are derived from the records and the fences are still empty.
    store: Store,
    path: PathBuf,
}

impl Unchecked {
    /// Maps a baked file and checks its header: the digest, the file's length, and the positions of the sections. Like
    /// [`MappedStore::open`], this function also calls [`survive_bus_errors`].
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be opened or mapped, [`StoreError::Format`] if the header is damaged or of
    /// another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Unchecked, StoreError> {
        let path = path.as_ref();
        let file = super::open_file(path)?;
        survive_bus_errors().map_err(|error| StoreError::Io { path: path.to_path_buf(), error })?;
        Unchecked::new(memory::load(&file, path, Memory::Map, &OpenOptions::default(), &mut |_| ())?, path)
    }

    pub(super) fn new(map: Map, path: &Path) -> Result<Unchecked, StoreError> {
        let path = path.to_path_buf();
        let layout = match Layout::decode(map.bytes()) {
            Ok(layout) => layout,
            Err(error) => return Err(StoreError::Format { path, error }),
        };
        let mean_len_bytes = layout.records.len_bytes / layout.dimensions.row_count.max(1);
        let typical_len_bytes = (mean_len_bytes as usize).min(PREFETCH_MAX_BYTES);
        let blocks = match Blocks::new((layout.records.len_bytes as usize).div_ceil(BLOCK_LEN_BYTES)) {
            Ok(blocks) => blocks,
            Err(error) => return Err(StoreError::Io { path, error }),
        };
        let (common, directory) = (Box::default(), OnceLock::new());
        Ok(Unchecked { store: Store { map, layout, blocks, typical_len_bytes, common, directory }, path })
    }

    /// Returns the header and the sections.
    pub fn layout(&self) -> &Layout {
        &self.store.layout
    }

    /// Returns the sections that do not match their checksum in the header, in the order of the file. Reads the whole
    /// file.
    pub fn damaged_sections(&self) -> Vec<SectionKind> {
        let sections = self.store.layout.sections().into_iter();
        let damaged = sections.filter(|(_, place)| section_sum_of(self.store.section(place)) != place.checksum);
        damaged.map(|(section, _)| section).collect()
    }

    /// Verifies everything except the header, and returns the table.
    ///
    /// # Errors
    /// [`StoreError::Format`], which names the section, block, or row that is wrong.
    pub fn check(self) -> Result<MappedStore, StoreError> {
        let pace = Pace::default();
        Ok(self.settle(&pace)?.check_as(Verify::Full, &pace)?.into())
    }

    /// Returns the table without verifying its index, as direct mode does with a file that a server transferred. Only
    /// the fuzz targets use this function.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the first or last record cannot be read.
    #[doc(hidden)]
    pub fn check_nothing(self) -> Result<MappedStore, StoreError> {
        Ok(self.trust_index()?.into())
    }

    /// Waits until every later write to a mapped file can be detected. Lookups in the file rely on this.
    pub(super) fn settle(self, pace: &Pace) -> Result<Unchecked, StoreError> {
        match self.store.watched_file().map_or(Ok(()), |file| file.settle(pace)) {
            Ok(()) => Ok(self),
            Err(error) => Err(StoreError::Io { path: self.path, error }),
        }
    }

    /// Verifies a file whose header is already verified. [`Verify::Full`] verifies everything. [`Verify::Touch`]
    /// verifies only the index and the first and last record.
    pub(super) fn check_as(self, verify: Verify, pace: &Pace) -> Result<Store, StoreError> {
        let plan = check::Plan { pace: pace.clone(), ..check::Plan::default() };
        self.check_with(pace, |store| {
            match verify {
                Verify::Full => check::all(store, &plan, &mut |_| ())?,
                Verify::Touch => check::index_and_ends(store, pace)?,
            }
            store.build_directory(pace);
            Ok(())
        })
    }

    /// Verifies a private copy. Even with [`Verify::Touch`], every byte is verified against its checksum. If the file
    /// changed while it was copied, this function therefore rejects the copy.
    pub(super) fn check_copy_as(self, verify: Verify, pace: &Pace) -> Result<Store, StoreError> {
        if verify == Verify::Full {
            return self.check_as(verify, pace);
        }
        self.check_with(pace, |store| {
            check::index_and_ends(store, pace)?;
            check::records(store, pace)?;
            store.build_directory(pace);
            Ok(())
        })
    }

    /// Returns a store without verifying the index. Lookups verify records on first access. Reads almost nothing of the
    /// file.
    pub(super) fn trust_index(self) -> Result<Store, StoreError> {
        match self.store.key_kind() {
            KeyKind::U64 => Ok(self.store),
            KeyKind::Bytes => self.check_with(&Pace::default(), check::ends),
        }
    }

    /// Verifies everything except the header, as a plan requires. Does not build the search tree over the fences; the
    /// first ordered lookup builds it.
    #[cfg(feature = "bake")]
    pub(super) fn check_by(self, plan: &check::Plan, progress: &mut dyn FnMut(u64)) -> Result<Store, StoreError> {
        self.check_with(&plan.pace, |store| check::all(store, plan, progress))
    }

    fn check_with(
        self,
        pace: &Pace,
        check: impl FnOnce(&mut Store) -> Result<(), FormatError>,
    ) -> Result<Store, StoreError> {
        let Unchecked { mut store, path } = self;
        match check(&mut store) {
            _ if pace.is_canceled() => Err(StoreError::Canceled { path }),
            Ok(()) => Ok(store),
            Err(error) => Err(StoreError::Format { path, error }),
        }
    }
}
