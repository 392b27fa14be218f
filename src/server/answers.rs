//! Putting answers together.
//!
//! In: requests. Out: one piece of memory with all small answers, and the large
//! ones borrowed from the file between them. It knows no socket.

use std::io::IoSlice;
use std::ops::ControlFlow;

use zerocopy::IntoBytes;

use crate::format::record::Record;
use crate::protocol::native::{Op, Request, ResponseHeader, Status};
use crate::store::{Place, Store};

/// Requests that are answered in one pass, at most.
pub(super) const PASS_REQUESTS_MAX: usize = 1024;

/// Records up to this length are copied, longer ones are borrowed.
const COPY_MAX_BYTES: usize = 4096;
/// What the copied answers of one pass take up, at most.
const COPIED_MAX_BYTES: usize = 64 << 10;
/// Records that are borrowed in one pass, at most.
const BORROWED_MAX: usize = 31;
/// Keys that are looked up at a time.
const LOOKUP_KEYS: usize = 256;

const NOT_FOUND: ResponseHeader = ResponseHeader::bare(Status::NotFound);
const FOUND: ResponseHeader = ResponseHeader::bare(Status::Ok);
const ERROR: ResponseHeader = ResponseHeader::bare(Status::Error);

/// The answers of one pass. Belongs to a worker; connections use it in turn.
pub(super) struct Answers {
    /// Each answer's length.
    lens_bytes: [u32; PASS_REQUESTS_MAX],
    count: usize,
    copied: Box<[u8]>,
    copied_len_bytes: usize,
    borrowed: [Borrowed; BORROWED_MAX],
    borrowed_count: usize,
    borrowed_len_bytes: usize,
}

/// A record that goes out from the file itself.
#[derive(Clone, Copy)]
struct Borrowed {
    place: Place,
    /// Copied bytes that go out before it.
    after_copied_bytes: usize,
}

enum Answer<'a> {
    Record(Record<'a>),
    Header(ResponseHeader),
}

impl Answers {
    pub(super) fn new() -> Self {
        let borrowed = Borrowed { place: Place::MISSING, after_copied_bytes: 0 };
        Answers {
            lens_bytes: [0; PASS_REQUESTS_MAX],
            count: 0,
            copied: vec![0; COPIED_MAX_BYTES].into(),
            copied_len_bytes: 0,
            borrowed: [borrowed; BORROWED_MAX],
            borrowed_count: 0,
            borrowed_len_bytes: 0,
        }
    }

    /// Answers as many of the requests as fit into one pass, at least one.
    pub(super) fn assemble(&mut self, store: &Store, requests: &[Request]) {
        (self.count, self.copied_len_bytes) = (0, 0);
        (self.borrowed_count, self.borrowed_len_bytes) = (0, 0);
        let records = store.records();
        let mut keys = [0; LOOKUP_KEYS];
        for requests in requests[..requests.len().min(PASS_REQUESTS_MAX)].chunks(LOOKUP_KEYS) {
            for (key, request) in keys.iter_mut().zip(requests) {
                *key = request.key();
            }
            let answered_before = self.count;
            store.find_each(&keys[..requests.len()], |i, place| {
                let request = &requests[i];
                if self.push_short(records, request, place) || self.push(records, request, place) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            if self.count < answered_before + requests.len() {
                return;
            }
        }
    }

    /// How many requests were answered.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The length of all answers together.
    pub(super) fn total_len_bytes(&self) -> usize {
        self.copied_len_bytes + self.borrowed_len_bytes
    }

    /// Turns a number of bytes sent into answers sent whole, and bytes sent of
    /// the one after them.
    pub(super) fn sent(&self, sent_bytes: usize) -> (usize, usize) {
        let mut rest_bytes = sent_bytes;
        for (i, len_bytes) in self.lens_bytes[..self.count].iter().enumerate() {
            match rest_bytes.checked_sub(*len_bytes as usize) {
                Some(less) => rest_bytes = less,
                None => return (i, rest_bytes),
            }
        }
        (self.count, rest_bytes)
    }

    /// Hands on what is to be sent after the first `sent_bytes`, in pieces if
    /// some of it is borrowed.
    pub(super) fn with_unsent<T>(&self, store: &Store, sent_bytes: usize, send: impl FnOnce(&[IoSlice]) -> T) -> T {
        let copied = &self.copied[..self.copied_len_bytes];
        if self.borrowed_count == 0 {
            return send(&[IoSlice::new(&copied[sent_bytes..])]);
        }
        let mut pieces = [IoSlice::new(&[]); 2 * BORROWED_MAX + 1];
        let mut count = 0;
        let mut add = |piece| {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        };
        let mut copied_from = 0;
        for Borrowed { place, after_copied_bytes } in &self.borrowed[..self.borrowed_count] {
            add(&copied[copied_from..*after_copied_bytes]);
            copied_from = *after_copied_bytes;
            let record = Record::at(store.records(), place.offset_bytes);
            add(record.map(|record| record.answer()).unwrap_or_default());
        }
        add(&copied[copied_from..]);
        let mut unsent = &mut pieces[..count];
        IoSlice::advance_slices(&mut unsent, sent_bytes);
        send(unsent)
    }

    /// Adds the answer to a Get if it is a short value, as most are, and there is
    /// room.
    #[inline(always)]
    fn push_short(&mut self, records: &[u8], request: &Request, place: Place) -> bool {
        let Some(record) = Record::at(records, place.offset_bytes) else { return false };
        let answer = record.answer();
        if request.op_code() != Op::Get as u32 {
            return false;
        }
        let Some(to) = self.copied.get_mut(self.copied_len_bytes..self.copied_len_bytes + answer.len()) else {
            return false;
        };
        // An answer is no shorter than its header, 8 bytes.
        let copied = copy_halves::<32>(answer, to) || copy_halves::<16>(answer, to) || copy_halves::<8>(answer, to);
        if copied {
            self.copied_len_bytes += answer.len();
            self.count_answer(answer.len());
        }
        copied
    }

    /// Adds any answer, or tells that there is no room for it.
    fn push(&mut self, records: &[u8], request: &Request, place: Place) -> bool {
        let answer = answer(records, request, place);
        let copied: &[u8] = match &answer {
            Answer::Record(record) if record.answer_len_bytes() > COPY_MAX_BYTES => {
                if self.borrowed_count == BORROWED_MAX {
                    return false;
                }
                self.borrowed[self.borrowed_count] = Borrowed { place, after_copied_bytes: self.copied_len_bytes };
                self.borrowed_count += 1;
                self.borrowed_len_bytes += record.answer_len_bytes();
                self.count_answer(record.answer_len_bytes());
                return true;
            }
            Answer::Record(record) => record.answer(),
            Answer::Header(header) => header.as_bytes(),
        };
        let Some(to) = self.copied[self.copied_len_bytes..].get_mut(..copied.len()) else { return false };
        to.copy_from_slice(copied);
        self.copied_len_bytes += copied.len();
        self.count_answer(copied.len());
        true
    }

    #[inline(always)]
    fn count_answer(&mut self, len_bytes: usize) {
        self.lens_bytes[self.count] = len_bytes as u32; // an answer is at most 1 GiB and 8 bytes
        self.count += 1;
    }
}

/// Copies `N` to `2 * N` bytes as their first and last `N`, which may overlap:
/// no loop, and no byte beyond. Does nothing for other lengths.
#[inline(always)]
fn copy_halves<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    if from.len() > 2 * N || to.len() != from.len() {
        return false;
    }
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    if let Some(to) = to.first_chunk_mut() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut() {
        *to = *last;
    }
    true
}

#[inline(always)]
fn answer<'a>(records: &'a [u8], request: &Request, place: Place) -> Answer<'a> {
    match Op::from_code(request.op_code()) {
        Some(Op::Get) => match Record::at(records, place.offset_bytes) {
            Some(record) => Answer::Record(record),
            None if place == Place::MISSING => Answer::Header(NOT_FOUND),
            None => Answer::Header(ERROR),
        },
        Some(Op::Exists) if place == Place::MISSING => Answer::Header(NOT_FOUND),
        Some(Op::Exists) => Answer::Header(FOUND),
        None => Answer::Header(ERROR),
    }
}
