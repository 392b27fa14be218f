//! The header and its table of sections.

use std::fmt;
use std::ops::Range;

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;
use super::checksum::{BLOCK_LEN_BYTES, digest};
use super::fence::{Fence, Node, TreeLevels, fence_count};
use super::form::RecordForm;
use super::group::{GROUP_LEN_MIN_BYTES, GROUPS_LEN_MAX_BYTES, group_count};
use super::index::{Parts, ROW_COUNT_MAX};
use super::key::KeyKind;
use super::key_type::{KeyType, PART_COUNT_MAX};
use super::record::{
    ALIGN_BYTES, PLACE_BITS, RECORD_ALIGN_MAX_BYTES, RECORDS_LEN_MAX_BYTES, record_len_min_bytes, records_len_max_bytes,
};

/// The first bytes of every file. The first byte is not ASCII, so that programs do not treat the file as text. The
/// other bytes include line ends, so that a copy in text mode, which converts line ends, is detected.
pub const MAGIC: [u8; 8] = *b"\x89ZKV\r\n\x1a\n";
/// The format version that this build writes and reads.
pub const VERSION: u32 = 6;
/// The length of the header.
pub const HEADER_LEN_BYTES: usize = size_of::<Header>();
/// The offset of the records section. Each block of the records is a page of the file, so verifying a block reads one
/// page.
pub const RECORDS_OFFSET_BYTES: u64 = BLOCK_LEN_BYTES as u64;
/// The alignment of the other sections, which is the length of a cache line.
pub const SECTION_ALIGN_BYTES: u64 = 64;

/// The maximum length of the schema section. `zero_kv::typed` has the limits of a schema.
pub const SCHEMA_LEN_MAX_BYTES: u64 = 2 << 20;

const SECTION_COUNT: usize = 7;

/// The flag of a table of ranges.
const HAS_RANGES: u64 = 1;
/// The flag of a table with the compact layout.
const IS_COMPACT: u64 = 2;

/// How a file stores rows and finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TableLayout {
    /// Records with complete keys and responses, and a hash index. Lookups are fastest.
    #[default]
    Fast,
    /// Values without keys, in groups of rows. Files are smallest.
    Compact,
}

impl TableLayout {
    /// Returns the layout with this name, or `None` if no layout has this name.
    pub fn from_name(name: &str) -> Option<TableLayout> {
        match name {
            "fast" => Some(TableLayout::Fast),
            "compact" => Some(TableLayout::Compact),
            _ => None,
        }
    }
}

impl fmt::Display for TableLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableLayout::Fast => "fast",
            TableLayout::Compact => "compact",
        })
    }
}

/// The kind of a section. The discriminant is the kind's number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionKind {
    /// Records: keys and their responses, in key order. In the compact layout, only the values.
    Records = 1,
    /// Fences: codes of the keys, in key order, and the position of each row's record: see
    /// [`Fence`]. In the compact layout, groups: see [`Group`](super::group::Group).
    Fences = 2,
    /// The fence tree: the head of each fence or group, and, above them, every sixteenth head of the level below.
    FenceTree = 3,
    /// Pilots: bytes that, together with a key's hash, select the key's slot. Empty in the compact layout.
    Pilots = 4,
    /// Places: for each slot, the position of the record whose key has this slot. In the compact layout, the position
    /// of each group.
    Places = 5,
    /// Schema: the names and types of the columns of a typed table. Empty in other tables.
    Schema = 6,
    /// Block sums: the checksum of each block of the other sections, and the root, which has the checksum of each block
    /// of these checksums.
    BlockSums = 7,
}

impl SectionKind {
    const IN_ORDER: [SectionKind; SECTION_COUNT] = [
        SectionKind::Records,
        SectionKind::Fences,
        SectionKind::FenceTree,
        SectionKind::Pilots,
        SectionKind::Places,
        SectionKind::Schema,
        SectionKind::BlockSums,
    ];
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SectionKind::Records => "records",
            SectionKind::Fences => "fences",
            SectionKind::FenceTree => "fence tree",
            SectionKind::Pilots => "pilots",
            SectionKind::Places => "places",
            SectionKind::Schema => "schema",
            SectionKind::BlockSums => "block sums",
        })
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SectionEntry {
    kind: U32,
    reserved: U32,
    offset_bytes: U64,
    len_bytes: U64,
    checksum: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    key_kind: U32,
    file_len_bytes: U64,
    row_count: U64,
    hash_seed: U64,
    record_align_bytes: U32,
    block_len_bytes: U32,
    digest: U128,
    key_type: [u8; PART_COUNT_MAX],
    flags: U64,
    sections: [SectionEntry; SECTION_COUNT],
}

const _: () = {
    assert!(size_of::<SectionEntry>() == 32);
    assert!(size_of::<Header>() == 304);
    assert!(std::mem::offset_of!(Header, digest) == 48);
    assert!(std::mem::offset_of!(Header, sections) == 80);
    assert!(
        HEADER_LEN_BYTES as u64 <= RECORDS_OFFSET_BYTES && RECORDS_OFFSET_BYTES.is_multiple_of(SECTION_ALIGN_BYTES)
    );
    assert!(SECTION_ALIGN_BYTES.is_multiple_of(ALIGN_BYTES as u64));
};

/// The position and checksum of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The section's offset in the file.
    pub offset_bytes: u64,
    /// The section's length.
    pub len_bytes: u64,
    /// The section's checksum: see [`super::checksum`].
    pub checksum: u64,
}

impl Section {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }

    fn block_count(&self) -> u64 {
        self.len_bytes.div_ceil(BLOCK_LEN_BYTES as u64)
    }
}

/// The numbers that determine a file's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// How the file stores rows.
    pub table_layout: TableLayout,
    /// The type of the keys.
    pub key_type: KeyType,
    /// Whether the rows are ranges: each record then has the end of the range that begins with its key.
    pub has_ranges: bool,
    /// The number of rows.
    pub row_count: u64,
    /// The seed with which keys are hashed; 0 in the compact layout.
    pub hash_seed: u64,
    /// The alignment of the records; 1 in the compact layout.
    pub record_align_bytes: usize,
    /// The total length of the records.
    pub records_len_bytes: u64,
    /// The total length of the groups; 0 in the fast layout.
    pub groups_len_bytes: u64,
    /// The number of pilots of each part; 0 in the compact layout.
    pub part_pilots: u64,
    /// The number of slots of each part; 0 in the compact layout.
    pub part_slots: u64,
    /// The length of the schema, or 0 if the table has none.
    pub schema_len_bytes: u64,
}

impl Dimensions {
    /// Returns the kind of the keys.
    #[inline]
    pub fn key_kind(&self) -> KeyKind {
        self.key_type.kind()
    }

    /// Returns how records store keys and ends.
    #[inline]
    pub fn record_form(&self) -> RecordForm {
        RecordForm::new(self.key_type, self.has_ranges)
    }

    /// Returns whether the file has the compact layout.
    #[inline]
    pub fn is_compact(&self) -> bool {
        self.table_layout == TableLayout::Compact
    }

    /// Returns the number of heads in the lowest level of the fence tree: one per fence or group.
    pub fn head_count(&self) -> usize {
        match self.table_layout {
            TableLayout::Fast => fence_count(self.row_count),
            TableLayout::Compact => group_count(self.row_count),
        }
    }

    /// Checks the dimensions of a table with the fast layout, and returns the lengths of its fences, fence tree, pilots,
    /// and places.
    fn index_lens_bytes(&self) -> Result<[u64; 4], FormatError> {
        let Dimensions { row_count, record_align_bytes, records_len_bytes, .. } = *self;
        if !record_align_bytes.is_power_of_two()
            || !(ALIGN_BYTES..=RECORD_ALIGN_MAX_BYTES).contains(&record_align_bytes)
        {
            return Err(field_error("the record alignment", ALIGN_BYTES as u64, record_align_bytes as u64));
        }
        let len_max_bytes = records_len_max_bytes(record_align_bytes, PLACE_BITS);
        if records_len_bytes > len_max_bytes {
            return Err(FormatError::RecordsTooLong { len_max_bytes });
        }
        let parts = self.parts();
        if row_count > 0 && !(1..1 << 32).contains(&parts.pilots) {
            return Err(field_error("the number of pilots of a part", 1, parts.pilots));
        }
        if row_count > 0 && !(1..1 << 32).contains(&parts.slots) {
            return Err(field_error("the number of slots of a part", row_count.div_ceil(parts.count), parts.slots));
        }
        Ok([
            (fence_count(row_count) * size_of::<Fence>()) as u64,
            self.tree_len_bytes(),
            parts.count * parts.pilots,
            parts.count * parts.slots * size_of::<U32>() as u64,
        ])
    }

    /// Checks the dimensions of a table with the compact layout, and returns the lengths of its groups, fence tree,
    /// pilots, and places.
    fn compact_index_lens_bytes(&self) -> Result<[u64; 4], FormatError> {
        expect("the record alignment", 1, self.record_align_bytes as u64)?;
        expect("the hash seed", 0, self.hash_seed)?;
        if self.records_len_bytes > RECORDS_LEN_MAX_BYTES {
            return Err(FormatError::RecordsTooLong { len_max_bytes: RECORDS_LEN_MAX_BYTES });
        }
        if self.groups_len_bytes > GROUPS_LEN_MAX_BYTES {
            return Err(FormatError::GroupsTooLong { len_bytes: self.groups_len_bytes });
        }
        let group_count = group_count(self.row_count) as u64;
        let len_min_bytes = group_count * GROUP_LEN_MIN_BYTES as u64;
        if self.groups_len_bytes < len_min_bytes || group_count == 0 && self.groups_len_bytes > 0 {
            return Err(field_error("the length of the groups", len_min_bytes, self.groups_len_bytes));
        }
        Ok([self.groups_len_bytes, self.tree_len_bytes(), 0, group_count * size_of::<U32>() as u64])
    }

    fn tree_len_bytes(&self) -> u64 {
        (TreeLevels::new(self.head_count()).node_count() * size_of::<Node>()) as u64
    }

    /// Returns how the table's pilots and slots are divided into parts.
    pub fn parts(&self) -> Parts {
        Parts { count: Parts::count(self.row_count), pilots: self.part_pilots, slots: self.part_slots }
    }
}

/// The layout of a file: the positions and checksums of all sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The version of the file's format.
    pub version: u32,
    /// The numbers that determine the layout.
    pub dimensions: Dimensions,
    /// Records: keys and their responses, in key order.
    pub records: Section,
    /// Fences: codes of the keys, in key order, and the position of each row's record: see
    /// [`Fence`].
    pub fences: Section,
    /// The fence tree: the head of each fence, and, above them, every sixteenth head of the level below.
    pub fence_tree: Section,
    /// Pilots: bytes that, together with a key's hash, select the key's slot.
    pub pilots: Section,
    /// Places: for each slot, the position of the record whose key has this slot.
    pub places: Section,
    /// Schema: the names and types of the columns of a typed table. Empty in other tables.
    pub schema: Section,
    /// Block sums: the checksum of each block of the other sections, and the root. See [`Layout::blocks`].
    pub block_sums: Section,
}

impl Layout {
    /// Returns the layout of a file with these dimensions. All checksums in the returned layout are zero.
    ///
    /// # Errors
    /// [`FormatError::TooManyRows`] or [`FormatError::RecordsTooLong`], or [`FormatError::HeaderField`] if the
    /// alignment, the number of pilots, the number of slots, or the length of the schema is invalid.
    pub fn new(dimensions: Dimensions) -> Result<Layout, FormatError> {
        if dimensions.row_count > ROW_COUNT_MAX {
            return Err(FormatError::TooManyRows { rows: dimensions.row_count });
        }
        let index_lens_bytes = match dimensions.table_layout {
            TableLayout::Fast => dimensions.index_lens_bytes()?,
            TableLayout::Compact => dimensions.compact_index_lens_bytes()?,
        };
        if dimensions.schema_len_bytes > SCHEMA_LEN_MAX_BYTES {
            return Err(field_error("the length of the schema", SCHEMA_LEN_MAX_BYTES, dimensions.schema_len_bytes));
        }
        let mut end_bytes = RECORDS_OFFSET_BYTES;
        let mut next = |len_bytes: u64| {
            let offset_bytes = end_bytes.next_multiple_of(SECTION_ALIGN_BYTES);
            end_bytes = offset_bytes + len_bytes;
            Section { offset_bytes, len_bytes, checksum: 0 }
        };
        let records = next(dimensions.records_len_bytes);
        let [fences, fence_tree, pilots, places] = index_lens_bytes.map(&mut next);
        let schema = next(dimensions.schema_len_bytes);
        let block_count = [records, fences, fence_tree, pilots, places, schema].iter().map(Section::block_count).sum();
        let block_sums = next(block_sums_len_bytes(block_count));
        Ok(Layout { version: VERSION, dimensions, records, fences, fence_tree, pilots, places, schema, block_sums })
    }

    /// Returns the numbers of a section's blocks. The blocks of a file are numbered in file order: each section begins
    /// with a new block, and the section of block sums, without its root, has the last blocks.
    pub fn blocks(&self, kind: SectionKind) -> Range<usize> {
        let mut start = 0;
        for (section, place) in self.sections() {
            let count = match section {
                SectionKind::BlockSums => root_count(start as u64),
                _ => place.block_count(),
            } as usize;
            if section == kind {
                return start..start + count;
            }
            start += count;
        }
        start..start
    }

    /// Returns the section that contains a block, and the block's number within this section, counted from 0. Returns
    /// `None` if the file has no such block.
    pub fn section_of_block(&self, block: usize) -> Option<(SectionKind, usize)> {
        SectionKind::IN_ORDER.into_iter().find_map(|kind| {
            let blocks = self.blocks(kind);
            blocks.contains(&block).then(|| (kind, block - blocks.start))
        })
    }

    /// Returns the sections in the order in which the file stores them.
    pub fn sections(&self) -> [(SectionKind, Section); SECTION_COUNT] {
        let places =
            [self.records, self.fences, self.fence_tree, self.pilots, self.places, self.schema, self.block_sums];
        std::array::from_fn(|i| (SectionKind::IN_ORDER[i], places[i]))
    }

    /// Returns the file's length.
    pub fn file_len_bytes(&self) -> u64 {
        self.block_sums.end_bytes()
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN_BYTES] {
        let mut header = Header::new_zeroed();
        header.magic = MAGIC;
        header.version = self.version.into();
        header.key_kind = (self.dimensions.key_kind() as u32).into();
        header.key_type = self.dimensions.key_type.to_code();
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        header.flags =
            (flag(self.dimensions.has_ranges, HAS_RANGES) | flag(self.dimensions.is_compact(), IS_COMPACT)).into();
        header.file_len_bytes = self.file_len_bytes().into();
        header.row_count = self.dimensions.row_count.into();
        header.hash_seed = self.dimensions.hash_seed.into();
        header.record_align_bytes = (self.dimensions.record_align_bytes as u32).into();
        header.block_len_bytes = (BLOCK_LEN_BYTES as u32).into();
        for (entry, (kind, section)) in header.sections.iter_mut().zip(self.sections()) {
            *entry = SectionEntry {
                kind: (kind as u32).into(),
                reserved: U32::ZERO,
                offset_bytes: section.offset_bytes.into(),
                len_bytes: section.len_bytes.into(),
                checksum: section.checksum.into(),
            };
        }
        header.digest = digest(header.as_bytes()).into();
        zerocopy::transmute!(header)
    }

    /// Parses and checks the header at the start of `file`.
    ///
    /// Checks that all sections are inside the file, in order and without overlap, and that the padding between them is
    /// zero. Does not check the contents of the sections.
    ///
    /// # Errors
    /// [`FormatError`] for the first fault found.
    pub fn decode(file: &[u8]) -> Result<Layout, FormatError> {
        let layout = Layout::decode_start(file, file.len() as u64)?;
        for padding in layout.paddings() {
            // The slice is in bounds, because `check_sections` has compared these offsets with the file's length.
            check_padding(&file[padding.start as usize..padding.end as usize], padding.end)?;
        }
        Ok(layout)
    }

    /// Parses and checks the header in `start`, the first bytes of a file. Unlike [`Layout::decode`], this function
    /// does not check the padding. The caller must check that the padding is zero: see [`Layout::paddings`].
    pub(crate) fn decode_start(start: &[u8], file_len_bytes: u64) -> Result<Layout, FormatError> {
        let (header, _) =
            Header::ref_from_prefix(start).map_err(|_| FormatError::TooShort { len_bytes: file_len_bytes })?;
        if header.magic != MAGIC {
            return Err(FormatError::Magic { found: header.magic });
        }
        match header.version.get() {
            VERSION => header.decode(file_len_bytes),
            found => Err(FormatError::Version { found }),
        }
    }

    /// Returns, for each section, the range of the file that is padding before the section. Every range is shorter than
    /// [`RECORDS_OFFSET_BYTES`].
    pub(crate) fn paddings(&self) -> impl Iterator<Item = Range<u64>> {
        let mut end_bytes = HEADER_LEN_BYTES as u64;
        self.sections().into_iter().map(move |(_, section)| {
            let padding = end_bytes..section.offset_bytes;
            end_bytes = section.end_bytes();
            padding
        })
    }

    /// Returns the digest that [`Layout::encode`] writes into the header and [`Layout::decode`] verifies. The digest
    /// detects accidental changes, not forgery.
    pub fn digest(&self) -> u128 {
        let header: Header = zerocopy::transmute!(self.encode());
        header.digest.get()
    }
}

impl Header {
    /// Decodes a header of the format version [`VERSION`].
    fn decode(&self, file_len_bytes: u64) -> Result<Layout, FormatError> {
        if self.file_len_bytes != file_len_bytes {
            let expected_bytes = self.file_len_bytes.get();
            return Err(FormatError::FileLen { expected_bytes, found_bytes: file_len_bytes });
        }
        self.check_digest()?;
        self.check_fields()?;
        self.check_sections(self.key_type()?)
    }

    fn check_digest(&self) -> Result<(), FormatError> {
        let mut undigested = *self;
        undigested.digest = U128::ZERO;
        let (expected, found) = (digest(undigested.as_bytes()), self.digest.get());
        if expected == found { Ok(()) } else { Err(FormatError::Digest { expected, found }) }
    }

    fn check_fields(&self) -> Result<(), FormatError> {
        expect("the block length", BLOCK_LEN_BYTES as u64, self.block_len_bytes.into())?;
        let flags = self.flags.get();
        expect("the flags", flags & (HAS_RANGES | IS_COMPACT), flags)?;
        for (i, entry) in self.sections.iter().enumerate() {
            expect("the kind of a section", u64::from(SectionKind::IN_ORDER[i] as u32), entry.kind.into())?;
            expect("a reserved field of a section", 0, entry.reserved.into())?;
        }
        Ok(())
    }

    fn key_type(&self) -> Result<KeyType, FormatError> {
        let code = u64::from_le_bytes(self.key_type);
        let key_type = KeyType::from_code(self.key_type)
            .ok_or_else(|| field_error("the key type", u64::from_le_bytes(KeyType::U64.to_code()), code))?;
        expect("the key kind", key_type.kind() as u64, self.key_kind.into())?;
        Ok(key_type)
    }

    /// Checks that every section is inside the file and after the preceding section.
    fn check_bounds(&self) -> Result<(), FormatError> {
        let file_len_bytes = self.file_len_bytes.get();
        let mut previous_end_bytes = HEADER_LEN_BYTES as u64;
        for (section, entry) in SectionKind::IN_ORDER.into_iter().zip(&self.sections) {
            let (offset_bytes, len_bytes) = (entry.offset_bytes.get(), entry.len_bytes.get());
            let Some(end_bytes) = offset_bytes.checked_add(len_bytes).filter(|end| *end <= file_len_bytes) else {
                return Err(FormatError::SectionBeyondFile { section, offset_bytes, len_bytes, file_len_bytes });
            };
            if offset_bytes < previous_end_bytes {
                return Err(FormatError::SectionOverlap { section, offset_bytes, previous_end_bytes });
            }
            previous_end_bytes = end_bytes;
        }
        Ok(())
    }

    /// Computes the layout for the header's dimensions, and checks that every section in the header has the offset and
    /// length that this layout requires. Returns the layout with the header's checksums.
    fn check_sections(&self, key_type: KeyType) -> Result<Layout, FormatError> {
        self.check_bounds()?;
        let [records, fences, fence_tree, pilots, places, schema, block_sums] = &self.sections;
        // A section length that is not divisible by the number of parts is detected below, because it differs from the
        // length in the layout.
        let part_count = Parts::count(self.row_count.get()).max(1);
        let is_compact = self.flags.get() & IS_COMPACT != 0;
        if is_compact {
            expect("the key kind of a table with the compact layout", KeyKind::U64 as u64, key_type.kind() as u64)?;
        }
        let mut layout = Layout::new(Dimensions {
            table_layout: if is_compact { TableLayout::Compact } else { TableLayout::Fast },
            key_type,
            has_ranges: self.flags.get() & HAS_RANGES != 0,
            row_count: self.row_count.get(),
            hash_seed: self.hash_seed.get(),
            record_align_bytes: self.record_align_bytes.get() as usize,
            records_len_bytes: records.len_bytes.get(),
            groups_len_bytes: if is_compact { fences.len_bytes.get() } else { 0 },
            part_pilots: if is_compact { 0 } else { pilots.len_bytes.get() / part_count },
            part_slots: if is_compact { 0 } else { places.len_bytes.get() / size_of::<U32>() as u64 / part_count },
            schema_len_bytes: schema.len_bytes.get(),
        })
        .map_err(|error| match error {
            // In an existing file, a number beyond the format's limits means that the header is wrong, not that the
            // table is too large.
            FormatError::TooManyRows { rows } => field_error("the number of rows", ROW_COUNT_MAX, rows),
            FormatError::RecordsTooLong { len_max_bytes } => {
                field_error("the length of the records section", len_max_bytes, records.len_bytes.get())
            }
            FormatError::GroupsTooLong { len_bytes } => {
                field_error("the length of the groups", GROUPS_LEN_MAX_BYTES, len_bytes)
            }
            error => error,
        })?;
        for ((section, expected), found) in layout.sections().into_iter().zip(&self.sections) {
            let (offset_bytes, len_bytes) = (found.offset_bytes.get(), found.len_bytes.get());
            if (offset_bytes, len_bytes) != (expected.offset_bytes, expected.len_bytes) {
                return Err(FormatError::SectionPlace {
                    section,
                    offset_bytes,
                    len_bytes,
                    expected_offset_bytes: expected.offset_bytes,
                    expected_len_bytes: expected.len_bytes,
                });
            }
        }
        expect("the file length", layout.file_len_bytes(), self.file_len_bytes.get())?;
        check_records_len(&layout.dimensions)?;
        layout.records.checksum = records.checksum.get();
        layout.fences.checksum = fences.checksum.get();
        layout.fence_tree.checksum = fence_tree.checksum.get();
        layout.pilots.checksum = pilots.checksum.get();
        layout.places.checksum = places.checksum.get();
        layout.schema.checksum = schema.checksum.get();
        layout.block_sums.checksum = block_sums.checksum.get();
        Ok(layout)
    }
}

/// Returns the length of the section of block sums: one checksum per block of the other sections, and the root.
fn block_sums_len_bytes(block_count: u64) -> u64 {
    (block_count + root_count(block_count)) * size_of::<U64>() as u64
}

/// Returns the number of checksums in the root: one per block of the checksums of `block_count` blocks.
fn root_count(block_count: u64) -> u64 {
    (block_count * size_of::<U64>() as u64).div_ceil(BLOCK_LEN_BYTES as u64)
}

/// Checks that the records section is long enough for the number of rows, and that its length is a multiple of the
/// alignment. In a table without rows, the section must be empty. Code that finds a row's record relies on this check.
fn check_records_len(dimensions: &Dimensions) -> Result<(), FormatError> {
    let Dimensions { row_count, record_align_bytes, records_len_bytes: len_bytes, .. } = *dimensions;
    let align_bytes = record_align_bytes as u64;
    // In the compact layout, values can be empty, so any length is possible.
    if dimensions.is_compact() && row_count > 0 {
        return Ok(());
    }
    // This does not overflow: the layout limits the factors to 2³² and 2¹².
    let len_min_bytes = row_count * record_len_min_bytes(dimensions.record_form(), record_align_bytes) as u64;
    let is_possible = match row_count {
        0 => len_bytes == 0,
        _ => len_bytes >= len_min_bytes && len_bytes.is_multiple_of(align_bytes),
    };
    if is_possible {
        return Ok(());
    }
    Err(FormatError::RecordsLen { rows: row_count, align_bytes, len_min_bytes, len_bytes })
}

fn expect(what: &'static str, expected: u64, found: u64) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(field_error(what, expected, found)) }
}

fn field_error(what: &'static str, expected: u64, found: u64) -> FormatError {
    FormatError::HeaderField { what, expected, found }
}

/// Checks that the padding between two sections is zero.
pub(crate) fn check_padding(padding: &[u8], before_bytes: u64) -> Result<(), FormatError> {
    let is_zero = padding.iter().all(|byte| *byte == 0);
    if is_zero { Ok(()) } else { Err(FormatError::Padding { before_bytes }) }
}
