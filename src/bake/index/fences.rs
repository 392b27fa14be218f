//! Writes the fences and the tree above them.
//!
//! In: the head of each row's key, and the place of each row's record, in key order. Out: two sections of the file. Both
//! are written front to back while rows arrive; only the upper levels of the tree, a 32nd of a byte per row, wait in
//! memory until the lowest level is complete.

use std::fs::File;
use std::io;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::bake::section::SectionWriter;
use crate::format::fence::{FENCE_ROWS, Fence, NODE_HEADS};
use crate::format::header::Layout;

/// Writes the fences, and the tree above them.
pub(super) struct FenceWriter {
    fences: SectionWriter,
    tree: SectionWriter,
    /// The heads of the rows after the last complete fence. A head is 8 bytes of a key.
    heads: [u64; FENCE_ROWS],
    /// The places of the records of these rows.
    places: [u32; FENCE_ROWS],
    /// The number of these rows.
    row_count: usize,
    fence_count: usize,
    /// The second-lowest level of the tree: the head of every sixteenth fence.
    level: Vec<u64>,
}

impl FenceWriter {
    pub(super) fn new(file: &File, layout: &Layout) -> io::Result<FenceWriter> {
        Ok(FenceWriter {
            fences: SectionWriter::new(file, layout.fences.offset_bytes, 1)?,
            tree: SectionWriter::new(file, layout.fence_tree.offset_bytes, 1)?,
            heads: [0; FENCE_ROWS],
            places: [0; FENCE_ROWS],
            row_count: 0,
            fence_count: 0,
            level: Vec::new(),
        })
    }

    /// Adds the next row.
    #[inline(always)]
    pub(super) fn push(&mut self, head: u64, place: u32) -> io::Result<()> {
        (self.heads[self.row_count], self.places[self.row_count]) = (head, place);
        self.row_count += 1;
        if self.row_count == FENCE_ROWS { self.push_fence() } else { Ok(()) }
    }

    #[inline(never)]
    fn push_fence(&mut self) -> io::Result<()> {
        let fence = Fence::of_rows(&self.heads[..self.row_count], &self.places[..self.row_count]);
        if self.fence_count.is_multiple_of(NODE_HEADS) {
            self.level.push(self.heads[0]);
        }
        self.fence_count += 1;
        self.row_count = 0;
        self.fences.push(fence.as_bytes())?;
        self.tree.push(fence.head.as_bytes())
    }

    /// Writes the last fence and the upper levels of the tree. Returns the checksums of both sections.
    pub(super) fn finish(mut self) -> io::Result<(Vec<U64>, Vec<U64>)> {
        if self.row_count > 0 {
            self.push_fence()?;
        }
        let mut head_count = self.fence_count;
        let mut level = self.level;
        loop {
            for _ in head_count..head_count.next_multiple_of(NODE_HEADS) {
                self.tree.push(&[u8::MAX; size_of::<U64>()])?;
            }
            if head_count <= NODE_HEADS {
                break;
            }
            for head in &level {
                self.tree.push(&head.to_le_bytes())?;
            }
            head_count = level.len();
            level = level.into_iter().step_by(NODE_HEADS).collect();
        }
        Ok((self.fences.finish()?, self.tree.finish()?))
    }
}
