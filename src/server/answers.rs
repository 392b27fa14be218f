//! Answers, until they are sent.
//!
//! In: bytes to copy, and bytes of the file to borrow. Out: pieces of memory in
//! the order in which they go out. It knows no protocol and no socket.

use std::io::{self, IoSlice};

use super::steps::Steps;
use crate::protocol::resp::Sink;
use crate::store::Store;

/// Answers up to this length are copied, longer ones are borrowed.
pub(super) const COPY_MAX_BYTES: usize = 4096;
/// What is copied from a file at a time, just before it is sent.
const STAGE_LEN_BYTES: usize = 64 << 10;
/// What frames an answer in the Redis protocol, at most.
const FRAME_LEN_MAX_BYTES: usize = 32;
/// What the copied answers of one pass take up, but for the last of them.
const COPIED_MAX_BYTES: usize = 64 << 10;
/// What a connection keeps of its memory once its client has taken the answers.
const KEPT_MAX_BYTES: usize = 16 << 10;
/// Answers that are borrowed in one pass, at most.
const BORROWED_MAX: usize = 31;

/// The answers to one pass of requests, as they go out.
///
/// Belongs to a worker; connections use it in turn. Public for whoever serves the
/// native protocol over something else than this server's sockets, and to be
/// measured by itself.
pub struct Answers {
    /// Never shorter than what a pass takes.
    pub(super) buffer: Vec<u8>,
    pub(super) copied_len_bytes: usize,
    pub(super) borrowed: Borrowed,
    stage: Stage,
    /// Whether descriptors go out with them. Then there is one answer, and it is short.
    pub(super) hands_over: bool,
    /// The work of making them.
    pub(super) steps: Steps,
}

/// The answers that go out from the file itself.
pub(super) struct Borrowed {
    pieces: [Piece; BORROWED_MAX],
    count: usize,
    len_bytes: usize,
}

/// One of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    /// Where it begins in the records section.
    pub(super) offset_bytes: usize,
    pub(super) len_bytes: usize,
    /// Copied bytes that go out before it.
    pub(super) after_copied_bytes: usize,
}

/// The end of the answers at some time.
pub(super) struct End {
    copied_len_bytes: usize,
    borrowed_count: usize,
    borrowed_len_bytes: usize,
}

impl Answers {
    /// None, with room for a pass.
    pub fn new() -> Self {
        let borrowed = Borrowed { pieces: [Piece::default(); BORROWED_MAX], count: 0, len_bytes: 0 };
        Answers {
            buffer: vec![0; COPIED_MAX_BYTES],
            copied_len_bytes: 0,
            borrowed,
            stage: Stage::default(),
            hands_over: false,
            steps: Steps::begin(),
        }
    }

    /// Forgets all answers.
    pub fn clear(&mut self) {
        (self.copied_len_bytes, self.borrowed.count, self.borrowed.len_bytes) = (0, 0, 0);
        self.stage.holds_beginning = false;
        self.hands_over = false;
        self.steps = Steps::begin();
        if self.buffer.len() > COPIED_MAX_BYTES {
            self.buffer.truncate(COPIED_MAX_BYTES);
            self.buffer.shrink_to_fit();
        }
    }

    /// The length of all answers together.
    pub fn total_len_bytes(&self) -> usize {
        self.copied_len_bytes + self.borrowed.len_bytes
    }

    /// Whether they should be sent before more is added. If not, there is room for
    /// a framed answer of any length.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.copied_len_bytes + COPY_MAX_BYTES + FRAME_LEN_MAX_BYTES > COPIED_MAX_BYTES
            || self.borrowed.count == BORROWED_MAX
    }

    /// Returns the end of the answers, for [`Answers::truncate`].
    pub(super) fn end(&self) -> End {
        End {
            copied_len_bytes: self.copied_len_bytes,
            borrowed_count: self.borrowed.count,
            borrowed_len_bytes: self.borrowed.len_bytes,
        }
    }

    /// Discards the answers that were added since.
    pub(super) fn truncate(&mut self, end: &End) {
        self.copied_len_bytes = end.copied_len_bytes;
        (self.borrowed.count, self.borrowed.len_bytes) = (end.borrowed_count, end.borrowed_len_bytes);
    }

    /// Adds bytes, however many.
    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.copied_len_bytes + bytes.len();
        if end > self.buffer.len() {
            self.buffer.resize(end.next_power_of_two(), 0);
        }
        self.buffer[self.copied_len_bytes..end].copy_from_slice(bytes);
        self.copied_len_bytes = end;
    }

    /// Adds bytes that stand at an offset of the records section. They are copied
    /// if they are short.
    #[inline]
    pub(super) fn push_stored(&mut self, bytes: &[u8], offset_bytes: u64) {
        if bytes.len() > COPY_MAX_BYTES {
            let after_copied_bytes = self.copied_len_bytes;
            let piece = Piece { offset_bytes: offset_bytes as usize, len_bytes: bytes.len(), after_copied_bytes };
            if self.borrowed.push(piece).is_some() {
                return;
            }
        }
        self.push(bytes);
    }

    /// Hands on what is to be sent after the first `sent_bytes`, or the beginning of
    /// it, in pieces if some of it is borrowed from the store, which must be the one
    /// asked.
    ///
    /// # Errors
    /// If the store's file has changed since it was asked. What is borrowed can then
    /// not be sent.
    ///
    /// # Panics
    /// If more is said to be sent than there is, or the store is another.
    pub fn with_unsent<T>(
        &mut self,
        store: &Store,
        sent_bytes: usize,
        send: impl FnOnce(&[IoSlice]) -> T,
    ) -> io::Result<T> {
        if sent_bytes == 0 && self.stage.holds_beginning {
            return Ok(send(&[IoSlice::new(&self.stage.bytes)]));
        }
        let copied = &self.buffer[..self.copied_len_bytes];
        let unsent = Sending { copied, pieces: self.borrowed.pieces(), sent_bytes };
        unsent.with(store, &mut self.stage, send)
    }

    /// Copies the beginning of what is borrowed from a file, as long as it is not too
    /// late to answer otherwise. Tells whether the file is as it was.
    #[inline]
    pub(super) fn stage_beginning(&mut self, store: &Store) -> bool {
        if self.borrowed.count == 0 || store.is_private() {
            return true;
        }
        let copied = &self.buffer[..self.copied_len_bytes];
        let sending = Sending { copied, pieces: self.borrowed.pieces(), sent_bytes: 0 };
        self.stage.holds_beginning = sending.copy_to(store, &mut self.stage).is_ok();
        self.stage.holds_beginning
    }

    /// Where what is sent later is copied to.
    pub(super) fn stage(&mut self) -> &mut Stage {
        &mut self.stage
    }

    /// Has one answer instead of the one that would hand something over.
    pub(super) fn replace_by(&mut self, answer: &[u8]) {
        self.clear();
        self.push(answer);
    }

    /// Keeps what is to be sent after the first `sent_bytes`.
    pub(super) fn keep_unsent(&self, sent_bytes: usize, unsent: &mut Unsent) {
        unsent.copied.extend_from_slice(&self.buffer[..self.copied_len_bytes]);
        unsent.pieces.extend_from_slice(self.borrowed.pieces());
        unsent.sent_bytes = sent_bytes;
        unsent.total_len_bytes = self.total_len_bytes();
        unsent.hands_over = self.hands_over && sent_bytes == 0;
    }
}

impl Sink for Answers {
    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

impl Default for Answers {
    fn default() -> Self {
        Answers::new()
    }
}

impl Borrowed {
    fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }

    #[cold]
    pub(super) fn push(&mut self, piece: Piece) -> Option<()> {
        *self.pieces.get_mut(self.count)? = piece;
        self.count += 1;
        self.len_bytes += piece.len_bytes;
        Some(())
    }
}

/// Answers that wait for a client to take them.
#[derive(Default)]
pub(super) struct Unsent {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    sent_bytes: usize,
    total_len_bytes: usize,
    /// Whether descriptors are to go out with the first byte.
    pub(super) hands_over: bool,
}

impl Unsent {
    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes == self.total_len_bytes
    }

    /// The length of what is left.
    pub(super) fn len_bytes(&self) -> usize {
        self.total_len_bytes - self.sent_bytes
    }

    /// Whether some of what is left is sent from the generation that it was looked up in.
    pub(super) fn needs_generation(&self) -> bool {
        !self.is_empty() && (!self.pieces.is_empty() || self.hands_over)
    }

    /// Returns the memory that this has allocated.
    pub(super) fn capacity_bytes(&self) -> usize {
        size_of::<Unsent>() + self.copied.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Forgets what was sent. Some memory is kept: a client that often reads late
    /// costs no allocation each time.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.copied.shrink_to(KEPT_MAX_BYTES);
        self.pieces.clear();
    }

    /// Has one answer instead of the one that would hand something over.
    pub(super) fn replace_by(&mut self, answer: &[u8]) {
        self.clear();
        self.copied.extend_from_slice(answer);
        (self.sent_bytes, self.total_len_bytes, self.hands_over) = (0, answer.len(), false);
    }

    /// Notes that so many bytes more are sent.
    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
        self.hands_over = false;
    }

    /// Hands on what is left, or the beginning of it: see [`Answers::with_unsent`].
    pub(super) fn with<T>(
        &self,
        store: &Store,
        stage: &mut Stage,
        send: impl FnOnce(&[IoSlice]) -> T,
    ) -> io::Result<T> {
        Sending { copied: &self.copied, pieces: &self.pieces, sent_bytes: self.sent_bytes }.with(store, stage, send)
    }
}

/// What was copied from a file, and is sent next.
#[derive(Default)]
pub(super) struct Stage {
    bytes: Vec<u8>,
    /// Whether these are the first of the answers that are there.
    holds_beginning: bool,
}

/// Answers, of which some bytes are sent.
struct Sending<'a> {
    copied: &'a [u8],
    pieces: &'a [Piece],
    sent_bytes: usize,
}

/// A part of them.
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

    fn with<T>(&self, store: &Store, stage: &mut Stage, send: impl FnOnce(&[IoSlice]) -> T) -> io::Result<T> {
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

    /// Copies what is sent next, and makes sure that it is as it was baked.
    fn copy_to(&self, store: &Store, stage: &mut Stage) -> io::Result<()> {
        stage.holds_beginning = false;
        let stage = &mut stage.bytes;
        let changed = || io::Error::other("the file has changed while an answer was on its way");
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
                    if !store.are_sound(range.clone()) {
                        return Err(changed());
                    }
                    stage.extend_from_slice(&store.records()[range]);
                }
            }
        }
        if store.is_unchanged_since(epoch) { Ok(()) } else { Err(changed()) }
    }
}

impl Piece {
    fn range(&self) -> std::ops::Range<usize> {
        self.offset_bytes..self.offset_bytes + self.len_bytes
    }
}

/// Copies `N` to `2 * N` bytes as their first and last `N`, which may overlap:
/// no loop, and no byte beyond. Does nothing for other lengths.
///
/// # Panics
/// If there is less room than bytes.
#[inline(always)]
pub(super) fn copy_halves<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    if from.len() > 2 * N {
        return false;
    }
    to[..N].copy_from_slice(first);
    to[from.len() - N..from.len()].copy_from_slice(last);
    true
}
