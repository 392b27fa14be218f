//! Answers, until they are sent.
//!
//! In: bytes to copy, and bytes of the file to borrow. Out: pieces of memory in
//! the order in which they go out. It knows no protocol and no socket.

use std::io::IoSlice;

use crate::protocol::resp::Sink;
use crate::store::Store;

/// Answers up to this length are copied, longer ones are borrowed.
pub(super) const COPY_MAX_BYTES: usize = 4096;
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

impl Answers {
    /// None, with room for a pass.
    pub fn new() -> Self {
        let borrowed = Borrowed { pieces: [Piece::default(); BORROWED_MAX], count: 0, len_bytes: 0 };
        Answers { buffer: vec![0; COPIED_MAX_BYTES], copied_len_bytes: 0, borrowed }
    }

    /// Forgets all answers.
    pub fn clear(&mut self) {
        (self.copied_len_bytes, self.borrowed.count, self.borrowed.len_bytes) = (0, 0, 0);
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

    /// Hands on what is to be sent after the first `sent_bytes`, in pieces if
    /// some of it is borrowed from the store, which must be the one asked.
    ///
    /// # Panics
    /// If more is said to be sent than there is, or the store is another.
    pub fn with_unsent<T>(&self, store: &Store, sent_bytes: usize, send: impl FnOnce(&[IoSlice]) -> T) -> T {
        let copied = &self.buffer[..self.copied_len_bytes];
        with_unsent(copied, self.borrowed.pieces(), store, sent_bytes, send)
    }

    /// Keeps what is to be sent after the first `sent_bytes`.
    pub(super) fn keep_unsent(&self, sent_bytes: usize, unsent: &mut Unsent) {
        unsent.copied.extend_from_slice(&self.buffer[..self.copied_len_bytes]);
        unsent.pieces.extend_from_slice(self.borrowed.pieces());
        unsent.sent_bytes = sent_bytes;
        unsent.total_len_bytes = self.total_len_bytes();
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
}

impl Unsent {
    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.sent_bytes == self.total_len_bytes
    }

    /// Forgets what was sent. Some memory is kept: a client that often reads late
    /// costs no allocation each time.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.copied.shrink_to(KEPT_MAX_BYTES);
        self.pieces.clear();
    }

    /// Notes that so many bytes more are sent.
    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
    }

    /// Hands on what is left.
    pub(super) fn with<T>(&self, store: &Store, send: impl FnOnce(&[IoSlice]) -> T) -> T {
        with_unsent(&self.copied, &self.pieces, store, self.sent_bytes, send)
    }
}

fn with_unsent<T>(
    copied: &[u8],
    pieces: &[Piece],
    store: &Store,
    sent_bytes: usize,
    send: impl FnOnce(&[IoSlice]) -> T,
) -> T {
    if pieces.is_empty() {
        return send(&[IoSlice::new(&copied[sent_bytes..])]);
    }
    let mut slices = [IoSlice::new(&[]); 2 * BORROWED_MAX + 1];
    let mut count = 0;
    let mut add = |slice| {
        slices[count] = IoSlice::new(slice);
        count += 1;
    };
    let mut copied_from = 0;
    for Piece { offset_bytes, len_bytes, after_copied_bytes } in pieces {
        add(&copied[copied_from..*after_copied_bytes]);
        copied_from = *after_copied_bytes;
        add(&store.records()[*offset_bytes..offset_bytes + len_bytes]);
    }
    add(&copied[copied_from..]);
    let mut unsent = &mut slices[..count];
    IoSlice::advance_slices(&mut unsent, sent_bytes);
    send(unsent)
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
