//! Opens a file as a copy, as a copy in sealed memory, or as a mapping.

use std::fs::File;
use std::io;
#[cfg(feature = "object-store")]
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::blocks::{BlockNumbers, Blocks};
#[cfg(feature = "server")]
use super::cold::RecentPages;
use super::groups;
use super::map::Map;
use super::memory::{self, Memory, OpenOptions, Step, Verify};
use super::{MappedStore, PREFETCH_MAX_BYTES, Pace, Store, StoreError, check, check_plan, survive_bus_errors};
use crate::format::FormatError;
#[cfg(feature = "object-store")]
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::checksum::section_sum_of;
use crate::format::fence::TreeLevels;
use crate::format::header::{Layout, SectionKind};
use crate::progress::WithProgress;

impl Store {
    /// Opens a baked file in memory that nobody can change. Each block is verified when a lookup first reads it: a
    /// lookup never returns a wrong value, and returns [`LookupError::Damaged`](super::LookupError::Damaged) if it
    /// needs a damaged block. To verify the whole file now, use [`Store::open_with`] and [`Verify::Full`].
    ///
    /// The memory is a copy of the file, unless the file is a sealed memory file. A sealed memory file cannot change,
    /// so it is mapped. To use a large table without a copy, see [`MappedStore`].
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
    /// The errors of [`Store::open`], [`StoreError::Format`] if a verified block is damaged, [`StoreError::Memory`] if
    /// the system rejects a request in the options, such as to lock memory, and [`StoreError::Canceled`] if
    /// `options.pace` cancels the work. A copy that is not entirely in huge pages is not an error: see
    /// [`Step::lacks_huge_pages`].
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
    /// [`survive_bus_errors`] was called. Deleting the file, or renaming another file over
    /// it, is allowed: `baker` replaces a table by rename.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file cannot be opened or mapped, [`StoreError::Format`] if the file's header is
    /// damaged or it is not a baked file of this version.
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
        plan: &check_plan::Plan,
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
        let (common, tree_levels) = (Box::default(), TreeLevels::new(layout.dimensions.head_count()));
        let form = layout.dimensions.record_form();
        let typical_group_len_bytes = groups::typical_len_bytes(&layout);
        let store = Store {
            map,
            layout,
            form,
            blocks,
            typical_len_bytes,
            typical_group_len_bytes,
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
                SectionKind::BlockSums => check::block_sums(&self.store, &check_plan::Plan::default()).is_err(),
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
    /// verifies the root of the block sums, the schema, the first and the last record, and, if `every_block` is set,
    /// every block.
    pub(super) fn check_as(self, verify: Verify, every_block: bool, pace: &Pace) -> Result<Store, StoreError> {
        let plan = check_plan::Plan { pace: pace.clone(), ..check_plan::Plan::default() };
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
    pub(super) fn check_by(self, plan: &check_plan::Plan, progress: &mut dyn FnMut(u64)) -> Result<Store, StoreError> {
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

/// Opens the file at a path for reading. Reads the file's type before: opening a FIFO would wake its writers, opening a
/// tape device would move the tape, and opening a terminal would configure it.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the file at the path is not a regular file; such a file is not opened. The
/// system's error if the file cannot be opened.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    check_type(&file)?;
    Ok(file)
}

fn check_type(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
    }
}

/// Checks the type of the file at a path, then opens the same inode for reading, even if the path meanwhile leads to
/// another file.
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};

    let inode = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    check_type(&inode)?;
    match super::sealed::reopened(&inode) {
        // Without /proc, the inode cannot be opened for reading, so the path is opened instead.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_without_waiting(path),
        opened => opened,
    }
}

/// Opens a path for reading. Another file may have replaced the file whose type was checked. If the path now leads to a
/// FIFO, the call does not wait for a writer. If the path now leads to a terminal, the call does not acquire it as the
/// controlling terminal.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::mem::MaybeUninit;
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    #[test]
    fn a_regular_file_is_opened_for_reading_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        std::fs::write(&path, "bytes").unwrap();
        symlink(&path, folder.path().join("link")).unwrap();
        for path in [path.clone(), folder.path().join("link")] {
            let file = open_regular(&path).unwrap();
            assert_eq!(io::read_to_string(&file).unwrap(), "bytes");
            assert!(file.set_len(0).is_err(), "the file must be open for reading only");
        }
        let error = open_regular(&folder.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_not_regular_is_rejected_without_being_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, link) = (folder.path().join("fifo"), folder.path().join("link"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink(&fifo, &link).unwrap();
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, &fifo, WatchFlags::OPEN).unwrap();
        let was_opened = || {
            let mut buffer = [MaybeUninit::uninit(); 512];
            Reader::new(&events, &mut buffer).next().is_ok()
        };
        for path in [&fifo, &link] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!was_opened(), "{}", path.display());
        }
        // The test opens the FIFO itself, to show that the watch reports an open.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        File::options().read(true).custom_flags(flags).open(&link).unwrap();
        assert!(was_opened());
        for path in [folder.path(), Path::new("/dev/null")] {
            assert_eq!(open_regular(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
}
