//! Parses the arguments of `ZKV.RANGE` and `ZKV.COUNT`.
//!
//! In: the arguments after the command's name. Out: the requested span, and for `ZKV.RANGE` the order and the page.
//! Keys remain text; the table defines their order.
//!
//! ```text
//! ZKV.RANGE span [REV] [LIMIT count] [FROM cursor]
//! ZKV.COUNT span
//!
//! span:  min max | PREFIX prefix
//! min, max, cursor:
//!        -        before all keys
//!        +        after all keys
//!        [key     this key, included
//!        (key     this key, excluded
//!        key      same as [key
//! ```
//!
//! A key that starts with `-`, `+`, `[`, or `(`, or equals `PREFIX` in any case, must be written as `[key`. `min`
//! always precedes `max`; `REV` only reverses the order of the rows. Options may be in any order, each at most once.
//!
//! The reply to `ZKV.RANGE` is an array with two elements: the cursor of the next page, or null after the last page,
//! and an array of alternating keys and values. A page has at most `LIMIT` rows ([`LIMIT_DEFAULT`] by default). Any
//! page may have fewer rows, or none. Only a null cursor marks the last page. The cursor is `(` and the last key that
//! was examined. To request the next page, send a command with the span and the order of the previous command, and
//! `FROM` with the cursor. `FROM` also accepts any other key: rows that precede this key in the requested order are
//! omitted. The server keeps no state for a cursor, so a cursor remains valid on other connections, and after the table
//! is replaced.
//!
//! The reply to `ZKV.COUNT` is the number of keys in the span. An empty span, such as `+ -` or a `min` greater than
//! `max`, is not an error.
//!
//! Keys are in the written form of the table's type, and ordered as its values. `PREFIX` takes the beginning of bytes, or
//! leading parts of composite keys, and is an error if keys are stored as numbers.

use thiserror::Error;

use super::{Args, integer};

/// Maximum number of rows of a page if the command has no `LIMIT`.
pub const LIMIT_DEFAULT: usize = 100;

/// One end of a span, or a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge<'a> {
    /// A bound before all keys.
    Least,
    /// A bound after all keys.
    Greatest,
    /// A bound that includes this key.
    Included(&'a [u8]),
    /// A bound that excludes this key.
    Excluded(&'a [u8]),
}

/// The keys that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span<'a> {
    /// The keys between two ends.
    Between {
        /// The lower end.
        min: Edge<'a>,
        /// The upper end.
        max: Edge<'a>,
    },
    /// The keys that start with these bytes.
    Prefix(&'a [u8]),
}

/// The arguments of `ZKV.RANGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeArgs<'a> {
    /// The keys that a command requests.
    pub span: Span<'a>,
    /// Whether rows are requested in descending order.
    pub reverse: bool,
    /// Maximum number of rows of the page. This maximum is at least one.
    pub limit: usize,
    /// Start of the page. Rows that precede this start in the requested order are omitted.
    pub from: Option<Edge<'a>>,
}

/// The reason why the arguments are invalid. The message is the text of the reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RangeError {
    /// The span is incomplete, or an option is unknown, repeated, or without its value.
    #[error("ERR syntax error")]
    Syntax,
    /// An end of the span, or the cursor, starts with `-` or `+` and has more characters.
    #[error("ERR min or max not valid string range item: a key that begins with -, +, [ or ( is written as [key")]
    Edge,
    /// The limit is not a number.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// The limit is less than one.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
}

impl<'a> RangeArgs<'a> {
    /// Parses the arguments after `ZKV.RANGE`.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn parse(mut args: Args<'a>) -> Result<Self, RangeError> {
        let span = Span::take(&mut args)?;
        let (mut reverse, mut limit, mut from) = (None, None, None);
        while let Some(option) = args.next() {
            let is_new = if option.eq_ignore_ascii_case(b"REV") {
                reverse.replace(()).is_none()
            } else if option.eq_ignore_ascii_case(b"LIMIT") {
                let number = integer(args.next().ok_or(RangeError::Syntax)?).ok_or(RangeError::NotInteger)?;
                let count = usize::try_from(number).ok().filter(|&count| count > 0).ok_or(RangeError::NotPositive)?;
                limit.replace(count).is_none()
            } else if option.eq_ignore_ascii_case(b"FROM") {
                from.replace(Edge::parse(args.next().ok_or(RangeError::Syntax)?)?).is_none()
            } else {
                false
            };
            if !is_new {
                return Err(RangeError::Syntax);
            }
        }
        Ok(RangeArgs { span, reverse: reverse.is_some(), limit: limit.unwrap_or(LIMIT_DEFAULT), from })
    }
}

impl<'a> Span<'a> {
    /// Returns whether `first`, the first argument of a span, is the word `PREFIX`.
    pub fn is_prefix(first: &[u8]) -> bool {
        first.eq_ignore_ascii_case(b"PREFIX")
    }

    /// Parses the arguments after `ZKV.COUNT`.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn parse(mut args: Args<'a>) -> Result<Self, RangeError> {
        let span = Span::take(&mut args)?;
        if args.next().is_some() { Err(RangeError::Syntax) } else { Ok(span) }
    }

    fn take(args: &mut Args<'a>) -> Result<Self, RangeError> {
        let (first, second) = (args.next().ok_or(RangeError::Syntax)?, args.next().ok_or(RangeError::Syntax)?);
        if first.eq_ignore_ascii_case(b"PREFIX") {
            return Ok(Span::Prefix(second));
        }
        Ok(Span::Between { min: Edge::parse(first)?, max: Edge::parse(second)? })
    }
}

impl<'a> Edge<'a> {
    fn parse(arg: &'a [u8]) -> Result<Self, RangeError> {
        match arg {
            b"-" => Ok(Edge::Least),
            b"+" => Ok(Edge::Greatest),
            [b'[', key @ ..] => Ok(Edge::Included(key)),
            [b'(', key @ ..] => Ok(Edge::Excluded(key)),
            [b'-' | b'+', ..] => Err(RangeError::Edge),
            key => Ok(Edge::Included(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::*;

    /// Calls `read` with `words` as the arguments of a command.
    fn with_args<R>(words: &str, read: impl FnOnce(Args) -> R) -> R {
        let bytes = super::super::inline::to_command(format!("name {words}").as_bytes()).unwrap();
        let mut args = Command::new(&bytes).args();
        args.next();
        read(args)
    }

    fn between(words: &str) -> Result<String, RangeError> {
        with_args(words, |args| {
            Span::parse(args).map(|span| match span {
                Span::Between { min, max } => [min, max]
                    .map(|edge| match edge {
                        Edge::Least => "least".to_owned(),
                        Edge::Greatest => "greatest".to_owned(),
                        Edge::Included(key) => format!("={}", key.escape_ascii()),
                        Edge::Excluded(key) => format!("~{}", key.escape_ascii()),
                    })
                    .join(" "),
                Span::Prefix(prefix) => format!("prefix {}", prefix.escape_ascii()),
            })
        })
    }

    #[test]
    fn every_form_of_a_span_is_parsed() {
        for (words, span) in [
            ("- +", "least greatest"),
            ("+ -", "greatest least"),
            ("a b", "=a =b"),
            ("[a (b", "=a ~b"),
            ("[-x [(y", "=-x =(y"),
            ("(+ [", "~+ ="),
            ("'' \"\\x00\"", "= =\\x00"),
            ("PREFIX a", "prefix a"),
            ("prefix -", "prefix -"),
            ("[prefix prefix", "=prefix =prefix"),
            ("Prefix ''", "prefix "),
        ] {
            assert_eq!(between(words).as_deref(), Ok(span), "{words}");
        }
    }

    #[test]
    fn an_ambiguous_key_is_rejected() {
        for words in ["-a +", "- +a", "-- +"] {
            assert_eq!(between(words), Err(RangeError::Edge), "{words}");
        }
        for words in ["", "-", "PREFIX", "a b c", "a b LIMIT 3"] {
            assert_eq!(between(words), Err(RangeError::Syntax), "{words}");
        }
    }

    #[test]
    fn options_may_be_in_any_order_and_case() {
        let plain = RangeArgs {
            span: Span::Between { min: Edge::Least, max: Edge::Greatest },
            reverse: false,
            limit: LIMIT_DEFAULT,
            from: None,
        };
        with_args("- +", |args| assert_eq!(RangeArgs::parse(args), Ok(plain)));
        let all = RangeArgs { reverse: true, limit: 7, from: Some(Edge::Excluded(b"k")), ..plain };
        for words in ["- + REV LIMIT 7 FROM (k", "- + from (k limit 7 rev", "- + Limit 7 Rev From (k"] {
            with_args(words, |args| assert_eq!(RangeArgs::parse(args), Ok(all), "{words}"));
        }
        let prefix = RangeArgs { span: Span::Prefix(b"rev"), reverse: true, ..plain };
        with_args("PREFIX rev rev", |args| assert_eq!(RangeArgs::parse(args), Ok(prefix)));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (words, error) in [
            ("- + x", RangeError::Syntax),
            ("- + LIMIT", RangeError::Syntax),
            ("- + FROM", RangeError::Syntax),
            ("- + REV REV", RangeError::Syntax),
            ("- + LIMIT 1 LIMIT 1", RangeError::Syntax),
            ("- + FROM a FROM a", RangeError::Syntax),
            ("- + LIMIT x", RangeError::NotInteger),
            ("- + LIMIT 9223372036854775808", RangeError::NotInteger),
            ("- + LIMIT 0", RangeError::NotPositive),
            ("- + LIMIT -1", RangeError::NotPositive),
            ("- + FROM -x", RangeError::Edge),
        ] {
            with_args(words, |args| assert_eq!(RangeArgs::parse(args), Err(error), "{words}"));
        }
    }
}
