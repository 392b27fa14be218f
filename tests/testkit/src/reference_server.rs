//! The expected responses of a server, derived only from `docs/PROTOCOL.md`.
//!
//! Keys are stored as bytes. Numeric keys are stored as 8 big-endian bytes, which have the same order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::TempDir;
use zero_kv::bake::Keys;

use super::frames::answer;
use super::rows::{bake_text, csv_row};
use super::servers::Server;

pub const GET: u32 = 0;
pub const EXISTS: u32 = 1;
pub const FLOOR: u32 = 2;
pub const CEILING: u32 = 3;
pub const RANGE: u32 = 4;
pub const COUNT: u32 = 5;
pub const INFO: u32 = 6;
pub const OPEN: u32 = 9;
pub const PING: u32 = 10;
pub const AUTH: u32 = 11;
pub const SCHEMA: u32 = 12;
pub const TOPOLOGY: u32 = 15;
pub const GENERATION: u32 = 16;
pub const KEY_TYPE: u32 = 17;
pub const TRACK: u32 = 19;
/// Added to the op of a long request.
pub const LONG: u32 = 1 << 16;

pub const BACKWARD: u32 = 1;
pub const START: u32 = 2;
pub const START_EXCLUDED: u32 = 4;
pub const END: u32 = 8;
pub const END_EXCLUDED: u32 = 16;
pub const NUMBERS: u32 = 32;

pub const BODY_MAX_BYTES: usize = 131_086;
const PAGE_RECORDS_MAX_BYTES: usize = 65_536;

/// A table and its file.
pub struct Reference {
    pub numbers: bool,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    folder: TempDir,
}

impl Reference {
    pub fn of_numbers(rows: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Reference {
        Reference::new(true, rows.into_iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value)).collect())
    }

    pub fn of_bytes(rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Reference {
        Reference::new(false, rows.into_iter().collect())
    }

    fn new(numbers: bool, rows: BTreeMap<Vec<u8>, Vec<u8>>) -> Reference {
        let folder = tempfile::tempdir().unwrap();
        let text = rows.iter().flat_map(|(key, value)| match numbers {
            true => csv_row(&u64::from_be_bytes(key[..].try_into().unwrap()), value),
            false => csv_row(key, value),
        });
        let keys = if numbers { Keys::U64 } else { Keys::BYTES };
        bake_text(&folder.path().join("storage.db"), keys, text.collect::<Vec<u8>>());
        Reference { numbers, rows, folder }
    }

    pub fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// Returns a path for a socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    /// Returns the responses to a stream of requests, and whether the server closes the connection before the end of
    /// the stream. The last request may be incomplete. A response is `None` if it describes the server itself.
    pub fn each_answer(&self, mut stream: &[u8]) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut answers = Vec::new();
        while stream.len() >= 16 {
            let (op, length) = (number(&stream[..4]), number(&stream[4..8]) as usize);
            if !(1 << 16..1 << 24).contains(&op) {
                let key = stream[8..16].to_vec();
                stream = &stream[16..];
                answers.push(match op {
                    INFO..=OPEN | TRACK => None,
                    PING => Some(answer(0, b"")),
                    // The tables have no schema, and the server is not a node of a cluster.
                    SCHEMA | TOPOLOGY => Some(answer(1, b"")),
                    // The server never replaces its first table.
                    GENERATION => Some(answer(0, &1_u64.to_be_bytes())),
                    KEY_TYPE => Some(answer(0, if self.numbers { b"u64" } else { b"bytes" })),
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

    pub fn serve(&self) -> Server {
        Server::start(&self.db(), &self.socket())
    }

    /// Returns the expected responses to a stream of requests, the last of which may be incomplete, and whether the
    /// server closes the connection before the end of the stream. Responses that describe the server itself are copied
    /// from `found` if they have a valid form.
    pub fn answers_given(&self, stream: &[u8], found: &[u8]) -> (Vec<u8>, bool) {
        let (each, closes) = self.each_answer(stream);
        let mut answers = Vec::new();
        for expected in each {
            let about_server = || about_server(found.get(answers.len()..).unwrap_or_default());
            let expected = expected.unwrap_or_else(about_server);
            answers.extend(expected);
        }
        (answers, closes)
    }

    /// Returns the expected responses to a stream without requests about the server itself, and whether the server
    /// closes the connection.
    pub fn answers(&self, stream: &[u8]) -> (Vec<u8>, bool) {
        self.answers_given(stream, &[])
    }
}

/// Returns the first response in `found`, which describes the server itself, after a check of its form: a text, the
/// number of an attempt, its state, the description of its table, or an error.
fn about_server(found: &[u8]) -> Vec<u8> {
    let (Some(status), Some(length)) = (found.get(..4), found.get(4..8)) else { return answer(0, b"") };
    let (status, length) = (number(status), number(length) as usize);
    let said = found.get(8..8 + length).unwrap_or_default();
    let is_text = said.ends_with(b"\n") && str::from_utf8(said).is_ok();
    let is_answer = status == 0 && (is_text || [8, 16, 32].contains(&length)) || status == 2 && length == 0;
    assert!(is_answer, "status {status}, {length} bytes: {}", said.escape_ascii());
    answer(status, said)
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

pub fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// Returns a long request, with padding that is not zero.
pub fn long(op: u32, body: &[u8]) -> Vec<u8> {
    let mut request =
        [&(LONG | op).to_be_bytes()[..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    request.resize(request.len().next_multiple_of(16), 0xee);
    request
}

/// Returns the body of a Range or Count request.
pub fn range_body(flags: u32, limit: u32, start: &[u8], end: &[u8]) -> Vec<u8> {
    let [start_len, end_len] = [start, end].map(|key| u32::try_from(key.len()).unwrap());
    let mut body: Vec<u8> = [flags, limit, start_len, end_len].into_iter().flat_map(u32::to_be_bytes).collect();
    body.extend_from_slice(start);
    body.extend_from_slice(end);
    body
}
