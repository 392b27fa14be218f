//! Detects text with escapes that is read without escapes.

use std::ops::ControlFlow;

use super::{Records, TextPiece};
use crate::bake::error::BakeError;
use crate::bake::warning::Warning;

/// The number of escapes that are no coincidence.
const COUNT_MIN: usize = 3;
/// The bytes that MySQL, PostgreSQL, and Hive write after a backslash.
const ESCAPED: &[u8] = b"\\bfnrtv0N";

/// Returns a warning if text without quotes has backslashes, and all of them begin escapes. Other backslashes, as in
/// paths of Windows and in regular expressions, show that no escapes are meant. Fields with JSON have escapes of their
/// own.
pub(super) fn warning_of_possible_escapes(
    input: &str,
    first: &TextPiece,
    mut records: Records,
) -> Result<Option<Warning>, BakeError> {
    let is_read = records.dialect.quote.is_some() || records.dialect.escape.is_some();
    if is_read || memchr::memchr(b'\\', &first.bytes).is_none() {
        return Ok(None);
    }
    let (mut found, mut count, mut has_others) = (None, 0, false);
    records.each(first, |record| {
        for field in (0..record.ranges.len()).filter_map(|index| record.field(index)) {
            if matches!(field.trim_ascii_start(), [b'{' | b'[' | b'"', ..]) {
                continue;
            }
            let mut at = 0;
            while let Some(backslash) = memchr::memchr(b'\\', &field[at..]) {
                at += backslash;
                let is_path = at > 0 && field[at - 1] == b':';
                match field.get(at + 1) {
                    Some(escaped) if ESCAPED.contains(escaped) && !is_path => {
                        count += 1;
                        found.get_or_insert((record.line, char::from(*escaped)));
                    }
                    _ => has_others = true,
                }
                at = field.len().min(at + 2);
            }
        }
        Ok(if has_others { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let warning =
        |(line, escaped)| Warning::PossibleEscapes { input: input.to_owned(), line, escape: format!("\\{escaped}") };
    Ok(found.filter(|_| count >= COUNT_MIN && !has_others).map(warning))
}
