//! Assembles the pieces of memory that responses are sent from.
//!
//! In: copied bytes, and ranges of the records section and of a shared reply that are sent between the copied bytes. Out:
//! slices in the order in which they are sent. This module does not depend on a protocol or a socket.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use crate::store::Store;

/// The maximum number of ranges that the responses of one pass borrow from the file.
pub(super) const BORROWED_MAX: usize = 31;
/// The maximum number of bytes that are copied at a time from a shared mapping, just before they are sent.
const STAGE_LEN_BYTES: usize = 64 << 10;
/// The maximum number of attempts to copy bytes from a shared mapping, if its pages are copied or the names or the
/// permissions of its file change during each attempt.
const STAGE_ATTEMPTS_MAX: usize = 8;

/// A range of the records section that is sent directly from the file, or a range of a reply that connections share.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    pub(super) offset_bytes: usize,
    pub(super) len_bytes: usize,
    /// The number of copied bytes that are sent before this piece.
    pub(super) after_copied_bytes: usize,
    /// Whether the range is in the shared reply, and not in the records section.
    pub(super) is_shared: bool,
}

impl Piece {
    /// Returns a range of the records section, which is sent after the first `after_copied_bytes` copied bytes.
    #[inline]
    pub(super) fn stored(len_bytes: usize, offset_bytes: u64, after_copied_bytes: usize) -> Piece {
        Piece { offset_bytes: offset_bytes as usize, len_bytes, after_copied_bytes, is_shared: false }
    }

    fn range(&self) -> Range<usize> {
        self.offset_bytes..self.offset_bytes + self.len_bytes
    }
}

/// Responses of which the first `sent_bytes` bytes are already sent.
pub(super) struct Unsent<'a> {
    pub(super) copied: &'a [u8],
    pub(super) pieces: &'a [Piece],
    /// The reply that the shared pieces are ranges of.
    pub(super) shared: Option<&'a Arc<[u8]>>,
    pub(super) sent_bytes: usize,
    pub(super) total_len_bytes: usize,
    /// Whether descriptors must be passed with the next byte.
    pub(super) passes_descriptors: bool,
    /// The error response that has replaced the only response, because its descriptors cannot be passed.
    pub(super) refusal: Option<&'static [u8]>,
    /// The bytes to send next, if some of them are copied from a shared mapping.
    pub(super) stage: &'a mut Vec<u8>,
    /// Whether `stage` already has the first bytes of the responses.
    pub(super) is_staged: bool,
}

enum Part<'a> {
    Copied(&'a [u8]),
    Shared(&'a [u8]),
    Borrowed(&'a Piece),
}

/// Returns whether the responses must be sent from the store that they were read from.
pub(super) fn need_store(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| !piece.is_shared)
}

impl<'a> Unsent<'a> {
    /// Returns whether all responses are sent.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes >= self.total_len_bytes
    }

    /// Records that the next `len_bytes` bytes were sent.
    #[inline]
    pub(super) fn advance(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
        self.passes_descriptors = false;
    }

    /// Replaces the only response with `refusal`, because the descriptors of that response cannot be passed.
    pub(super) fn refuse(&mut self, refusal: &'static [u8]) {
        (self.copied, self.pieces, self.refusal) = (refusal, &[], Some(refusal));
        (self.sent_bytes, self.total_len_bytes, self.passes_descriptors) = (0, refusal.len(), false);
    }

    fn parts(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let Unsent { copied, pieces, shared, .. } = *self;
        let shared = shared.map_or(&[][..], |shared| shared);
        let mut copied_from = 0;
        let before = pieces.iter().flat_map(move |piece| {
            let part = &copied[copied_from..piece.after_copied_bytes];
            copied_from = piece.after_copied_bytes;
            let piece = match piece.is_shared {
                true => Part::Shared(&shared[piece.range()]),
                false => Part::Borrowed(piece),
            };
            [Part::Copied(part), piece]
        });
        let rest = &copied[pieces.last().map_or(0, |piece| piece.after_copied_bytes)..];
        before.chain([Part::Copied(rest)])
    }

    /// Calls `send` with all unsent bytes. If some of them must be copied from a shared mapping, calls `send` with only
    /// as many as fit into `stage`. `store` must be the store that the responses were read from.
    ///
    /// # Errors
    /// If the file was changed since the responses were read from it.
    #[inline]
    pub(super) fn with<T>(&mut self, store: &Store, send: impl FnOnce(&[IoSlice]) -> T) -> io::Result<T> {
        if self.pieces.is_empty() {
            return Ok(send(&[IoSlice::new(&self.copied[self.sent_bytes..])]));
        }
        if !store.is_private() && need_store(self.pieces) {
            if self.sent_bytes > 0 || !self.is_staged {
                self.fill_stage(store)?;
            }
            return Ok(send(&[IoSlice::new(self.stage)]));
        }
        let mut slices = [IoSlice::new(&[]); 2 * BORROWED_MAX + 1];
        let mut count = 0;
        for part in self.parts() {
            slices[count] = IoSlice::new(match part {
                Part::Copied(bytes) | Part::Shared(bytes) => bytes,
                Part::Borrowed(piece) => &store.records()[piece.range()],
            });
            count += 1;
        }
        let mut unsent = &mut slices[..count];
        IoSlice::advance_slices(&mut unsent, self.sent_bytes);
        Ok(send(unsent))
    }

    /// Copies the next unsent bytes into `stage`, as many as fit. Verifies the bytes that come from the file.
    ///
    /// # Errors
    /// If the file was changed since the responses were read from it.
    pub(super) fn fill_stage(&mut self, store: &Store) -> io::Result<()> {
        for attempt in 0..STAGE_ATTEMPTS_MAX {
            // Every second attempt reads the copies that the attempt before it has made, and makes no others.
            let (epoch, fixed) = match attempt % 2 {
                0 => (store.begin_batch(), None),
                _ => store.begin_batch_again(),
            };
            if self.copy_to_stage(store) && store.is_unchanged_since(epoch) {
                return Ok(());
            }
            // If only the names or the permissions of the file have changed, the file is trusted again.
            if fixed.is_none() && store.begin_batch() == epoch {
                break;
            }
        }
        Err(io::Error::other("the file was changed while a response was in flight"))
    }

    /// Copies the next unsent bytes into `stage`. Returns false if a block of the file is damaged or the file is not
    /// trusted.
    fn copy_to_stage(&mut self, store: &Store) -> bool {
        let mut skipped_bytes = self.sent_bytes;
        self.stage.clear();
        for part in self.parts() {
            let (start, len_bytes) = match part {
                Part::Copied(bytes) | Part::Shared(bytes) => (0, bytes.len()),
                Part::Borrowed(piece) => (piece.offset_bytes, piece.len_bytes),
            };
            let skip = skipped_bytes.min(len_bytes);
            skipped_bytes -= skip;
            let taken_bytes = (len_bytes - skip).min(STAGE_LEN_BYTES - self.stage.len());
            let range = start + skip..start + skip + taken_bytes;
            match part {
                Part::Copied(bytes) | Part::Shared(bytes) => self.stage.extend_from_slice(&bytes[range]),
                Part::Borrowed(_) => {
                    if !store.are_intact(range.clone()) {
                        return false;
                    }
                    self.stage.extend_from_slice(&store.records()[range]);
                }
            }
        }
        true
    }
}
