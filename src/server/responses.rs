//! The responses of one pass, until they are sent.
//!
//! In: bytes to copy, and ranges of the file to borrow. Out: pieces of memory in the order in which they are sent. This
//! module does not depend on a protocol or a socket.
//!
//! Reasons and evidence: `docs/decisions/copied-responses.md`.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use super::turns::{PASS_STEPS_MAX, Steps};
use crate::format::OwnedKey;
use crate::format::key::Key;
use crate::format::record::SHORT_MAX_BYTES;
use crate::store::{ColdLookup, ShortAnswer, Store};

/// The maximum length of a stored byte string that is copied. Longer byte strings are borrowed from the file's mapping.
const COPY_MAX_BYTES: usize = 4096;
/// The maximum length of the frame that a protocol writes around stored bytes.
const FRAME_LEN_MAX_BYTES: usize = 32;
/// The maximum length of the copied bytes of one pass. Only the last copied response may take the total past this
/// length.
const COPIED_MAX_BYTES: usize = 64 << 10;

/// The responses of one pass, in the form in which they are sent.
///
/// Each worker has one value of this type, which one connection at a time uses. The type is public for benches, and for
/// servers that serve the native protocol over something other than this server's sockets.
pub struct Responses {
    /// The copied bytes, followed by free room.
    buffer: Vec<u8>,
    copied_len_bytes: usize,
    borrowed: Borrowed,
    /// The reply that shared pieces are ranges of.
    shared: Option<Arc<[u8]>>,
    /// Bytes of a shared mapping that are copied just before they are sent.
    stage: Vec<u8>,
    /// Whether `stage` has the first bytes of the responses.
    is_staged: bool,
    /// Whether descriptors are passed with the first byte. If they are, there is only one response, and it is short.
    passes_descriptors: bool,
    steps: Steps,
    /// The number of steps after which a pass ends.
    pass_steps_max: usize,
    cold: ColdLookups,
    /// A buffer for the text of one cell. It keeps its memory between replies.
    text: Vec<u8>,
}

/// The ranges that are sent directly from the file, or from the shared reply.
struct Borrowed {
    pieces: [Piece; BORROWED_MAX],
    count: usize,
    /// The number of ranges after which the responses are sent before more are added.
    full_count: usize,
    len_bytes: usize,
}

/// A position between two responses, for [`Responses::truncate`].
pub(super) struct End {
    copied_len_bytes: usize,
    borrowed_count: usize,
    borrowed_len_bytes: usize,
}

impl Responses {
    /// Creates an empty buffer with room for the responses of one pass.
    pub fn new() -> Self {
        let pieces = [Piece::default(); BORROWED_MAX];
        let borrowed = Borrowed { pieces, count: 0, full_count: BORROWED_MAX, len_bytes: 0 };
        Responses {
            buffer: vec![0; COPIED_MAX_BYTES],
            copied_len_bytes: 0,
            borrowed,
            shared: None,
            stage: Vec::new(),
            is_staged: false,
            passes_descriptors: false,
            steps: Steps::begin(PASS_STEPS_MAX),
            pass_steps_max: PASS_STEPS_MAX,
            cold: ColdLookups::default(),
            text: Vec::new(),
        }
    }

    /// Discards all responses.
    pub fn clear(&mut self) {
        (self.copied_len_bytes, self.borrowed.count, self.borrowed.len_bytes) = (0, 0, 0);
        self.borrowed.full_count = BORROWED_MAX;
        self.shared = None;
        (self.is_staged, self.passes_descriptors) = (false, false);
        self.steps = Steps::begin(self.pass_steps_max);
        self.cold.begin_pass();
        if self.buffer.len() > COPIED_MAX_BYTES {
            self.buffer.truncate(COPIED_MAX_BYTES);
            self.buffer.shrink_to_fit();
        }
    }

    /// Sets the number of steps after which each later pass ends.
    pub(super) fn limit_passes(&mut self, steps_max: usize) {
        self.pass_steps_max = steps_max;
    }

    /// Returns the length of all responses together.
    pub fn total_len_bytes(&self) -> usize {
        self.copied_len_bytes + self.borrowed.len_bytes
    }

    pub(super) fn copied(&self) -> &[u8] {
        &self.buffer[..self.copied_len_bytes]
    }

    /// Returns the counter of the steps that these responses took.
    #[inline(always)]
    pub(super) fn steps(&mut self) -> &mut Steps {
        &mut self.steps
    }

    #[inline(always)]
    pub(super) fn cold(&mut self) -> &mut ColdLookups {
        &mut self.cold
    }

    /// Returns how many of the next `count` lookups can be answered now: see [`ColdLookups::ready_count`].
    #[inline(always)]
    pub(super) fn ready_count<'k>(
        &mut self,
        store: &Store,
        count: usize,
        lookup_at: impl Fn(usize) -> ColdLookup<Key<'k>>,
    ) -> usize {
        if !store.may_be_cold() {
            return count;
        }
        self.cold.ready_count(store, count, lookup_at, &mut self.steps)
    }

    /// Returns whether the responses should be sent before more are added. If not, there is room for one more response
    /// of any length, including the frame that its protocol writes around stored bytes.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.copied_len_bytes + COPY_MAX_BYTES + FRAME_LEN_MAX_BYTES > COPIED_MAX_BYTES
            || self.borrowed.count >= self.borrowed.full_count
    }

    /// Returns the end of the responses, for [`Responses::truncate`].
    pub(super) fn end(&self) -> End {
        End {
            copied_len_bytes: self.copied_len_bytes,
            borrowed_count: self.borrowed.count,
            borrowed_len_bytes: self.borrowed.len_bytes,
        }
    }

    pub(super) fn truncate(&mut self, end: &End) {
        self.copied_len_bytes = end.copied_len_bytes;
        (self.borrowed.count, self.borrowed.len_bytes) = (end.borrowed_count, end.borrowed_len_bytes);
        if !self.borrowed.pieces[..self.borrowed.count].iter().any(|piece| piece.is_shared) {
            (self.shared, self.borrowed.full_count) = (None, BORROWED_MAX);
        }
    }

    /// Appends bytes of any length. Allocates if there is no room.
    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.copied_len_bytes + bytes.len();
        if end > self.buffer.len() {
            self.buffer.resize(end.next_power_of_two(), 0);
        }
        self.buffer[self.copied_len_bytes..end].copy_from_slice(bytes);
        self.copied_len_bytes = end;
    }

    /// Appends bytes that are stored at an offset of the records section. Copies the bytes if they are short, or if the
    /// maximum number of ranges is already borrowed.
    #[inline]
    pub(super) fn push_stored(&mut self, bytes: &[u8], offset_bytes: u64) {
        if bytes.len() <= COPY_MAX_BYTES
            || self.borrowed.push(Piece::stored(bytes.len(), offset_bytes, self.copied_len_bytes)).is_none()
        {
            self.push(bytes);
        }
    }

    /// Appends a reply that many connections share. A long reply is sent without a copy, and ends the pass.
    pub(super) fn push_shared(&mut self, reply: &Arc<[u8]>) {
        if reply.len() <= COPY_MAX_BYTES
            || self.shared.is_some()
            || self
                .borrowed
                .push(Piece {
                    offset_bytes: 0,
                    len_bytes: reply.len(),
                    after_copied_bytes: self.copied_len_bytes,
                    is_shared: true,
                })
                .is_none()
        {
            return self.push(reply);
        }
        self.shared = Some(Arc::clone(reply));
        self.borrowed.full_count = self.borrowed.count;
    }

    /// Appends a header, and then bytes that are stored at an offset of the records section, as [`Responses::push`] and
    /// [`Responses::push_stored`] do.
    #[inline(always)]
    pub(super) fn push_headed<const N: usize>(&mut self, header: &[u8; N], bytes: &[u8], offset_bytes: u64) {
        if bytes.len() <= COPY_MAX_BYTES
            && let Some((to, rest)) = self.room().split_first_chunk_mut::<N>()
            && copy(bytes, rest).is_some()
        {
            *to = *header;
            self.advance(N + bytes.len());
            return;
        }
        self.push(header);
        self.push_stored(bytes, offset_bytes);
    }

    /// Returns the free room of the buffer. The caller writes into it, and then calls [`Responses::advance`].
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.copied_len_bytes..).unwrap_or_default()
    }

    /// Appends the first `len_bytes` bytes that the caller has written into [`Responses::room`].
    #[inline(always)]
    pub(super) fn advance(&mut self, len_bytes: usize) {
        self.copied_len_bytes += len_bytes;
    }

    /// Calls `run` with an appender and the steps of the pass. `run` appends responses in a loop.
    #[inline(always)]
    pub(super) fn append<T>(&mut self, run: impl FnOnce(&mut Appender<'_>, &Steps) -> T) -> T {
        let Responses { buffer, copied_len_bytes, borrowed, steps, .. } = self;
        let buffer_len_bytes = buffer.len();
        let mut appender =
            Appender { room: buffer.get_mut(*copied_len_bytes..).unwrap_or_default(), buffer_len_bytes, borrowed };
        let done = run(&mut appender, steps);
        *copied_len_bytes = appender.end_bytes();
        done
    }

    /// Marks the responses, so that descriptors are passed with their first byte.
    pub(super) fn pass_descriptors(&mut self) {
        self.passes_descriptors = true;
    }

    /// Returns the responses, none of which is sent yet.
    #[inline]
    pub(super) fn unsent(&mut self) -> Unsent<'_> {
        let total_len_bytes = self.total_len_bytes();
        Unsent {
            copied: &self.buffer[..self.copied_len_bytes],
            pieces: &self.borrowed.pieces[..self.borrowed.count],
            shared: self.shared.as_ref(),
            sent_bytes: 0,
            total_len_bytes,
            passes_descriptors: self.passes_descriptors,
            refusal: None,
            stage: &mut self.stage,
            is_staged: self.is_staged,
        }
    }

    /// Calls `send` with the unsent bytes: all bytes except the first `sent_bytes`. If some of the unsent bytes must be
    /// copied from a shared mapping, calls `send` with only as many bytes as fit into the buffer for these copies.
    /// `send` gets several pieces if some of the bytes are borrowed from `store`. `store` must be the store that the
    /// responses were read from.
    ///
    /// # Errors
    /// If the store's file was changed since the responses were read from it, so that borrowed bytes cannot be sent.
    ///
    /// # Panics
    /// If `sent_bytes` exceeds the length of the responses, or if `store` is not the store that the responses were read
    /// from.
    pub fn with_unsent<T>(
        &mut self,
        store: &Store,
        sent_bytes: usize,
        send: impl FnOnce(&[IoSlice]) -> T,
    ) -> io::Result<T> {
        let mut unsent = self.unsent();
        unsent.advance(sent_bytes);
        unsent.with(store, send)
    }

    /// If the responses borrow bytes from a shared mapping, copies the first bytes of the responses into
    /// [`Responses::stage`]. Returns false if the file was changed. The caller can then still answer the requests with
    /// errors, because no byte has been sent.
    #[inline]
    pub(super) fn stage_beginning(&mut self, store: &Store) -> bool {
        if !need_store(&self.borrowed.pieces[..self.borrowed.count]) || store.is_private() {
            return true;
        }
        self.is_staged = self.unsent().fill_stage(store).is_ok();
        self.is_staged
    }

    /// Appends what `write` writes with the responses and an empty buffer for texts. The buffer keeps its memory.
    #[inline]
    pub(super) fn with_text<T>(&mut self, write: impl FnOnce(&mut Responses, &mut Vec<u8>) -> T) -> T {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let done = write(self, &mut text);
        self.text = text;
        done
    }

    /// Returns the buffer for bytes that are copied just before they are sent.
    pub(super) fn stage(&mut self) -> &mut Vec<u8> {
        &mut self.stage
    }
}

impl Default for Responses {
    fn default() -> Self {
        Responses::new()
    }
}

impl Borrowed {
    /// Appends a range. Returns `None` if the responses already have the maximum number of ranges.
    #[cold]
    fn push(&mut self, piece: Piece) -> Option<()> {
        *self.pieces.get_mut(self.count)? = piece;
        self.count += 1;
        self.len_bytes += piece.len_bytes;
        Some(())
    }
}

/// Appends responses in the loop that [`Responses::append`] runs.
pub(super) struct Appender<'a> {
    /// The free room at the end of the buffer.
    room: &'a mut [u8],
    buffer_len_bytes: usize,
    borrowed: &'a mut Borrowed,
}

impl Appender<'_> {
    /// Appends bytes that are stored at an offset of the records section. Copies the bytes if they are short, and
    /// borrows them otherwise. Returns `None` if there is no room.
    #[inline(always)]
    pub(super) fn push_stored(&mut self, bytes: &[u8], offset_bytes: u64) -> Option<()> {
        if bytes.len() <= COPY_MAX_BYTES {
            copy(bytes, self.room)?;
            self.advance(bytes.len());
            return Some(());
        }
        self.borrowed.push(Piece::stored(bytes.len(), offset_bytes, self.end_bytes()))
    }

    /// Appends a header, and then bytes that are stored at an offset of the records section, as
    /// [`Appender::push_stored`] does. Returns `None` if there is no room for both.
    #[inline(always)]
    pub(super) fn push_headed<const N: usize>(
        &mut self,
        header: &[u8; N],
        bytes: &[u8],
        offset_bytes: u64,
    ) -> Option<()> {
        let header_end_bytes = self.end_bytes() + N;
        let (to, rest) = self.room.split_first_chunk_mut::<N>()?;
        let mut copied_len_bytes = N;
        if bytes.len() <= COPY_MAX_BYTES {
            copy(bytes, rest)?;
            copied_len_bytes += bytes.len();
        } else {
            self.borrowed.push(Piece::stored(bytes.len(), offset_bytes, header_end_bytes))?;
        }
        *to = *header;
        self.advance(copied_len_bytes);
        Some(())
    }

    /// Appends a short response. Returns `None` if there is no room for [`SHORT_MAX_BYTES`].
    #[inline(always)]
    pub(super) fn push_short(&mut self, answer: ShortAnswer<'_>) -> Option<()> {
        let from = answer.window.get(..answer.len_bytes)?;
        if !copy_short(from, self.room.first_chunk_mut()?) {
            return None;
        }
        self.advance(from.len());
        Some(())
    }

    /// Returns the free room of the buffer. The caller writes into it, and then calls [`Appender::advance`].
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.room
    }

    /// Appends the first `len_bytes` bytes that the caller has written into [`Appender::room`].
    #[inline(always)]
    pub(super) fn advance(&mut self, len_bytes: usize) {
        self.room = &mut std::mem::take(&mut self.room)[len_bytes..];
    }

    #[inline(always)]
    fn end_bytes(&self) -> usize {
        self.buffer_len_bytes - self.room.len()
    }
}

/// Copies bytes to the beginning of a buffer. Returns `None` if there is no room.
#[inline(always)]
fn copy(bytes: &[u8], to: &mut [u8]) -> Option<()> {
    if let Some(to) = to.first_chunk_mut()
        && copy_short(bytes, to)
    {
        return Some(());
    }
    to.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(())
}

/// Copies 8 to [`SHORT_MAX_BYTES`] bytes to the beginning of `to` and returns true. Returns false if `from` has another
/// length. Every response has at least the 8 bytes of a header.
#[inline(always)]
fn copy_short(from: &[u8], to: &mut [u8; SHORT_MAX_BYTES]) -> bool {
    copy_halves::<32>(from, to) || copy_halves::<16>(from, to) || copy_halves::<8>(from, to)
}

/// If `from` has `N` to `2 * N` bytes, copies it to the beginning of `to` and returns true. Otherwise, returns false.
/// Copies the first `N` bytes and then the last `N` bytes, which may overlap the first, so the copy needs no loop and
/// writes no byte beyond the copied bytes.
///
/// # Panics
/// If `to` is shorter than `from`.
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

/// The maximum number of lookups of one connection whose pages are read together.
const BATCH_LOOKUPS: usize = 64;
/// The maximum total length of the keys of these lookups. Only the last key may take the total past this length.
const BATCH_KEYS_LEN_BYTES: usize = 64 << 10;
const EXAMINE_STEPS: usize = 8;
/// The number of lookups that are examined between two checks of the time limit.
const TIMED_LOOKUPS: usize = 16;

/// The lookups of a connection that wait for the disk.
#[derive(Default)]
pub(super) struct ColdLookups {
    /// The number of lookups whose pages were read before this pass. They are the first lookups of the pass.
    read_count: usize,
    /// The value of `read_count` in the next pass.
    next_read_count: usize,
    /// The lookups whose pages must be read before the next pass.
    waiting: Vec<ColdLookup<OwnedKey>>,
}

impl ColdLookups {
    /// Records that the pages of the first `count` lookups of the next pass were read.
    pub(super) fn were_read(&mut self, count: usize) {
        self.next_read_count = count;
    }

    pub(super) fn begin_pass(&mut self) {
        self.read_count = std::mem::take(&mut self.next_read_count);
        self.waiting.clear();
    }

    /// Returns whether the pass must end, because the next lookup waits for the disk.
    #[inline(always)]
    pub(super) fn must_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the lookups whose pages must be read before the next pass.
    pub(super) fn take_waiting(&mut self) -> Vec<ColdLookup<OwnedKey>> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns how many of the next `count` lookups can be answered now. If the result is less than `count`, either the
    /// lookup after them waits for the disk, or the pass must end for another reason.
    ///
    /// Lookups whose pages were read before this pass are not examined again: if the system has discarded the pages
    /// meanwhile, the lookups wait for the disk, but every pass makes progress.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_count<'k>(
        &mut self,
        store: &Store,
        count: usize,
        lookup_at: impl Fn(usize) -> ColdLookup<Key<'k>>,
        steps: &mut Steps,
    ) -> usize {
        let read_count = std::mem::take(&mut self.read_count);
        // A pass that examined these lookups again could wait again and again while memory is short.
        if read_count > 0 {
            return read_count.min(count);
        }
        let mut ready_count = 0;
        while ready_count < count {
            if ready_count > 0 && ready_count.is_multiple_of(TIMED_LOOKUPS) && steps.is_pass_over() {
                break;
            }
            steps.add(EXAMINE_STEPS);
            let lookup = lookup_at(ready_count);
            if !store.is_ready(&lookup) {
                self.wait_for(lookup, (ready_count + 1..count).map(lookup_at), steps);
                break;
            }
            ready_count += 1;
        }
        ready_count
    }

    fn wait_for<'k>(
        &mut self,
        first: ColdLookup<Key<'k>>,
        next: impl Iterator<Item = ColdLookup<Key<'k>>>,
        steps: &mut Steps,
    ) {
        let mut keys_len_bytes = 0;
        for lookup in std::iter::once(first).chain(next).take(BATCH_LOOKUPS) {
            let lookup = lookup.to_owned();
            keys_len_bytes += lookup.keys_len_bytes();
            steps.add(EXAMINE_STEPS);
            self.waiting.push(lookup);
            if keys_len_bytes > BATCH_KEYS_LEN_BYTES {
                break;
            }
        }
    }
}

/// The maximum number of ranges that the responses of one pass borrow from the file.
const BORROWED_MAX: usize = 31;
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
        // Another process could overwrite the file while the kernel copies from the mapping, after the bytes were
        // verified.
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
