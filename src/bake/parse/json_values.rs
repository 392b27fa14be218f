//! Finds JSON values in text that is not JSON Lines: the elements of lists, and objects that span lines or follow each
//! other.
//!
//! In: text. Out: the ranges of values. Only strings and brackets are interpreted: the parser of a value finds its
//! other faults.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// How an input of JSON separates its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonLayout {
    /// Every line is a row.
    Lines,
    /// Rows are values that can span lines: the elements of a list, or values after each other.
    Values,
}

impl JsonLayout {
    /// Returns the layout that the first object of an input shows. Returns `None` if more bytes are needed. If `at_end`
    /// is true, no more bytes follow.
    pub(super) fn detect(bytes: &[u8], at_end: bool) -> Option<JsonLayout> {
        let lines_at_end = at_end.then_some(JsonLayout::Lines);
        let next =
            |from: usize, is_skipped: fn(u8) -> bool| bytes[from..].iter().copied().find(|byte| !is_skipped(*byte));
        let is_space: fn(u8) -> bool = |byte| byte.is_ascii_whitespace();
        let Some(start) = bytes.iter().position(|byte| !is_space(*byte)) else { return lines_at_end };
        match bytes[start] {
            b'[' => return Some(JsonLayout::Values),
            b'{' => {}
            _ => return Some(JsonLayout::Lines),
        }
        let end = value_end(bytes, start, at_end);
        let line_end = memchr(b'\n', &bytes[start..]).map(|found| start + found);
        let after = match (end, line_end) {
            // The line ends inside the object. If another object begins on the next line, the line is malformed.
            (end, Some(line_end)) if end.is_none_or(|end| line_end < end) => {
                next(line_end, is_space).map(|byte| byte != b'{')
            }
            (Some(end), _) => next(end, |byte| matches!(byte, b' ' | b'\t' | b'\r')).map(|byte| b"{[,".contains(&byte)),
            (None, _) => None,
        };
        match after {
            Some(true) => Some(JsonLayout::Values),
            Some(false) => Some(JsonLayout::Lines),
            None => lines_at_end,
        }
    }
}

/// Iterates over the ranges of complete values. White space, commas, and the brackets of lists separate them.
pub(super) struct JsonValues<'b> {
    pub(super) bytes: &'b [u8],
    /// The end of the last value, or of the separators after it.
    pub(super) at: usize,
    /// Whether the position is inside a list of rows.
    pub(super) is_in_list: bool,
    /// Whether no more bytes follow.
    pub(super) at_end: bool,
}

impl Iterator for JsonValues<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            match *self.bytes.get(self.at)? {
                b',' => {}
                byte if byte.is_ascii_whitespace() => {}
                b'[' if !self.is_in_list => self.is_in_list = true,
                b']' if self.is_in_list => self.is_in_list = false,
                _ => {
                    let start = self.at;
                    self.at = value_end(self.bytes, start, self.at_end)?;
                    return Some(start..self.at);
                }
            }
            self.at += 1;
        }
    }
}

/// Returns the end of the value that begins at `start`, or `None` if it is not complete.
fn value_end(bytes: &[u8], start: usize, at_end: bool) -> Option<usize> {
    match bytes[start] {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let (mut at, mut depth) = (start, 0_usize);
            loop {
                match *bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let is_end = |byte: &u8| byte.is_ascii_whitespace() || b",[]{}\"".contains(byte);
            let found = bytes[start + 1..].iter().position(is_end);
            found.map(|found| start + 1 + found).or(at_end.then_some(bytes.len()))
        }
    }
}

/// Returns the end of the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}
