//! How `ZKV.RANGE` and `ZKV.COUNT` are written.
//!
//! In: the arguments behind the name. Out: which keys are meant, and which
//! page of them. It knows no order of keys: what lies between two, the table
//! says.
//!
//! ```text
//! ZKV.RANGE span [REV] [LIMIT count] [FROM cursor]
//! ZKV.COUNT span
//!
//! span:  min max | PREFIX prefix
//! min, max, cursor:
//!        -        before every key
//!        +        behind every key
//!        [key     this key, included
//!        (key     this key, excluded
//!        key      as [key
//! ```
//!
//! A key that begins with `-`, `+`, `[` or `(`, or whose letters are `PREFIX` in
//! any case, must be written as `[key`. `min` always comes before `max`; `REV`
//! only turns the order around. Options come in any order, each at most once.
//!
//! The reply to `ZKV.RANGE` is an array of two: the cursor of the next page, or
//! null behind the last, and an array of keys and values by turns. A page has at
//! most `LIMIT` rows ([`LIMIT_DEFAULT`] unless told) and may have fewer, even
//! none: only a null cursor says that it is the last. The cursor is `(` and the
//! last key that was looked at. `FROM` goes on behind it, with the same span
//! and order; any other key may be written there, too, and whatever of the
//! span comes before it, in the order asked for, is left out. It needs no state
//! of the server's, so it outlives connection and table.
//!
//! The reply to `ZKV.COUNT` is the number of keys in the span. An empty span,
//! such as `+ -` or a `min` above `max`, has none; it is no error.
//!
//! A table of numbers reads keys as decimal text and orders them as numbers;
//! it has no prefixes and refuses `PREFIX`.

use thiserror::Error;

use super::{Args, integer};

/// The most rows of a page, unless `LIMIT` says another number.
pub const LIMIT_DEFAULT: usize = 100;

/// One end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge<'a> {
    /// Before every key.
    Least,
    /// Behind every key.
    Greatest,
    /// At this key, which belongs to the span.
    Included(&'a [u8]),
    /// At this key, which does not belong to the span.
    Excluded(&'a [u8]),
}

/// The keys that are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span<'a> {
    /// Those from one end to the other.
    Between {
        /// The lower end.
        min: Edge<'a>,
        /// The upper end.
        max: Edge<'a>,
    },
    /// Those that begin with these bytes.
    Prefix(&'a [u8]),
}

/// What `ZKV.RANGE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The keys that are meant.
    pub span: Span<'a>,
    /// Whether the greatest comes first.
    pub reverse: bool,
    /// The most rows to reply with, at least one.
    pub limit: usize,
    /// Where to go on: what comes before it, in the order asked for, is left out.
    pub from: Option<Edge<'a>>,
}

/// Why arguments are no range; the reply's text.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RangeError {
    /// An option is unknown, comes twice, or lacks its value.
    #[error("ERR syntax error")]
    Syntax,
    /// An end of the span begins like another form.
    #[error("ERR min or max not valid string range item: a key that begins with -, +, [ or ( is written as [key")]
    Edge,
    /// The limit is no number.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// The limit is below one.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
}

impl<'a> Page<'a> {
    /// Reads what stands behind `ZKV.RANGE`.
    ///
    /// # Errors
    /// [`RangeError`]
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
        Ok(Page { span, reverse: reverse.is_some(), limit: limit.unwrap_or(LIMIT_DEFAULT), from })
    }
}

impl<'a> Span<'a> {
    /// Reads what stands behind `ZKV.COUNT`.
    ///
    /// # Errors
    /// [`RangeError`]
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

    /// Has `read` read the words of a command behind its name.
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
    fn every_form_of_a_span_is_read() {
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
    fn a_key_that_could_be_another_form_is_refused() {
        for words in ["-a +", "- +a", "-- +"] {
            assert_eq!(between(words), Err(RangeError::Edge), "{words}");
        }
        for words in ["", "-", "PREFIX", "a b c", "a b LIMIT 3"] {
            assert_eq!(between(words), Err(RangeError::Syntax), "{words}");
        }
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let plain = Page {
            span: Span::Between { min: Edge::Least, max: Edge::Greatest },
            reverse: false,
            limit: LIMIT_DEFAULT,
            from: None,
        };
        with_args("- +", |args| assert_eq!(Page::parse(args), Ok(plain)));
        let all = Page { reverse: true, limit: 7, from: Some(Edge::Excluded(b"k")), ..plain };
        for words in ["- + REV LIMIT 7 FROM (k", "- + from (k limit 7 rev", "- + Limit 7 Rev From (k"] {
            with_args(words, |args| assert_eq!(Page::parse(args), Ok(all), "{words}"));
        }
        let prefix = Page { span: Span::Prefix(b"rev"), reverse: true, ..plain };
        with_args("PREFIX rev rev", |args| assert_eq!(Page::parse(args), Ok(prefix)));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
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
            with_args(words, |args| assert_eq!(Page::parse(args), Err(error), "{words}"));
        }
    }
}
