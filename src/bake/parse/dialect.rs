//! The dialect of delimited text: the bytes that have a meaning.

use crate::bake::error::BakeError;
use crate::bake::options::{Options, Quote};

/// The bytes of delimited text that have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    /// The byte that encloses fields. `None` if fields have no quotes.
    pub(super) quote: Option<u8>,
    /// The byte that removes the meaning of the next byte.
    pub(super) escape: Option<u8>,
    /// The first byte of a comment.
    pub(super) comment: Option<u8>,
}

impl Dialect {
    /// Returns the dialect of RFC 4180 with another delimiter.
    #[cfg(test)]
    pub(super) fn with_delimiter(delimiter: u8) -> Dialect {
        Dialect { delimiter, quote: Some(b'"'), escape: None, comment: None }
    }

    /// Returns the dialect that the options choose for a format with this delimiter. Returns an error if a byte would
    /// have two meanings.
    pub(super) fn new(options: &Options, delimiter: u8) -> Result<Dialect, BakeError> {
        let delimiter = options.delimiter.unwrap_or(delimiter);
        let quote = match options.quote {
            Quote::Auto => (delimiter != b'\t').then_some(b'"'),
            Quote::None => None,
            Quote::Byte(quote) => Some(quote),
        };
        // A quote that escapes itself is a doubled quote.
        let escape = options.escape.filter(|escape| Some(*escape) != quote);
        let dialect = Dialect { delimiter, quote, escape, comment: options.comment };
        let named = [
            ("delimiter", Some(delimiter)),
            ("quote", quote),
            ("escape", escape),
            ("first byte of comments", options.comment),
        ];
        let used = named.iter().enumerate().filter_map(|(at, (role, byte))| Some((at, *role, (*byte)?)));
        for (at, role, byte) in used {
            let other = named[..at].iter().find(|(_, other)| *other == Some(byte)).map(|(other, _)| *other);
            let other = if matches!(byte, b'\n' | b'\r') { Some("end of a line") } else { other };
            if let Some(other) = other {
                return Err(BakeError::Dialect { role, byte, other });
            }
        }
        Ok(dialect)
    }

    /// Returns whether a text at the start of a line is a comment.
    pub(super) fn is_comment(&self, line: &[u8]) -> bool {
        self.comment.is_some() && line.first().copied() == self.comment
    }

    /// Returns whether a quote at the offset `at` opens a field. Outside quoted fields, it does so at the start of a
    /// field.
    pub(super) fn opens_field(&self, bytes: &[u8], at: usize) -> bool {
        let before = at.checked_sub(1).map_or(b'\n', |before| bytes[before]);
        before == self.delimiter || before == b'\n'
    }
}
