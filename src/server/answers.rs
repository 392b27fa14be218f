//! Putting answers together.
//!
//! In: requests. Out: one piece of memory with all small answers, and the large
//! ones borrowed from the file between them. It knows no socket.

use std::io::IoSlice;
use std::ops::ControlFlow;

use zerocopy::FromBytes;

use crate::format::record::KEY_LEN_BYTES;
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use crate::store::{Found, Store};

/// Requests that are answered in one pass, at most.
pub(super) const PASS_REQUESTS_MAX: usize = 1024;

/// Records up to this length are copied, longer ones are borrowed.
const COPY_MAX_BYTES: usize = 4096;
/// What the copied answers of one pass take up, at most.
const COPIED_MAX_BYTES: usize = 64 << 10;
/// Records that are borrowed in one pass, at most.
const BORROWED_MAX: usize = 31;

/// Answers up to this length are copied as two pieces that may overlap.
const SHORT_MAX_BYTES: usize = 64;

const NOT_FOUND: ResponseHeader = ResponseHeader::bare(Status::NotFound);
const FOUND: ResponseHeader = ResponseHeader::bare(Status::Ok);
const ERROR: ResponseHeader = ResponseHeader::bare(Status::Error);

/// The answers to one pass of requests, as they go out.
///
/// Belongs to a worker; connections use it in turn. Public for whoever serves the
/// native protocol over something else than this server's sockets, and to be
/// measured by itself.
pub struct Answers {
    count: usize,
    copied: Box<[u8]>,
    copied_len_bytes: usize,
    borrowed: Borrowed,
}

/// The answers that go out from the file itself.
struct Borrowed {
    pieces: [Piece; BORROWED_MAX],
    count: usize,
    len_bytes: usize,
}

/// One of them.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// Where it begins in the records section.
    offset_bytes: usize,
    len_bytes: usize,
    /// Copied bytes that go out before it.
    after_copied_bytes: usize,
}

impl Answers {
    /// None, with room for a pass.
    pub fn new() -> Self {
        let borrowed = Borrowed { pieces: [Piece::default(); BORROWED_MAX], count: 0, len_bytes: 0 };
        Answers { count: 0, copied: vec![0; COPIED_MAX_BYTES].into(), copied_len_bytes: 0, borrowed }
    }

    /// Answers as many of the requests as fit into one pass, at least one, and
    /// forgets the answers before.
    pub fn assemble(&mut self, store: &Store, requests: &[Request]) {
        (self.borrowed.count, self.borrowed.len_bytes) = (0, 0);
        let requests = &requests[..requests.len().min(PASS_REQUESTS_MAX)];
        let copied = &mut *self.copied;
        let (mut count, mut copied_len_bytes) = (0, 0);
        store.find_each(
            requests.len(),
            |i| requests[i].key(),
            |i, found| match answer(requests[i].op_code(), found, copied, copied_len_bytes, &mut self.borrowed) {
                Some(len_bytes) => {
                    copied_len_bytes += len_bytes;
                    count += 1;
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Break(()),
            },
        );
        (self.count, self.copied_len_bytes) = (count, copied_len_bytes);
    }

    /// How many requests were answered.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The length of all answers together.
    pub fn total_len_bytes(&self) -> usize {
        self.copied_len_bytes + self.borrowed.len_bytes
    }

    /// Turns a number of bytes sent into answers sent whole, and bytes sent of
    /// the one after them.
    pub fn sent(&self, sent_bytes: usize) -> (usize, usize) {
        let (mut rest_bytes, mut copied_at) = (sent_bytes, 0);
        let mut pieces = self.borrowed.pieces().iter().peekable();
        for i in 0..self.count {
            let len_bytes = match pieces.next_if(|piece| piece.after_copied_bytes == copied_at) {
                Some(piece) => piece.len_bytes,
                None => {
                    let header = ResponseHeader::ref_from_prefix(&self.copied[copied_at..]);
                    let len_bytes =
                        header.map_or(0, |(header, _)| RESPONSE_HEADER_LEN_BYTES + header.value_len_bytes());
                    copied_at += len_bytes;
                    len_bytes
                }
            };
            match rest_bytes.checked_sub(len_bytes) {
                Some(less) => rest_bytes = less,
                None => return (i, rest_bytes),
            }
        }
        (self.count, rest_bytes)
    }

    /// Hands on what is to be sent after the first `sent_bytes`, in pieces if
    /// some of it is borrowed from the store, which must be the one asked.
    ///
    /// # Panics
    /// If more is said to be sent than there is, or the store is another.
    pub fn with_unsent<T>(&self, store: &Store, sent_bytes: usize, send: impl FnOnce(&[IoSlice]) -> T) -> T {
        let copied = &self.copied[..self.copied_len_bytes];
        if self.borrowed.count == 0 {
            return send(&[IoSlice::new(&copied[sent_bytes..])]);
        }
        let mut slices = [IoSlice::new(&[]); 2 * BORROWED_MAX + 1];
        let mut count = 0;
        let mut add = |slice| {
            slices[count] = IoSlice::new(slice);
            count += 1;
        };
        let mut copied_from = 0;
        for Piece { offset_bytes, len_bytes, after_copied_bytes } in self.borrowed.pieces() {
            add(&copied[copied_from..*after_copied_bytes]);
            copied_from = *after_copied_bytes;
            add(&store.records()[*offset_bytes..offset_bytes + len_bytes]);
        }
        add(&copied[copied_from..]);
        let mut unsent = &mut slices[..count];
        IoSlice::advance_slices(&mut unsent, sent_bytes);
        send(unsent)
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
    fn push(&mut self, piece: Piece) -> Option<()> {
        *self.pieces.get_mut(self.count)? = piece;
        self.count += 1;
        self.len_bytes += piece.len_bytes;
        Some(())
    }
}

/// Copies an answer, or borrows it, and tells how many bytes were copied. `None`
/// if there is no room for it.
#[inline(always)]
fn answer(
    op_code: u32,
    found: Found<'_>,
    copied: &mut [u8],
    at_bytes: usize,
    borrowed: &mut Borrowed,
) -> Option<usize> {
    if let Found::Record(record, offset_bytes) = found
        && op_code == Op::Get as u32
    {
        let answer = record.answer();
        if answer.len() <= COPY_MAX_BYTES {
            copy(answer, copied.get_mut(at_bytes..)?)?;
            return Some(answer.len());
        }
        let offset_bytes = offset_bytes as usize + KEY_LEN_BYTES;
        borrowed.push(Piece { offset_bytes, len_bytes: answer.len(), after_copied_bytes: at_bytes })?;
        return Some(0);
    }
    let header = match (Op::from_code(op_code), found) {
        (Some(_), Found::Missing) => NOT_FOUND,
        (Some(Op::Exists), _) => FOUND,
        _ => ERROR,
    };
    *copied.get_mut(at_bytes..)?.first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()? = zerocopy::transmute!(header);
    Some(RESPONSE_HEADER_LEN_BYTES)
}

/// Copies an answer to the front of a buffer, if there is room.
#[inline(always)]
fn copy(answer: &[u8], to: &mut [u8]) -> Option<()> {
    if let Some(to) = to.first_chunk_mut()
        // An answer is no shorter than its header, 8 bytes.
        && (copy_halves::<32>(answer, to) || copy_halves::<16>(answer, to) || copy_halves::<8>(answer, to))
    {
        return Some(());
    }
    to.get_mut(..answer.len())?.copy_from_slice(answer);
    Some(())
}

/// Copies `N` to `2 * N` bytes as their first and last `N`, which may overlap:
/// no loop, and no byte beyond. Does nothing for other lengths.
#[inline(always)]
fn copy_halves<const N: usize>(from: &[u8], to: &mut [u8; SHORT_MAX_BYTES]) -> bool {
    const { assert!(2 * N <= SHORT_MAX_BYTES) };
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    if from.len() > 2 * N {
        return false;
    }
    to[..N].copy_from_slice(first);
    to[from.len() - N..from.len()].copy_from_slice(last);
    true
}
