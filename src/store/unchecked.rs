//! Opens a file and verifies only its header at first.
//!
//! In: a path. Out: the header, a list of the damaged sections, and, if the whole file is intact, a [`MappedStore`].
//! Does not look keys up.

#[cfg(feature = "object-store")]
use std::fs::File;
#[cfg(feature = "object-store")]
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::blocks::{BlockNumbers, Blocks};
use super::map::Map;
use super::memory::{self, Memory, OpenOptions, Verify};
#[cfg(feature = "server")]
use super::recent_pages::RecentPages;
use super::{MappedStore, PREFETCH_MAX_BYTES, Pace, Store, StoreError, check, survive_bus_errors};
use crate::format::FormatError;
#[cfg(feature = "object-store")]
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::checksum::section_sum_of;
use crate::format::fence::TreeLevels;
use crate::format::header::{Layout, SectionKind};

/// A mapped file of which only the header was checked. An `Unchecked` is for programs that describe a damaged file, or
/// that need only the header. [`Unchecked::open`] and [`Unchecked::check`] together do what [`MappedStore::open`] does.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n9,nine\n".as_bytes(), &path, &Options::default())?;
/// use zero_kv::Lookup;
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
    /// The table. Its fields that are computed from the fences and records are still empty.
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
        survive_bus_errors().map_err(StoreError::io(path))?;
        Unchecked::new(memory::load(&file, path, Memory::Map, &OpenOptions::default(), &mut |_| ())?, path)
    }

    pub(super) fn new(map: Map, path: &Path) -> Result<Unchecked, StoreError> {
        let layout = Layout::decode(map.bytes()).map_err(StoreError::format(path))?;
        let mean_len_bytes = layout.records.len_bytes / layout.dimensions.row_count.max(1);
        let typical_len_bytes = (mean_len_bytes as usize).min(PREFETCH_MAX_BYTES);
        let numbers = BlockNumbers {
            fences: layout.blocks(SectionKind::Fences).start..layout.blocks(SectionKind::FenceTree).end,
            pilots: layout.blocks(SectionKind::Pilots),
            places: layout.blocks(SectionKind::Places),
            sums: layout.blocks(SectionKind::BlockSums),
        };
        let blocks = Blocks::new(numbers).map_err(StoreError::io(path))?;
        let (common, tree_levels) = (Box::default(), TreeLevels::new(layout.dimensions.row_count));
        let store = Store {
            map,
            layout,
            blocks,
            typical_len_bytes,
            may_be_cold: false,
            assumes_cold: false,
            common,
            tree_levels,
            #[cfg(feature = "server")]
            recent_pages: RecentPages::default(),
            schema: None,
        };
        Ok(Unchecked { store, path: path.to_path_buf() })
    }

    /// Like [`Unchecked::open`], for a file that is already open. Error messages name it by `path`.
    #[cfg(feature = "object-store")]
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<Unchecked, StoreError> {
        Unchecked::new(memory::load(file, path, Memory::Map, &OpenOptions::default(), &mut |_| ())?, path)
    }

    /// Returns the digest in the header: see [`Store::digest`].
    #[cfg(feature = "object-store")]
    pub(crate) fn digest(&self) -> u128 {
        self.store.digest()
    }

    /// Reads the whole file, and returns the ranges of the blocks that do not match their checksums. If a block of
    /// checksums is damaged, all blocks are returned whose checksums it has.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the checksum of the checksums is wrong, [`StoreError::Canceled`].
    #[cfg(feature = "object-store")]
    pub(crate) fn damaged_ranges(&self, pace: &Pace) -> Result<Vec<Range<u64>>, StoreError> {
        const PACED_BLOCKS: usize = 256;
        check::root(&self.store).map_err(StoreError::format(&self.path))?;
        let mut ranges = Vec::new();
        for (kind, section) in self.store.layout.sections() {
            for (at, block) in self.store.layout.blocks(kind).enumerate() {
                if at.is_multiple_of(PACED_BLOCKS) && !pace.goes_on() {
                    return Err(StoreError::Canceled { path: self.path.clone() });
                }
                if self.store.verify_block(block) == Some(false) {
                    let start = section.offset_bytes + (at * BLOCK_LEN_BYTES) as u64;
                    let end = (section.offset_bytes + section.len_bytes).min(start + BLOCK_LEN_BYTES as u64);
                    ranges.push(start..end);
                }
            }
        }
        Ok(ranges)
    }

    /// Returns the layout that the header describes.
    pub fn layout(&self) -> &Layout {
        &self.store.layout
    }

    /// Reads the whole file, and returns the sections that do not match their checksums in the header. The sections are
    /// in the order in which the file stores them.
    pub fn damaged_sections(&self) -> Vec<SectionKind> {
        let sections = self.store.layout.sections().into_iter();
        let damaged = sections.filter(|(section, place)| {
            let bytes = self.store.section(place);
            match section {
                SectionKind::BlockSums => check::block_sums(&self.store, &check::Plan::default()).is_err(),
                _ => section_sum_of(bytes) != place.checksum,
            }
        });
        damaged.map(|(section, _)| section).collect()
    }

    /// Verifies everything except the header, and returns the table.
    ///
    /// # Errors
    /// [`StoreError::Format`], which names the section, block, or row that is wrong.
    pub fn check(self) -> Result<MappedStore, StoreError> {
        let pace = Pace::default();
        Ok(self.settle(&pace)?.check_as(Verify::Full, true, &pace)?.into())
    }

    /// Waits until every later write to the mapped file can be detected. Lookups rely on this detection.
    pub(super) fn settle(self, pace: &Pace) -> Result<Unchecked, StoreError> {
        self.store.watched_file().map_or(Ok(()), |file| file.settle(pace)).map_err(StoreError::io(&self.path))?;
        Ok(self)
    }

    /// Verifies a file whose header is already verified. [`Verify::Full`] verifies everything. [`Verify::Touch`]
    /// verifies the root of the block sums, the schema, the first and the last record, and, if `every_block` is set, every block.
    pub(super) fn check_as(self, verify: Verify, every_block: bool, pace: &Pace) -> Result<Store, StoreError> {
        let plan = check::Plan { pace: pace.clone(), ..check::Plan::default() };
        self.check_with(pace, |store| {
            match verify {
                Verify::Full => check::all(store, &plan, &mut |_| ())?,
                Verify::Touch => {
                    check::root(store)?;
                    check::schema(store)?;
                    if every_block {
                        check::index(store, pace)?;
                        check::records(store, pace)?;
                    }
                    check::ends(store)?;
                }
            }
            Ok(())
        })
    }

    /// Verifies everything except the header, as a plan requires.
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
        // Even a check of a few blocks can be canceled.
        let checked = if pace.goes_on() { check(&mut store) } else { Ok(()) };
        if pace.is_canceled() {
            return Err(StoreError::Canceled { path });
        }
        checked.map_err(StoreError::format(&path))?;
        Ok(store)
    }
}
