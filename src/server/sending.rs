//! Assembles the pieces of memory that responses are sent from.
//!
//! In: copied bytes, and ranges of the records section that are sent between the copied bytes. Out: slices in the order
//! in which they are sent. This module does not depend on a protocol or a socket.

use std::io::{self, IoSlice};
use std::ops::Range;

use crate::store::Store;

/// The maximum number of ranges that the responses of one pass borrow from the file.
pub(super) const BORROWED_MAX: usize = 31;
/// The maximum number of bytes that are copied at a time from a shared mapping, just before they are sent.
const STAGE_LEN_BYTES: usize = 64 << 10;

/// A range of the records section that is sent directly from the file.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    pub(super) offset_bytes: usize,
    pub(super) len_bytes: usize,
    /// The number of copied bytes that are sent before this piece.
    pub(super) after_copied_bytes: usize,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.offset_bytes..self.offset_bytes + self.len_bytes
    }
}

/// The next bytes to send, including bytes of a shared mapping that were copied and verified.
#[derive(Default)]
pub(super) struct Stage {
    pub(super) bytes: Vec<u8>,
    /// Whether `bytes` starts with the first byte of the responses.
    pub(super) holds_beginning: bool,
}

/// Responses to send. The first `sent_bytes` bytes are already sent.
pub(super) struct Sending<'a> {
    pub(super) copied: &'a [u8],
    pub(super) pieces: &'a [Piece],
    pub(super) sent_bytes: usize,
}

enum Part<'a> {
    Copied(&'a [u8]),
    Borrowed(&'a Piece),
}

impl<'a> Sending<'a> {
    fn parts(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let Sending { copied, pieces, .. } = *self;
        let mut copied_from = 0;
        let before = pieces.iter().flat_map(move |piece| {
            let part = &copied[copied_from..piece.after_copied_bytes];
            copied_from = piece.after_copied_bytes;
            [Part::Copied(part), Part::Borrowed(piece)]
        });
        let rest = &copied[pieces.last().map_or(0, |piece| piece.after_copied_bytes)..];
        before.chain([Part::Copied(rest)])
    }

    /// Calls `send` with all unsent bytes. If bytes must be copied from a shared mapping, calls `send` with only as
    /// many of the first unsent bytes as fit into a stage.
    ///
    /// # Errors
    /// If the file was changed since the lookup.
    pub(super) fn with<T>(
        &self,
        store: &Store,
        stage: &mut Stage,
        send: impl FnOnce(&[IoSlice]) -> T,
    ) -> io::Result<T> {
        if self.pieces.is_empty() {
            return Ok(send(&[IoSlice::new(&self.copied[self.sent_bytes..])]));
        }
        if !store.is_private() {
            self.copy_to(store, stage)?;
            return Ok(send(&[IoSlice::new(&stage.bytes)]));
        }
        let mut slices = [IoSlice::new(&[]); 2 * BORROWED_MAX + 1];
        let mut count = 0;
        for part in self.parts() {
            slices[count] = IoSlice::new(match part {
                Part::Copied(bytes) => bytes,
                Part::Borrowed(piece) => &store.records()[piece.range()],
            });
            count += 1;
        }
        let mut unsent = &mut slices[..count];
        IoSlice::advance_slices(&mut unsent, self.sent_bytes);
        Ok(send(unsent))
    }

    /// Copies as many of the next unsent bytes as fit into the stage, and verifies those from the file.
    ///
    /// # Errors
    /// If the file was changed since the lookup.
    pub(super) fn copy_to(&self, store: &Store, stage: &mut Stage) -> io::Result<()> {
        stage.holds_beginning = false;
        let stage = &mut stage.bytes;
        let changed = || io::Error::other("the file was changed while a response was in flight");
        let epoch = store.epoch();
        let mut skipped_bytes = self.sent_bytes;
        stage.clear();
        for part in self.parts() {
            let (start, len_bytes) = match part {
                Part::Copied(bytes) => (0, bytes.len()),
                Part::Borrowed(piece) => (piece.offset_bytes, piece.len_bytes),
            };
            let skip = skipped_bytes.min(len_bytes);
            skipped_bytes -= skip;
            let taken_bytes = (len_bytes - skip).min(STAGE_LEN_BYTES - stage.len());
            let range = start + skip..start + skip + taken_bytes;
            match part {
                Part::Copied(bytes) => stage.extend_from_slice(&bytes[range]),
                Part::Borrowed(_) => {
                    if !store.are_intact(range.clone()) {
                        return Err(changed());
                    }
                    stage.extend_from_slice(&store.records()[range]);
                }
            }
        }
        if store.is_unchanged_since(epoch) { Ok(()) } else { Err(changed()) }
    }
}
