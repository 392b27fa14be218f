//! The header and its table of sections.

use std::fmt;

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;
use super::checksum::{BLOCK_LEN_BYTES, digest};
use super::index::Shape;
use super::record::{ALIGN_BYTES, RECORDS_LEN_MAX_BYTES};

/// The first bytes of every file. The first is no text; the line ends show a
/// copy in text mode.
pub const MAGIC: [u8; 8] = *b"\x89ZKV\r\n\x1a\n";
/// The version that this build writes and reads.
pub const VERSION: u32 = 1;
/// Keys are unsigned 64-bit numbers.
pub const KEY_KIND_U64: u32 = 1;
/// Length of the header.
pub const HEADER_LEN_BYTES: usize = size_of::<Header>();
/// Sections begin at a multiple of this: two cache lines, one node of the index.
pub const SECTION_ALIGN_BYTES: u64 = 128;

const SECTION_COUNT: usize = 4;
const SECTION_COUNT_MAX: usize = 6;

/// What a section holds. The number is the one in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionKind {
    /// The levels of the index above its leaves.
    Directory = 1,
    /// Keys and locators in key order.
    Leaves = 2,
    /// Values behind their response headers, in key order.
    Records = 3,
    /// The checksum of each block of the records.
    BlockSums = 4,
}

impl SectionKind {
    const IN_ORDER: [SectionKind; SECTION_COUNT] =
        [SectionKind::Directory, SectionKind::Leaves, SectionKind::Records, SectionKind::BlockSums];
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SectionKind::Directory => "directory",
            SectionKind::Leaves => "leaves",
            SectionKind::Records => "records",
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
    block_len_bytes: U32,
    section_count: U32,
    reserved: U64,
    digest: U128,
    sections: [SectionEntry; SECTION_COUNT_MAX],
}

const _: () = {
    assert!(size_of::<SectionEntry>() == 32);
    assert!(size_of::<Header>() == 256);
    assert!(std::mem::offset_of!(Header, digest) == 48);
    assert!(std::mem::offset_of!(Header, sections) == 64);
    assert!((HEADER_LEN_BYTES as u64).is_multiple_of(SECTION_ALIGN_BYTES));
    assert!(SECTION_ALIGN_BYTES.is_multiple_of(ALIGN_BYTES as u64));
};

/// Where a section is, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Its checksum: see [`super::checksum`].
    pub checksum: u64,
}

impl Section {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}

/// The places of all sections, and the shape of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The shape of the index.
    pub shape: Shape,
    /// The levels of the index above its leaves.
    pub directory: Section,
    /// Keys and locators.
    pub leaves: Section,
    /// Values behind their response headers.
    pub records: Section,
    /// The checksum of each block of the records.
    pub block_sums: Section,
}

impl Layout {
    /// Lays out a file; the checksums are zero until they are known.
    ///
    /// # Errors
    /// [`FormatError::TooManyRows`] and [`FormatError::RecordsTooLong`].
    pub fn of(row_count: u64, records_len_bytes: u64) -> Result<Layout, FormatError> {
        let shape = Shape::of(row_count).ok_or(FormatError::TooManyRows { rows: row_count })?;
        if records_len_bytes > RECORDS_LEN_MAX_BYTES {
            return Err(FormatError::RecordsTooLong);
        }
        let block_sums_len_bytes = records_len_bytes.div_ceil(BLOCK_LEN_BYTES as u64) * size_of::<U64>() as u64;
        let mut end_bytes = HEADER_LEN_BYTES as u64;
        let mut next = |len_bytes: u64| {
            let offset_bytes = end_bytes.next_multiple_of(SECTION_ALIGN_BYTES);
            end_bytes = offset_bytes + len_bytes;
            Section { offset_bytes, len_bytes, checksum: 0 }
        };
        let directory = next(shape.directory_len_bytes());
        let leaves = next(shape.leaves_len_bytes());
        let records = next(records_len_bytes);
        let block_sums = next(block_sums_len_bytes);
        Ok(Layout { shape, directory, leaves, records, block_sums })
    }

    /// The sections in the order in which they stand in the file.
    pub fn sections(&self) -> [(SectionKind, Section); SECTION_COUNT] {
        let places = [self.directory, self.leaves, self.records, self.block_sums];
        std::array::from_fn(|i| (SectionKind::IN_ORDER[i], places[i]))
    }

    /// The file's length.
    pub fn file_len_bytes(&self) -> u64 {
        self.block_sums.end_bytes()
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN_BYTES] {
        let mut header = Header::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.key_kind = KEY_KIND_U64.into();
        header.file_len_bytes = self.file_len_bytes().into();
        header.row_count = (self.shape.row_count as u64).into();
        header.block_len_bytes = (BLOCK_LEN_BYTES as u32).into();
        header.section_count = (SECTION_COUNT as u32).into();
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

    /// Reads and checks the header at the start of `file`.
    ///
    /// After it, all sections lie inside the file, in order and without
    /// overlap, with zeros between them. What they hold is not looked at.
    ///
    /// # Errors
    /// One of [`FormatError`] for each thing that can be wrong.
    pub fn decode(file: &[u8]) -> Result<Layout, FormatError> {
        let file_len_bytes = file.len() as u64;
        let (header, _) =
            Header::ref_from_prefix(file).map_err(|_| FormatError::TooShort { len_bytes: file_len_bytes })?;
        if header.magic != MAGIC {
            return Err(FormatError::Magic { found: header.magic });
        }
        if header.version != VERSION {
            return Err(FormatError::Version { found: header.version.get() });
        }
        if header.file_len_bytes != file_len_bytes {
            let expected_bytes = header.file_len_bytes.get();
            return Err(FormatError::FileLen { expected_bytes, found_bytes: file_len_bytes });
        }
        header.check_digest()?;
        header.check_fields()?;
        let layout = header.check_sections()?;
        check_padding(file, &layout)?;
        Ok(layout)
    }

    /// The digest in a header that [`Layout::encode`] wrote or [`Layout::decode`]
    /// accepted. Two files with the same digest hold the same bytes.
    pub fn digest(&self) -> u128 {
        let header: Header = zerocopy::transmute!(self.encode());
        header.digest.get()
    }
}

impl Header {
    fn check_digest(&self) -> Result<(), FormatError> {
        let mut undigested = *self;
        undigested.digest = U128::ZERO;
        let (expected, found) = (digest(undigested.as_bytes()), self.digest.get());
        if expected == found { Ok(()) } else { Err(FormatError::Digest { expected, found }) }
    }

    fn check_fields(&self) -> Result<(), FormatError> {
        let fields = [
            ("the key kind", u64::from(KEY_KIND_U64), self.key_kind.into()),
            ("the block length", BLOCK_LEN_BYTES as u64, self.block_len_bytes.into()),
            ("the section count", SECTION_COUNT as u64, self.section_count.into()),
            ("a reserved field", 0, self.reserved.get()),
        ];
        for (what, expected, found) in fields {
            expect(what, expected, found)?;
        }
        for (i, entry) in self.sections.iter().enumerate() {
            let kind = SectionKind::IN_ORDER.get(i).map_or(0, |kind| u64::from(*kind as u32));
            expect("the kind of a section", kind, entry.kind.into())?;
            expect("a reserved field of a section", 0, entry.reserved.into())?;
        }
        for entry in &self.sections[SECTION_COUNT..] {
            if *entry.as_bytes() != [0; size_of::<SectionEntry>()] {
                return Err(FormatError::Padding { before_bytes: HEADER_LEN_BYTES as u64 });
            }
        }
        Ok(())
    }

    /// Every section lies inside the file, behind the one in front of it.
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

    /// The layout that the row count and the length of the records ask for,
    /// with the checksums found: every place in the table must be that of it.
    fn check_sections(&self) -> Result<Layout, FormatError> {
        self.check_bounds()?;
        let [directory, leaves, records, block_sums, ..] = &self.sections;
        let mut layout = Layout::of(self.row_count.get(), records.len_bytes.get())?;
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
        layout.directory.checksum = directory.checksum.get();
        layout.leaves.checksum = leaves.checksum.get();
        layout.records.checksum = records.checksum.get();
        layout.block_sums.checksum = block_sums.checksum.get();
        Ok(layout)
    }
}

fn expect(what: &'static str, expected: u64, found: u64) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::HeaderField { what, expected, found }) }
}

fn check_padding(file: &[u8], layout: &Layout) -> Result<(), FormatError> {
    let mut end_bytes = HEADER_LEN_BYTES as u64;
    for (_, section) in layout.sections() {
        // In bounds: check_sections has held these places against the file's length.
        let padding = &file[end_bytes as usize..section.offset_bytes as usize];
        if padding.iter().any(|byte| *byte != 0) {
            return Err(FormatError::Padding { before_bytes: section.offset_bytes });
        }
        end_bytes = section.end_bytes();
    }
    Ok(())
}
