//! Questions, and what their answers mean.
//!
//! In: keys and ranges, then an answer's value. Out: a request's bytes, then
//! values, rows and numbers that were checked. It knows no socket: the clients of
//! this crate are built on it, and a client for another event loop can be, with an
//! [`AnswerReader`](crate::protocol::reader::AnswerReader) beside it.

mod server;

use std::ops::Bound;

use zerocopy::IntoBytes;

use super::error::ClientError;
use super::key::{Bounds, KeyRange, OwnedKey, key_at};
use super::page::Page;
use crate::format::KeyBounds;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key, KeyKind};
use crate::protocol::answer::{PageFault, Violation};
use crate::protocol::native::{Op, RangeHeader, Request, push_long, range_flags};
use crate::protocol::reader::Answer;
use crate::store::prefix_end;

pub use crate::format::Row;
pub use server::{AboutServer, Ping, Reload, Rollback};

/// Of a key that is named in an error, so much is shown.
const KEY_SHOWN_MAX_BYTES: usize = 64;
const OTHER_KIND: &str = "the table's keys may be of the other kind (numbers, not bytes, or bytes, not numbers); if \
                          they are not, see the log of kv_store, and if the value is damaged, bake the file anew";

/// A question to a server, that knows its bytes and its answer.
///
/// # Example
/// A client without a socket: bytes to send, and an answer of the bytes that came.
/// ```
/// use zero_kv::client::question::{Get, Question};
/// use zero_kv::protocol::reader::AnswerReader;
///
/// let get = Get::new(7)?;
/// let mut request = Vec::new();
/// get.push(&mut request);
/// assert_eq!(request, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07");
///
/// let mut reader = AnswerReader::new(1 << 20);
/// let arrived = b"\0\0\0\0\0\0\0\x05seven";
/// reader.room()[..arrived.len()].copy_from_slice(arrived);
/// reader.received(arrived.len());
/// let answer = reader.next(get.op())?.expect("a whole answer");
/// assert_eq!(get.read(answer).unwrap(), Some(b"seven".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Question {
    /// What the answer is read as.
    type Answer;

    /// What is asked.
    fn op(&self) -> Op;

    /// Appends the request.
    fn push(&self, request: &mut Vec<u8>);

    /// What the server says.
    ///
    /// # Errors
    /// [`Unanswered`].
    fn read(&self, answer: Answer<'_>) -> Result<Self::Answer, Unanswered>;
}

/// Why a whole answer does not answer the question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unanswered {
    /// The server could not answer it. The connection goes on.
    Error {
        /// What was asked, in words: a key, or a range.
        asked: String,
        /// What it may be due to.
        hint: &'static str,
    },
    /// The answer is none to this question. What else this peer sends is not to be
    /// believed either.
    Violation(Violation),
}

impl Unanswered {
    fn page(fault: PageFault) -> Self {
        Unanswered::Violation(Violation::Page(fault))
    }
}

/// The value of a key.
#[derive(Clone, Copy, Debug)]
pub struct Get<'k>(Key<'k>);

/// Whether a key is in the table.
#[derive(Clone, Copy, Debug)]
pub struct Exists<'k>(Key<'k>);

/// The row with the largest key that is not above this one.
#[derive(Clone, Copy, Debug)]
pub struct Floor<'k>(Key<'k>);

/// The row with the smallest key that is not below this one.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling<'k>(Key<'k>);

/// A question about one key.
pub(super) trait OfKey<'k>: Question {
    const OP: Op;

    /// The question about a key that was checked.
    fn of(key: Key<'k>) -> Self;
}

macro_rules! impl_of_key {
    ($($question:ident),*) => {$(
        impl<'k> $question<'k> {
            /// The question about this key.
            ///
            /// # Errors
            /// [`ClientError::KeyLen`].
            pub fn new(key: impl Into<Key<'k>>) -> Result<Self, ClientError> {
                let key = key.into();
                check_len(key, 1)?;
                Ok($question(key))
            }
        }

        impl<'k> OfKey<'k> for $question<'k> {
            const OP: Op = Op::$question;

            #[inline]
            fn of(key: Key<'k>) -> Self {
                $question(key)
            }
        }
    )*};
}

impl_of_key!(Get, Exists, Floor, Ceiling);

impl Get<'_> {
    /// Like [`Question::read`], but the value stays where it is.
    ///
    /// # Errors
    /// [`Unanswered`].
    #[inline]
    pub fn read_borrowed<'a>(&self, answer: Answer<'a>) -> Result<Option<&'a [u8]>, Unanswered> {
        match answer {
            Answer::Found(value) => Ok(Some(value)),
            Answer::NotFound => Ok(None),
            Answer::Error => Err(refused_key(self.0)),
        }
    }
}

impl Question for Get<'_> {
    type Answer = Option<Vec<u8>>;

    fn op(&self) -> Op {
        Self::OP
    }

    #[inline]
    fn push(&self, request: &mut Vec<u8>) {
        push_key(Self::OP, self.0, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Option<Vec<u8>>, Unanswered> {
        Ok(self.read_borrowed(answer)?.map(<[u8]>::to_vec))
    }
}

impl Question for Exists<'_> {
    type Answer = bool;

    fn op(&self) -> Op {
        Self::OP
    }

    #[inline]
    fn push(&self, request: &mut Vec<u8>) {
        push_key(Self::OP, self.0, request);
    }

    #[inline]
    fn read(&self, answer: Answer<'_>) -> Result<bool, Unanswered> {
        match answer {
            Answer::Found(_) => Ok(true),
            Answer::NotFound => Ok(false),
            Answer::Error => Err(refused_key(self.0)),
        }
    }
}

impl Question for Floor<'_> {
    type Answer = Option<Row>;

    fn op(&self) -> Op {
        Self::OP
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_key(Self::OP, self.0, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Option<Row>, Unanswered> {
        neighbour(self.0, Bounds { start: Bound::Unbounded, end: Bound::Included(self.0) }, answer)
    }
}

impl Question for Ceiling<'_> {
    type Answer = Option<Row>;

    fn op(&self) -> Op {
        Self::OP
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_key(Self::OP, self.0, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Option<Row>, Unanswered> {
        neighbour(self.0, Bounds { start: Bound::Included(self.0), end: Bound::Unbounded }, answer)
    }
}

/// Some of the rows of a range: the first of them, or the last.
#[derive(Clone, Copy, Debug)]
pub struct PageOf<'k> {
    pub(super) bounds: Bounds<'k>,
    /// Whether the last rows of the range are wanted, not the first.
    pub(super) backward: bool,
    /// Rows wanted at most; 0: as many as a page holds.
    pub(super) limit_rows: u32,
}

impl<'k> PageOf<'k> {
    /// The first rows of a range: at most so many, or as many as a page holds if
    /// that is 0.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`], [`ClientError::MixedKeys`]; an end may be empty.
    pub fn first(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(PageOf { bounds: check_bounds(&range)?, backward: false, limit_rows })
    }

    /// The last rows of a range.
    ///
    /// # Errors
    /// Those of [`PageOf::first`].
    pub fn last(range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Self, ClientError> {
        Ok(PageOf { bounds: check_bounds(&range)?, backward: true, limit_rows })
    }
}

impl Question for PageOf<'_> {
    type Answer = Page;

    fn op(&self) -> Op {
        Op::Range
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_range(Op::Range, &self.bounds, self.backward, self.limit_rows, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Page, Unanswered> {
        match answer {
            Answer::Found(page) => Page::check(self, page).map_err(Unanswered::page),
            _ => Err(refused_range(&self.bounds)),
        }
    }
}

/// The row with the smallest key of all, or with the largest.
#[derive(Clone, Copy, Debug)]
pub struct Outermost {
    /// Whether it is the one with the largest.
    pub last: bool,
}

impl Outermost {
    fn page(self) -> PageOf<'static> {
        PageOf { bounds: Bounds::ALL, backward: self.last, limit_rows: 1 }
    }
}

impl Question for Outermost {
    type Answer = Option<Row>;

    fn op(&self) -> Op {
        Op::Range
    }

    fn push(&self, request: &mut Vec<u8>) {
        self.page().push(request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<Option<Row>, Unanswered> {
        Ok(self.page().read(answer)?.iter().next().map(owned))
    }
}

/// How many keys lie in a range.
#[derive(Clone, Copy, Debug)]
pub struct Count<'k>(Bounds<'k>);

impl<'k> Count<'k> {
    /// The question about this range.
    ///
    /// # Errors
    /// Those of [`PageOf::first`].
    pub fn new(range: impl KeyBounds<'k>) -> Result<Self, ClientError> {
        Ok(Count(check_bounds(&range)?))
    }

    /// Of all keys of a kind: only a table of that kind answers it.
    pub fn all_of(kind: KeyKind) -> Self {
        let least = match kind {
            KeyKind::U64 => Key::U64(0),
            KeyKind::Bytes => Key::Bytes(b""),
        };
        Count(Bounds { start: Bound::Included(least), end: Bound::Unbounded })
    }
}

impl Question for Count<'_> {
    type Answer = u64;

    fn op(&self) -> Op {
        Op::Count
    }

    fn push(&self, request: &mut Vec<u8>) {
        push_range(Op::Count, &self.0, false, 0, request);
    }

    fn read(&self, answer: Answer<'_>) -> Result<u64, Unanswered> {
        match answer {
            Answer::Found(count) => number(Op::Count, count),
            _ => Err(refused_range(&self.0)),
        }
    }
}

fn number(op: Op, value: &[u8]) -> Result<u64, Unanswered> {
    let wrong = Violation::AnswerLen { op, len_bytes: value.len(), least_bytes: 8, most_bytes: 8 };
    value.try_into().map(u64::from_be_bytes).map_err(|_| Unanswered::Violation(wrong))
}

fn owned((key, value): (Key<'_>, &[u8])) -> Row {
    (OwnedKey::from(key), value.to_vec())
}

fn neighbour(key: Key<'_>, bounds: Bounds<'_>, answer: Answer<'_>) -> Result<Option<Row>, Unanswered> {
    let page = match answer {
        Answer::Found(page) => Page::check(&PageOf { bounds, backward: false, limit_rows: 1 }, page),
        Answer::NotFound => return Ok(None),
        Answer::Error => return Err(refused_key(key)),
    };
    let page = page.map_err(Unanswered::page)?;
    match (page.iter().next(), page.rest()) {
        (Some(row), None) => Ok(Some(owned(row))),
        (None, _) => Err(Unanswered::page(PageFault::RowCount { rows: 0, rows_max: 1 })),
        (_, Some(_)) => Err(Unanswered::page(PageFault::More { more: 1 })),
    }
}

fn refused(asked: &str, hint: &'static str) -> Unanswered {
    Unanswered::Error { asked: asked.to_owned(), hint }
}

#[cold]
fn refused_key(key: Key<'_>) -> Unanswered {
    Unanswered::Error { asked: format!("key {}", quoted(key)), hint: OTHER_KIND }
}

#[cold]
fn refused_range(bounds: &Bounds<'_>) -> Unanswered {
    Unanswered::Error { asked: range_name(bounds), hint: OTHER_KIND }
}

/// The ends of a range, if they can be asked for.
pub(super) fn check_bounds<'k>(range: &impl KeyBounds<'k>) -> Result<Bounds<'k>, ClientError> {
    let (start, end) = range.bounds();
    for key in [start, end].into_iter().filter_map(key_at) {
        check_len(key, 0)?;
    }
    match (key_at(start), key_at(end)) {
        (Some(start), Some(end)) if start.kind() != end.kind() => {
            Err(ClientError::MixedKeys { start: start.kind(), end: end.kind() })
        }
        _ => Ok(Bounds { start, end }),
    }
}

/// The range of the keys that begin with these bytes.
///
/// # Errors
/// [`ClientError::KeyLen`].
pub fn prefix_range(prefix: &[u8]) -> Result<KeyRange, ClientError> {
    let start = Key::Bytes(prefix);
    check_len(start, 0)?;
    let end = prefix_end(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(OwnedKey::Bytes(end)));
    Ok(KeyRange { start: Bound::Included(OwnedKey::from(start)), end })
}

/// Whether a key can be sent.
#[inline]
pub(super) fn check_len(key: Key<'_>, least_bytes: usize) -> Result<(), ClientError> {
    match key.as_bytes().map(<[u8]>::len) {
        Some(len_bytes) if !(least_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) => {
            Err(ClientError::KeyLen { len_bytes })
        }
        _ => Ok(()),
    }
}

#[inline]
fn push_key(op: Op, key: Key<'_>, request: &mut Vec<u8>) {
    match key {
        Key::U64(key) => request.extend_from_slice(Request::new(op, key).as_bytes()),
        Key::Bytes(key) => push_long(op, &[key], request),
    }
}

fn push_range(op: Op, bounds: &Bounds<'_>, backward: bool, limit_rows: u32, request: &mut Vec<u8>) {
    use range_flags::{BACKWARD, END, END_EXCLUDED, NUMBERS, START, START_EXCLUDED};

    let given = |bound, given, excluded| match bound {
        Bound::Unbounded => 0,
        Bound::Included(_) => given,
        Bound::Excluded(_) => given | excluded,
    };
    let mut flags = given(bounds.start, START, START_EXCLUDED) | given(bounds.end, END, END_EXCLUDED);
    if backward {
        flags |= BACKWARD;
    }
    if bounds.kinds().any(|kind| kind == KeyKind::U64) {
        flags |= NUMBERS;
    }
    let numbers = [bounds.start, bounds.end].map(|bound| match key_at(bound) {
        Some(Key::U64(key)) => key.to_be_bytes(),
        _ => [0; 8],
    });
    let key = |bound, number| match key_at(bound) {
        Some(Key::U64(_)) => number,
        Some(Key::Bytes(key)) => key,
        None => &[],
    };
    let (start, end) = (key(bounds.start, &numbers[0][..]), key(bounds.end, &numbers[1][..]));
    let header = RangeHeader {
        flags: flags.into(),
        limit_rows: limit_rows.into(),
        start_len_bytes: (start.len() as u32).into(),
        end_len_bytes: (end.len() as u32).into(),
    };
    push_long(op, &[header.as_bytes(), start, end], request);
}

/// A key in an error: on one line, and not longer than one reads.
fn quoted(key: Key<'_>) -> String {
    match key {
        Key::U64(key) => key.to_string(),
        Key::Bytes(key) if key.len() <= KEY_SHOWN_MAX_BYTES => format!("\"{}\"", key.escape_ascii()),
        Key::Bytes(key) => format!("\"{}...\"", key[..KEY_SHOWN_MAX_BYTES].escape_ascii()),
    }
}

/// What error messages call a range.
fn range_name(bounds: &Bounds<'_>) -> String {
    let from = key_at(bounds.start).map_or(String::new(), |start| format!(" from {}", quoted(start)));
    let to = key_at(bounds.end).map_or(String::new(), |end| format!(" to {}", quoted(end)));
    match (&*from, &*to) {
        ("", "") => "the range of all keys".to_owned(),
        _ => format!("the range{from}{to}"),
    }
}
