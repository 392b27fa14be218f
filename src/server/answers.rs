//! Putting answers together.
//!
//! In: requests. Out: one piece of memory with all small answers, and the large
//! ones borrowed from the file between them. It knows no socket.

use std::io::IoSlice;

use zerocopy::IntoBytes;

use crate::format::record::{Locator, Record};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use crate::store::Store;

/// Requests that are answered in one pass, at most.
pub(super) const PASS_REQUESTS_MAX: usize = 1024;

/// Records up to this length are copied, longer ones are borrowed.
const COPY_MAX_BYTES: usize = 4096;
/// What the copied answers of one pass take up, at most.
const COPIED_MAX_BYTES: usize = 64 << 10;
/// A copy of a fixed length may write so many bytes beyond its record.
const SLACK_BYTES: usize = 128;
/// Records that are borrowed in one pass, at most.
const BORROWED_MAX: usize = 31;
/// Keys that are looked up at a time.
const LOOKUP_KEYS: usize = 256;

const NOT_FOUND: ResponseHeader = ResponseHeader::bare(Status::NotFound);
const FOUND: ResponseHeader = ResponseHeader::bare(Status::Ok);
const ERROR: ResponseHeader = ResponseHeader::bare(Status::Error);

/// The answers of one pass. Belongs to a worker; connections use it in turn.
pub(super) struct Answers {
    keys: [u64; LOOKUP_KEYS],
    locators: [Locator; LOOKUP_KEYS],
    /// Each answer's length.
    lens_bytes: [u32; PASS_REQUESTS_MAX],
    count: usize,
    total_len_bytes: usize,
    copied: Box<[u8]>,
    copied_len_bytes: usize,
    borrowed: [Borrowed; BORROWED_MAX],
    borrowed_count: usize,
}

/// A record that goes out from the file itself.
#[derive(Clone, Copy)]
struct Borrowed {
    locator: Locator,
    /// Copied bytes that go out before it.
    after_copied_bytes: usize,
}

enum Answer<'a> {
    Record(Record<'a>),
    Header(ResponseHeader),
}

impl Answers {
    pub(super) fn new() -> Self {
        let borrowed = Borrowed { locator: Locator::MISSING, after_copied_bytes: 0 };
        Answers {
            keys: [0; LOOKUP_KEYS],
            locators: [Locator::MISSING; LOOKUP_KEYS],
            lens_bytes: [0; PASS_REQUESTS_MAX],
            count: 0,
            total_len_bytes: 0,
            copied: vec![0; COPIED_MAX_BYTES + SLACK_BYTES].into(),
            copied_len_bytes: 0,
            borrowed: [borrowed; BORROWED_MAX],
            borrowed_count: 0,
        }
    }

    /// Answers as many of the requests as fit into one pass, at least one.
    pub(super) fn assemble(&mut self, store: &Store, requests: &[Request]) {
        (self.count, self.total_len_bytes, self.copied_len_bytes, self.borrowed_count) = (0, 0, 0, 0);
        for requests in requests[..requests.len().min(PASS_REQUESTS_MAX)].chunks(LOOKUP_KEYS) {
            for (key, request) in self.keys.iter_mut().zip(requests) {
                *key = request.key();
            }
            store.find_many(&self.keys[..requests.len()], &mut self.locators);
            for (i, request) in requests.iter().enumerate() {
                if !self.push(store, request, self.locators[i]) {
                    return;
                }
            }
        }
    }

    /// How many requests were answered.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The length of all answers together.
    pub(super) fn total_len_bytes(&self) -> usize {
        self.total_len_bytes
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
        for Borrowed { locator, after_copied_bytes } in &self.borrowed[..self.borrowed_count] {
            add(&copied[copied_from..*after_copied_bytes]);
            copied_from = *after_copied_bytes;
            add(store.record(*locator).map(|record| record.bytes()).unwrap_or_default());
        }
        add(&copied[copied_from..]);
        let mut unsent = &mut pieces[..count];
        IoSlice::advance_slices(&mut unsent, sent_bytes);
        send(unsent)
    }

    /// Adds an answer, or tells that there is no room for it.
    #[inline(always)]
    fn push(&mut self, store: &Store, request: &Request, locator: Locator) -> bool {
        let answer = answer(store, request, locator);
        let len_bytes = match answer {
            Answer::Record(record) if record.len_bytes() > COPY_MAX_BYTES => {
                if self.borrowed_count == BORROWED_MAX {
                    return false;
                }
                self.borrowed[self.borrowed_count] = Borrowed { locator, after_copied_bytes: self.copied_len_bytes };
                self.borrowed_count += 1;
                record.len_bytes()
            }
            Answer::Record(record) => {
                if self.copied_len_bytes + record.len_bytes() > COPIED_MAX_BYTES {
                    return false;
                }
                self.copy(record);
                record.len_bytes()
            }
            Answer::Header(header) => {
                if self.copied_len_bytes + RESPONSE_HEADER_LEN_BYTES > COPIED_MAX_BYTES {
                    return false;
                }
                let end = self.copied_len_bytes + RESPONSE_HEADER_LEN_BYTES;
                self.copied[self.copied_len_bytes..end].copy_from_slice(header.as_bytes());
                self.copied_len_bytes = end;
                RESPONSE_HEADER_LEN_BYTES
            }
        };
        self.lens_bytes[self.count] = len_bytes as u32; // a record is at most 1 GiB and 8 bytes
        self.count += 1;
        self.total_len_bytes += len_bytes;
        true
    }

    /// Copies a record behind the others. Short ones are copied with what
    /// follows them in the file, which the next answer overwrites.
    #[inline(always)]
    fn copy(&mut self, record: Record<'_>) {
        let len_bytes = record.len_bytes();
        let to = &mut self.copied[self.copied_len_bytes..];
        match (record.wide::<64>(), record.wide::<SLACK_BYTES>()) {
            (Some(wide), _) if len_bytes <= wide.len() => to[..wide.len()].copy_from_slice(wide),
            (_, Some(wide)) if len_bytes <= wide.len() => to[..wide.len()].copy_from_slice(wide),
            _ => to[..len_bytes].copy_from_slice(record.bytes()),
        }
        self.copied_len_bytes += len_bytes;
    }
}

#[inline(always)]
fn answer<'a>(store: &'a Store, request: &Request, locator: Locator) -> Answer<'a> {
    match Op::from_code(request.op_code()) {
        Some(Op::Get) => match store.record(locator) {
            Some(record) => Answer::Record(record),
            None if locator == Locator::MISSING => Answer::Header(NOT_FOUND),
            None => Answer::Header(ERROR),
        },
        Some(Op::Exists) if locator == Locator::MISSING => Answer::Header(NOT_FOUND),
        Some(Op::Exists) => Answer::Header(FOUND),
        None => Answer::Header(ERROR),
    }
}
