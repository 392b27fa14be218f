//! The expected responses of a server, derived only from `docs/PROTOCOL.md`.
//!
//! Keys are stored as bytes. Numeric keys are stored as 8 big-endian bytes, which have the same order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::TempDir;
use zero_kv::bake::Keys;

use super::frames::answer;
use super::rows::{bake_text, csv_row};

pub(crate) const GET: u32 = 0;
pub(crate) const EXISTS: u32 = 1;
pub(crate) const FLOOR: u32 = 2;
pub(crate) const CEILING: u32 = 3;
pub(crate) const RANGE: u32 = 4;
pub(crate) const COUNT: u32 = 5;
pub(crate) const INFO: u32 = 6;
pub(crate) const OPEN: u32 = 9;
pub(crate) const PING: u32 = 10;
pub(crate) const AUTH: u32 = 11;
pub(crate) const SCHEMA: u32 = 12;
pub(crate) const TOPOLOGY: u32 = 15;
pub(crate) const GENERATION: u32 = 16;
/// Added to the op of a long request.
pub(crate) const LONG: u32 = 1 << 16;

pub(crate) const BACKWARD: u32 = 1;
pub(crate) const START: u32 = 2;
pub(crate) const START_EXCLUDED: u32 = 4;
pub(crate) const END: u32 = 8;
pub(crate) const END_EXCLUDED: u32 = 16;
pub(crate) const NUMBERS: u32 = 32;

pub(crate) const BODY_MAX_BYTES: usize = 131_086;
const PAGE_RECORDS_MAX_BYTES: usize = 65_536;

/// A table and its file.
pub(crate) struct Reference {
    pub(crate) numbers: bool,
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    folder: TempDir,
}

impl Reference {
    pub(crate) fn of_numbers(rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Reference {
        Reference::new(true, rows.into_iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value)).collect())
    }

    pub(crate) fn of_bytes(rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Reference {
        Reference::new(false, rows.into_iter().collect())
    }

    fn new(numbers: bool, rows: BTreeMap<Vec<u8>, Vec<u8>>) -> Reference {
        let folder = tempfile::tempdir().unwrap();
        let text = rows.iter().flat_map(|(key, value)| match numbers {
            true => csv_row(&u64::from_be_bytes(key[..].try_into().unwrap()), value),
            false => csv_row(key, value),
        });
        let keys = if numbers { Keys::U64 } else { Keys::Bytes };
        bake_text(&folder.path().join("storage.db"), keys, text.collect::<Vec<u8>>());
        Reference { numbers, rows, folder }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// Returns a path for a socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    /// Returns the responses to a stream of requests, and whether the server closes the connection before the end of
    /// the stream. The last request may be incomplete. A response is `None` if it describes the server itself.
    pub(crate) fn each_answer(&self, mut stream: &[u8]) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut answers = Vec::new();
        while stream.len() >= 16 {
            let (op, length) = (number(&stream[..4]), number(&stream[4..8]) as usize);
            if !(1 << 16..1 << 24).contains(&op) {
                let key = stream[8..16].to_vec();
                stream = &stream[16..];
                answers.push(match op {
                    INFO..=OPEN => None,
                    PING => Some(answer(0, b"")),
                    // The tables have no schema, and the server is not a node of a cluster.
                    SCHEMA | TOPOLOGY => Some(answer(1, b"")),
                    // The server never replaces its first table.
                    GENERATION => Some(answer(0, &1_u64.to_be_bytes())),
                    GET..=CEILING if self.numbers => Some(self.about_key(op, &key)),
                    _ => Some(answer(2, b"")),
                });
                continue;
            }
            if length > BODY_MAX_BYTES {
                answers.push(Some(answer(2, b"")));
                return (answers, true);
            }
            let Some(rest) = stream.get((8 + length).div_ceil(16) * 16..) else { break };
            let body = &stream[8..8 + length];
            stream = rest;
            answers.push(Some(match op - LONG {
                AUTH => about_login(body),
                op @ GET..=CEILING if !self.numbers => self.about_key(op, body),
                op @ (RANGE | COUNT) => self.about_range(op, body).unwrap_or_else(|| answer(2, b"")),
                _ => answer(2, b""),
            }));
        }
        (answers, false)
    }

    fn about_key(&self, op: u32, key: &[u8]) -> Vec<u8> {
        let row = match op {
            FLOOR => self.rows.range(..=key.to_vec()).next_back(),
            CEILING => self.rows.range(key.to_vec()..).next(),
            _ => self.rows.get_key_value(key),
        };
        match (op, row) {
            (_, None) => answer(1, b""),
            (GET, Some((_, value))) => answer(0, value),
            (EXISTS, Some(_)) => answer(0, b""),
            (_, Some((key, value))) => answer(0, &self.page(&[(key, value)], false)),
        }
    }

    fn about_range(&self, op: u32, body: &[u8]) -> Option<Vec<u8>> {
        let field = |i: usize| body.get(4 * i..4 * i + 4).map(number);
        let (flags, limit, start_len, end_len) = (field(0)?, field(1)?, field(2)? as usize, field(3)? as usize);
        let keys = &body[16..];
        if flags > 63 || keys.len() != start_len + end_len {
            return None;
        }
        let (start, end) = keys.split_at(start_len);
        for (key, given, excluded) in [(start, START, START_EXCLUDED), (end, END, END_EXCLUDED)] {
            let of_kind = self.numbers == (flags & NUMBERS != 0) && (!self.numbers || key.len() == 8);
            let good = match flags & given {
                0 => key.is_empty() && flags & excluded == 0,
                _ => of_kind,
            };
            if !good {
                return None;
            }
        }
        let is_in = |key: &[u8]| {
            (flags & START == 0 || key > start || key == start && flags & START_EXCLUDED == 0)
                && (flags & END == 0 || key < end || key == end && flags & END_EXCLUDED == 0)
        };
        let mut rows: Vec<_> = self.rows.iter().filter(|(key, _)| is_in(key)).collect();
        if op == COUNT {
            return Some(answer(0, &(rows.len() as u64).to_be_bytes()));
        }
        if flags & BACKWARD != 0 {
            rows.reverse();
        }
        let (mut count, mut len_bytes) = (0, 0);
        for (key, value) in &rows {
            len_bytes += self.record(key, value).len();
            if count > 0 && (limit > 0 && count == limit as usize || len_bytes > PAGE_RECORDS_MAX_BYTES) {
                break;
            }
            count += 1;
        }
        let more = count < rows.len();
        rows.truncate(count);
        if flags & BACKWARD != 0 {
            rows.reverse();
        }
        Some(answer(0, &self.page(&rows, more)))
    }

    fn page(&self, rows: &[(&Vec<u8>, &Vec<u8>)], more: bool) -> Vec<u8> {
        let mut page = u32::try_from(rows.len()).unwrap().to_be_bytes().to_vec();
        page.extend([if self.numbers { 1 } else { 2 }, 3, 0, u8::from(more)]);
        rows.iter().for_each(|(key, value)| page.extend(self.record(key, value)));
        page
    }

    fn record(&self, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut record = match self.numbers {
            true => key.iter().rev().copied().collect(),
            false => [&u16::try_from(key.len()).unwrap().to_le_bytes()[..], key].concat(),
        };
        record.resize(record.len().next_multiple_of(8), 0);
        record.extend(answer(0, value));
        record.resize(record.len().next_multiple_of(8), 0);
        record
    }
}

/// Returns the response to a login, if the only user is `default`, who needs no password.
fn about_login(body: &[u8]) -> Vec<u8> {
    let mut parts = body.splitn(2, |byte| *byte == 0);
    match (parts.next(), parts.next()) {
        (Some(b"default"), Some(_)) => answer(0, b""),
        (_, Some(_)) => answer(3, b""),
        _ => answer(2, b""),
    }
}

pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// Returns a long request, with padding that is not zero.
pub(crate) fn long(op: u32, body: &[u8]) -> Vec<u8> {
    let mut request =
        [&(LONG | op).to_be_bytes()[..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    request.resize(request.len().next_multiple_of(16), 0xee);
    request
}

/// Returns the body of a Range or Count request.
pub(crate) fn range_body(flags: u32, limit: u32, start: &[u8], end: &[u8]) -> Vec<u8> {
    let [start_len, end_len] = [start, end].map(|key| u32::try_from(key.len()).unwrap());
    let mut body: Vec<u8> = [flags, limit, start_len, end_len].into_iter().flat_map(u32::to_be_bytes).collect();
    body.extend_from_slice(start);
    body.extend_from_slice(end);
    body
}
