//! Answering native requests.
//!
//! In: bytes that a client sent. Out: answers. Runs of 16-byte requests are
//! looked up together, and so are runs of long ones. What is counted of them is
//! counted once a pass.

use std::ops::{Bound, ControlFlow};

use zerocopy::{FromBytes, IntoBytes};

use super::about;
use super::answers::{Answers, Borrowed, COPY_MAX_BYTES, Piece, copy_halves};
use super::counters::Tally;
use super::generations::Generation;
use super::pass::{Pass, Then};
use super::shared::Client;
use crate::format::key::{Key, KeyKind};
use crate::protocol::native::{
    LONG_BODY_MAX_BYTES, LONG_HEADER_LEN_BYTES, Op, PAGE_HEADER_LEN_BYTES, PAGE_LEN_MAX_BYTES, PAGE_MAX_BYTES,
    PageHeader, REQUEST_LEN_BYTES, RESPONSE_HEADER_LEN_BYTES, RangeHeader, Request, ResponseHeader, Status,
    long_len_bytes, range_flags,
};
use crate::store::{Found, Page, Rows, Store, is_verification_interrupted};

/// Requests that are looked up together, at most.
pub(super) const PASS_REQUESTS_MAX: usize = 1024;
/// Long requests that are looked up together, at most.
const LONG_REQUESTS_MAX: usize = 256;

/// Answers up to this length are copied as two pieces that may overlap.
const SHORT_MAX_BYTES: usize = 64;

/// Steps of a request that is about the order of keys, or long, beside its bytes.
const ORDERED_STEPS: usize = 8;

const ERROR: ResponseHeader = ResponseHeader::bare(Status::Error);

/// Answers the requests at the start of `input`, as far as they are whole and
/// there is room.
pub(super) fn answer(client: &Client, generation: &Generation, input: &[u8], answers: &mut Answers) -> Pass {
    let mut tally = Tally::default();
    let pass = pass(client, generation, input, answers, &mut tally);
    client.shared.counters().count_native(&tally);
    pass
}

fn pass(client: &Client, generation: &Generation, input: &[u8], answers: &mut Answers, tally: &mut Tally) -> Pass {
    let store = &generation.store;
    let mut taken_bytes = 0;
    loop {
        let rest = &input[taken_bytes..];
        let requests = whole(rest);
        let Some(first) = requests.first() else { return Pass { taken_bytes, then: Then::Read } };
        let (run_bytes, end) = match Run::of(first.op_code()) {
            Run::Points => run_of(requests, Run::Points, answers.assemble_points(store, requests, tally)),
            Run::Neighbours => run_of(requests, Run::Neighbours, answers.assemble_neighbours(store, requests, tally)),
            Run::Long => answer_long(store, rest, answers, tally),
            Run::Server => about::answer(client, generation, requests, answers, tally),
        };
        taken_bytes += run_bytes;
        match end {
            RunEnd::Here if answers.steps.are_enough() => return Pass { taken_bytes, then: Then::Yield },
            RunEnd::Here if run_bytes == 0 => return Pass { taken_bytes, then: Then::Read },
            RunEnd::Here => {}
            RunEnd::Full => return Pass { taken_bytes, then: Then::Answer },
            RunEnd::Much => return Pass { taken_bytes, then: Then::Yield },
            RunEnd::Wait(known) => return Pass { taken_bytes, then: Then::Wait(known) },
            RunEnd::TooLong => {
                tally.count(None, Status::Error);
                answers.push(ERROR.as_bytes());
                return Pass { taken_bytes: input.len(), then: Then::Close };
            }
        }
    }
}

/// Requests that are answered together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    /// About one key, which is hashed; or not known.
    Points,
    /// Floor and Ceiling.
    Neighbours,
    /// Long ones.
    Long,
    /// About the server itself.
    Server,
}

impl Run {
    #[inline(always)]
    fn of(op_code: u32) -> Run {
        match Op::from_code(op_code) {
            Some(Op::Floor | Op::Ceiling) => Run::Neighbours,
            Some(Op::Info | Op::Reload | Op::Rollback | Op::Open | Op::Ping) => Run::Server,
            _ if Op::is_long(op_code) => Run::Long,
            _ => Run::Points,
        }
    }
}

/// Why a run ended.
pub(super) enum RunEnd {
    /// The next request is of another run, or there is none that is whole.
    Here,
    /// There is no room for the next answer, or verification was interrupted.
    Full,
    /// Others come first.
    Much,
    /// The next request is the last, and waits for another state than this.
    Wait(u64),
    /// The next request is longer than any may be.
    TooLong,
}

/// The length of a run of so many requests, and why it ended.
fn run_of(requests: &[Request], run: Run, count: usize) -> (usize, RunEnd) {
    let next = requests.get(count).filter(|_| count < PASS_REQUESTS_MAX);
    let is_full = next.is_some_and(|next| Run::of(next.op_code()) == run);
    (count * REQUEST_LEN_BYTES, if is_full { RunEnd::Full } else { RunEnd::Here })
}

fn whole(input: &[u8]) -> &[Request] {
    let len_bytes = input.len() - input.len() % REQUEST_LEN_BYTES;
    <[Request]>::ref_from_bytes(&input[..len_bytes]).expect("whole requests")
}

impl Answers {
    /// Adds the answers to requests about one key each, as far as there is room, up
    /// to the first that asks for something else; tells how many. There is room for
    /// one in answers that were cleared.
    pub fn assemble(&mut self, store: &Store, requests: &[Request]) -> usize {
        self.assemble_points(store, requests, &mut Tally::default())
    }

    /// The same, and counts them.
    fn assemble_points(&mut self, store: &Store, requests: &[Request], tally: &mut Tally) -> usize {
        let requests = &requests[..requests.len().min(PASS_REQUESTS_MAX)];
        if store.key_kind() != KeyKind::U64 {
            return self.refuse(requests, tally);
        }
        let counted_before = tally.total();
        let (mut count, mut copied_len_bytes) = (0, self.copied_len_bytes);
        let (copied, borrowed, steps) = (&mut *self.buffer, &mut self.borrowed, &self.steps);
        store.find_each(
            requests.len(),
            |i| requests[i].key(),
            |i, found| match add(requests[i].op_code(), found, copied, copied_len_bytes, borrowed, tally) {
                Some(len_bytes) => {
                    copied_len_bytes += len_bytes;
                    count += 1;
                    steps.goes_on_after(count)
                }
                None => ControlFlow::Break(()),
            },
        );
        self.copied_len_bytes = copied_len_bytes;
        self.steps.add(count);
        tally.count_values(counted_before + count - tally.total());
        count
    }

    /// Answers requests for numbers where there are none.
    fn refuse(&mut self, requests: &[Request], tally: &mut Tally) -> usize {
        let mut count = 0;
        for request in requests {
            let op_code = request.op_code();
            if matches!(Run::of(op_code), Run::Long | Run::Server) || self.is_full() {
                break;
            }
            tally.count(Op::from_code(op_code), Status::Error);
            self.push(ERROR.as_bytes());
            count += 1;
        }
        count
    }

    /// Adds the answers to Floor and Ceiling, as far as there is room, up to the
    /// first request that is another; tells how many.
    fn assemble_neighbours(&mut self, store: &Store, requests: &[Request], tally: &mut Tally) -> usize {
        let requests = &requests[..requests.len().min(PASS_REQUESTS_MAX)];
        if store.key_kind() != KeyKind::U64 {
            return self.refuse(requests, tally);
        }
        let mut count = 0;
        for request in requests {
            let Some(op @ (Op::Floor | Op::Ceiling)) = Op::from_code(request.op_code()) else { break };
            let Some(status) = add_neighbour(store, op, Key::U64(request.key()), self) else { break };
            tally.count(Some(op), status);
            count += 1;
        }
        self.steps.add(ORDERED_STEPS * count);
        count
    }
}

/// A long request.
#[derive(Clone, Copy)]
struct Long<'a> {
    op_code: u32,
    body: &'a [u8],
}

/// Answers a run of long requests. Tells how many bytes they take up.
fn answer_long(store: &Store, input: &[u8], answers: &mut Answers, tally: &mut Tally) -> (usize, RunEnd) {
    let mut requests = [Long { op_code: 0, body: &[] }; LONG_REQUESTS_MAX];
    let mut ends_bytes = [0; LONG_REQUESTS_MAX];
    let (mut found_count, mut at_bytes, mut end) = (0, 0, RunEnd::Here);
    while found_count < LONG_REQUESTS_MAX
        && let Some(first) = whole(&input[at_bytes..]).first()
        && Op::is_long(first.op_code())
    {
        let body_len_bytes = first.body_len_bytes();
        if body_len_bytes > LONG_BODY_MAX_BYTES {
            end = RunEnd::TooLong;
            break;
        }
        let Some(request) = input[at_bytes..].get(..long_len_bytes(body_len_bytes)) else { break };
        let body = &request[LONG_HEADER_LEN_BYTES..LONG_HEADER_LEN_BYTES + body_len_bytes];
        requests[found_count] = Long { op_code: first.op_code(), body };
        at_bytes += request.len();
        ends_bytes[found_count] = at_bytes;
        found_count += 1;
    }
    let requests = &requests[..found_count];
    let count = answers.assemble_long(store, requests, tally);
    let (run_bytes, end) = match count.checked_sub(1) {
        _ if count == found_count => (at_bytes, end),
        Some(last) => (ends_bytes[last], RunEnd::Full),
        None => (0, RunEnd::Full),
    };
    answers.steps.add(ORDERED_STEPS * count);
    answers.steps.add_bytes(run_bytes);
    (run_bytes, end)
}

impl Answers {
    /// Adds the answers to long requests, as far as there is room; tells how many.
    fn assemble_long(&mut self, store: &Store, requests: &[Long<'_>], tally: &mut Tally) -> usize {
        let counted_before = tally.total();
        let mut count = 0;
        let mut answer = |i: usize, found: Found<'_>| match add_long(store, &requests[i], found, self, tally) {
            Some(()) => {
                count += 1;
                self.steps.goes_on_after(count)
            }
            None => ControlFlow::Break(()),
        };
        match store.key_kind() {
            KeyKind::Bytes => store.find_each(requests.len(), |i| requests[i].body, answer),
            // There are no keys of bytes to be looked up.
            KeyKind::U64 => {
                let _ = (0..requests.len()).try_for_each(|i| answer(i, Found::Missing));
            }
        }
        tally.count_values(counted_before + count - tally.total());
        count
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.copied_len_bytes..]
    }
}

/// Adds the answer to a request about one key of the table's kind, and returns how many bytes were copied. Returns `None`
/// if there is no room for the answer, the request is of another run, or verification was interrupted. Counts every
/// answer but values.
#[inline(always)]
fn add(
    op_code: u32,
    found: Found<'_>,
    copied: &mut [u8],
    at_bytes: usize,
    borrowed: &mut Borrowed,
    tally: &mut Tally,
) -> Option<usize> {
    if let Found::Answer(answer, offset_bytes) = found
        && op_code == Op::Get as u32
    {
        if answer.len() <= COPY_MAX_BYTES {
            copy(answer, copied.get_mut(at_bytes..)?)?;
            return Some(answer.len());
        }
        let offset_bytes = offset_bytes as usize;
        borrowed.push(Piece { offset_bytes, len_bytes: answer.len(), after_copied_bytes: at_bytes })?;
        return Some(0);
    }
    add_without_value(op_code, found, copied, at_bytes, tally)
}

/// Adds the answer to any other request of the run. Not inlined: the loop over values
/// that are found has its registers for itself.
#[inline(never)]
fn add_without_value(
    op_code: u32,
    found: Found<'_>,
    copied: &mut [u8],
    at_bytes: usize,
    tally: &mut Tally,
) -> Option<usize> {
    let op = Op::from_code(op_code);
    let status = match (op, found) {
        (Some(Op::Get | Op::Exists), Found::Missing) => Status::NotFound,
        (Some(Op::Exists), Found::Answer(..)) => Status::Ok,
        _ if Run::of(op_code) != Run::Points => return None,
        (_, Found::Damaged) if is_verification_interrupted() => return None,
        _ => Status::Error,
    };
    let header = ResponseHeader::bare(status);
    *copied.get_mut(at_bytes..)?.first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()? = zerocopy::transmute!(header);
    tally.count(op, status);
    Some(RESPONSE_HEADER_LEN_BYTES)
}

/// Adds the answer to a long request. Returns `None` if there is no room for the answer or verification was interrupted.
#[inline(always)]
fn add_long(
    store: &Store,
    request: &Long<'_>,
    found: Found<'_>,
    answers: &mut Answers,
    tally: &mut Tally,
) -> Option<()> {
    let is_bytes = store.key_kind() == KeyKind::Bytes;
    let op = Op::from_long_code(request.op_code);
    let status = match op {
        Some(op @ (Op::Get | Op::Exists)) if is_bytes => {
            let at_bytes = answers.copied_len_bytes;
            let Answers { buffer, borrowed, .. } = answers;
            answers.copied_len_bytes += add(op as u32, found, buffer, at_bytes, borrowed, tally)?;
            return Some(());
        }
        Some(op @ (Op::Floor | Op::Ceiling)) if is_bytes => {
            add_neighbour(store, op, Key::Bytes(request.body), answers)?
        }
        Some(op @ (Op::Range | Op::Count)) => add_range(store, op, request.body, answers)?,
        _ => add_error(answers)?,
    };
    tally.count(op, status);
    Some(())
}

/// Adds an answer without a value.
fn add_bare(status: Status, answers: &mut Answers) -> Option<Status> {
    let header = ResponseHeader::bare(status);
    *answers.room().first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()? = zerocopy::transmute!(header);
    answers.copied_len_bytes += RESPONSE_HEADER_LEN_BYTES;
    Some(status)
}

/// Adds an Error, unless verification was interrupted: then the next pass repeats the request.
fn add_error(answers: &mut Answers) -> Option<Status> {
    if is_verification_interrupted() { None } else { add_bare(Status::Error, answers) }
}

fn add_neighbour(store: &Store, op: Op, key: Key<'_>, answers: &mut Answers) -> Option<Status> {
    let page = if op == Op::Floor { store.floor_page(key) } else { store.ceiling_page(key) };
    match page {
        Ok(page) if page.row_count == 0 => add_bare(Status::NotFound, answers),
        Ok(page) => add_page(store, &page, answers),
        Err(_) => add_error(answers),
    }
}

fn add_range(store: &Store, op: Op, body: &[u8], answers: &mut Answers) -> Option<Status> {
    let Some((rows, flags, limit_rows)) = range(store, body) else { return add_error(answers) };
    if op == Op::Count {
        let count = (rows.len() as u64).to_be_bytes();
        let answer = answers.room().first_chunk_mut::<{ RESPONSE_HEADER_LEN_BYTES + size_of::<u64>() }>()?;
        let (header, value) = answer.split_at_mut(RESPONSE_HEADER_LEN_BYTES);
        header.copy_from_slice(ResponseHeader::of_page(count.len()).as_bytes());
        value.copy_from_slice(&count);
        answers.copied_len_bytes += RESPONSE_HEADER_LEN_BYTES + size_of::<u64>();
        return Some(Status::Ok);
    }
    let limit_rows = if limit_rows == 0 { usize::MAX } else { limit_rows };
    match rows.page(flags & range_flags::BACKWARD != 0, limit_rows, PAGE_LEN_MAX_BYTES) {
        Some(page) => add_page(store, &page, answers),
        None => add_error(answers),
    }
}

/// The range that the body of a request describes, its flags, and how many rows
/// are wanted. `None` if it describes none, or keys of the other kind, or the file
/// has changed.
fn range<'s>(store: &'s Store, body: &[u8]) -> Option<(Rows<'s>, u32, usize)> {
    let (header, keys) = RangeHeader::ref_from_prefix(body).ok()?;
    let flags = header.flags.get();
    let (start, keys) = keys.split_at_checked(header.start_len_bytes.get() as usize)?;
    let (end, rest) = keys.split_at_checked(header.end_len_bytes.get() as usize)?;
    let bound = |key, given, excluded| match (flags & given != 0, flags & excluded != 0) {
        (true, true) => key_of(store.key_kind(), flags, key).map(Bound::Excluded),
        (true, false) => key_of(store.key_kind(), flags, key).map(Bound::Included),
        (false, false) if key.is_empty() => Some(Bound::Unbounded),
        (false, _) => None,
    };
    let start = bound(start, range_flags::START, range_flags::START_EXCLUDED)?;
    let end = bound(end, range_flags::END, range_flags::END_EXCLUDED)?;
    if !rest.is_empty() || flags & !range_flags::ALL != 0 {
        return None;
    }
    Some((store.between(start, end).ok()?, flags, header.limit_rows.get() as usize))
}

/// The key at an end of a range, if it is of the table's kind.
fn key_of(kind: KeyKind, flags: u32, key: &[u8]) -> Option<Key<'_>> {
    match (kind, flags & range_flags::NUMBERS != 0) {
        (KeyKind::U64, true) => Some(Key::U64(u64::from_be_bytes(key.try_into().ok()?))),
        (KeyKind::Bytes, false) => Some(Key::Bytes(key)),
        _ => None,
    }
}

/// Adds a page: its two headers are copied, and its rows if they are short.
fn add_page(store: &Store, page: &Page, answers: &mut Answers) -> Option<Status> {
    const HEADERS_LEN_BYTES: usize = RESPONSE_HEADER_LEN_BYTES + PAGE_HEADER_LEN_BYTES;
    // Neither happens but in a file that has changed since it was opened.
    let rows = store.records().get(page.offset_bytes.start as usize..page.offset_bytes.end as usize);
    let Some(rows) = rows.filter(|rows| rows.len() <= PAGE_MAX_BYTES - PAGE_HEADER_LEN_BYTES) else {
        return add_error(answers);
    };
    if !store.are_sound(page.offset_bytes.start as usize..page.offset_bytes.end as usize) {
        return add_error(answers);
    }
    let is_copied = rows.len() <= COPY_MAX_BYTES;
    let room = answers.room().get_mut(..HEADERS_LEN_BYTES + if is_copied { rows.len() } else { 0 })?;
    let (headers, copied_rows) = room.split_at_mut(HEADERS_LEN_BYTES);
    let (response_header, page_header) = headers.split_at_mut(RESPONSE_HEADER_LEN_BYTES);
    response_header.copy_from_slice(ResponseHeader::of_page(PAGE_HEADER_LEN_BYTES + rows.len()).as_bytes());
    let header = PageHeader {
        row_count: (page.row_count as u32).into(),
        key_kind: store.key_kind() as u8,
        align_bits: store.record_align_bytes().trailing_zeros() as u8,
        more: u16::from(page.more).into(),
    };
    page_header.copy_from_slice(header.as_bytes());
    if is_copied {
        copied_rows.copy_from_slice(rows);
        answers.copied_len_bytes += HEADERS_LEN_BYTES + rows.len();
        return Some(Status::Ok);
    }
    let after_copied_bytes = answers.copied_len_bytes + HEADERS_LEN_BYTES;
    let offset_bytes = page.offset_bytes.start as usize;
    answers.borrowed.push(Piece { offset_bytes, len_bytes: rows.len(), after_copied_bytes })?;
    answers.copied_len_bytes = after_copied_bytes;
    Some(Status::Ok)
}

/// Copies an answer to the front of a buffer, if there is room.
#[inline(always)]
fn copy(answer: &[u8], to: &mut [u8]) -> Option<()> {
    if let Some(to) = to.first_chunk_mut::<SHORT_MAX_BYTES>()
        // An answer is no shorter than its header, 8 bytes.
        && (copy_halves::<32>(answer, to) || copy_halves::<16>(answer, to) || copy_halves::<8>(answer, to))
    {
        return Some(());
    }
    to.get_mut(..answer.len())?.copy_from_slice(answer);
    Some(())
}
