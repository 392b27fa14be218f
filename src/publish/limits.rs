//! The limits of what a store can state.
//!
//! In: numbers and texts of documents and responses. They are chosen by other writers to the store, or by a server in
//! its place. Out: an error for a value out of range, before anything is allocated, created, or looped over. Publishers
//! and readers check the same limits, which docs/PUBLISHING.md lists.
//!
//! Texts of a store in messages for people become one line of limited length, whose characters do not change a terminal
//! ([`one_line`]). Errors are in logs, in Info, in statuses, and on terminals, so all of them have this form.

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

pub(super) use crate::cluster::NUMBER_MAX;
pub(super) use crate::format::index::ROW_COUNT_MAX;
use crate::format::record::RECORDS_LEN_MAX_BYTES;
use crate::printable::Printable;
pub(super) use crate::protocol::native::KEY_LEN_MAX_BYTES;
use crate::slots::SLOT_COUNT;
pub(super) use crate::typed::COLUMN_COUNT_MAX;

/// The maximum length of a manifest, and of a response of the store that is not a part of a file.
pub(super) const MANIFEST_LEN_MAX_BYTES: u64 = 64 << 20;
/// The maximum length of a topology. A topology of the maximum number of nodes has less than half of it.
pub(super) const TOPOLOGY_LEN_MAX_BYTES: u64 = crate::cluster::TOPOLOGY_LEN_MAX_BYTES as u64;
/// The maximum length of a pin, which has room for the names of [`NODES_MAX`] nodes.
pub(super) const PIN_LEN_MAX_BYTES: u64 = 4 << 20;
/// The maximum length of a policy, which has two numbers.
pub(super) const POLICY_LEN_MAX_BYTES: u64 = 4 << 10;
/// The maximum length of a decision, which has one word.
pub(super) const DECISION_LEN_MAX_BYTES: u64 = 4 << 10;
/// The maximum length of a status, which has room for every second slot as a range.
pub(super) const STATUS_LEN_MAX_BYTES: u64 = 1 << 20;
/// The maximum length of the record of what a node serves, which has its slots, earlier ones, and its pin.
pub(super) const RECORD_LEN_MAX_BYTES: u64 = (1 + EARLIER_SLOTS_MAX as u64) * STATUS_LEN_MAX_BYTES + PIN_LEN_MAX_BYTES;
/// The maximum length of the state of an unfinished transfer. A longer state is ignored, and the transfer starts again.
pub(super) const STATE_LEN_MAX_BYTES: u64 = 64 << 20;

/// The maximum length of a file of a table: the longest possible records, and as much for the index and the checksums,
/// which need less.
pub(super) const FILE_LEN_MAX_BYTES: u64 = 2 * RECORDS_LEN_MAX_BYTES;
/// The maximum number of files of a generation. Each file has at least one slot.
pub(super) const ENTRIES_MAX: usize = SLOT_COUNT as usize;
/// The maximum length of the name of an object, which is less than the maximum of every store.
pub(super) const OBJECT_LEN_MAX_BYTES: usize = 512;
/// The maximum length of a column in a manifest: its name, and its type.
pub(super) const COLUMN_LEN_MAX_BYTES: usize = 1024;
/// The maximum number of canaries. A server looks all of them up before it serves a generation.
pub(super) const CANARIES_MAX: usize = 1 << 16;
/// The maximum number of allowed changes. Newer versions may know more of them than this one.
pub(super) const ALLOWED_MAX: usize = 64;
/// The maximum length of a note. Linux has the same limit for an argument of a program.
pub(super) const NOTE_LEN_MAX_BYTES: usize = 128 << 10;
/// The maximum length of other texts, such as times and names.
pub(super) const TEXT_LEN_MAX_BYTES: usize = 1024;
/// The maximum number of nodes that a pin names. A topology has the same limit.
pub(super) const NODES_MAX: usize = 1 << 14;
/// The maximum number of ranges of a set of slots. Between two ranges, a slot is missing.
pub(super) const RANGES_MAX: usize = SLOT_COUNT as usize / 2;
/// The maximum number of sets of slots that a node remembers. A topology changes less often than the table.
pub(super) const EARLIER_SLOTS_MAX: usize = 4;
/// The maximum number of statuses, or of files of a table, that are listed.
pub(super) const STATUSES_MAX: usize = 1 << 16;
pub(super) const FILES_MAX: usize = 1 << 22;
/// The maximum number of documents of a series that are listed after a number that exists.
pub(super) const NUMBERS_MAX: usize = 1 << 20;

// The sums over all files of a generation cannot overflow.
const _: () = assert!(FILE_LEN_MAX_BYTES.checked_mul(ENTRIES_MAX as u64).is_some());
const _: () = assert!(ROW_COUNT_MAX.checked_mul(ENTRIES_MAX as u64).is_some());

/// Checks that a number is at most `max`. The error states the problem.
pub(super) fn check_number(name: &str, found: u64, max: u64) -> Result<(), String> {
    if found <= max { Ok(()) } else { Err(format!("{name} is {found}, expected at most {max}")) }
}

/// Checks the length of a text. The error states the problem.
pub(super) fn check_len(name: &str, text: &str, max_bytes: usize) -> Result<(), String> {
    if text.len() <= max_bytes {
        return Ok(());
    }
    Err(format!("{name} has {} bytes, expected at most {max_bytes}", text.len()))
}

/// Checks the number of elements of a list. The error states the problem.
pub(super) fn check_count(name: &str, found: usize, max: usize) -> Result<(), String> {
    if found <= max { Ok(()) } else { Err(format!("has {found} {name}, expected at most {max}")) }
}

/// Deserializes a list of at most `MAX` elements. Stops at the first one that is too many, because elements can need
/// much more memory than their text.
pub(super) fn list<'d, T: Deserialize<'d>, D: Deserializer<'d>, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error> {
    struct List<T, const MAX: usize>(std::marker::PhantomData<T>);

    impl<'d, T: Deserialize<'d>, const MAX: usize> Visitor<'d> for List<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'d>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == MAX {
                    return Err(A::Error::custom(format_args!("a list has more than {MAX} elements")));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    from.deserialize_seq(List::<T, MAX>(std::marker::PhantomData))
}

/// The maximum number of characters of a text in a message.
pub(crate) const CHARS_MAX: usize = 300;
/// The number of characters that stay at the end of a longer text, which has the remedy.
const END_CHARS: usize = 100;
/// Replaces the middle of a longer text.
const CUT: &str = " […] ";

/// Returns a text as one line of at most [`CHARS_MAX`] characters. Characters that are not visible are escaped, and the
/// middle of a longer text is left out.
pub(crate) fn one_line(text: &str) -> String {
    let words = cut(text).split_whitespace().collect::<Vec<_>>().join(" ");
    // An escaped character is several characters, so the text is cut a second time.
    cut(&Printable(words).to_string())
}

fn cut(text: &str) -> String {
    if text.char_indices().nth(CHARS_MAX).is_none() {
        return text.to_owned();
    }
    let begin_chars = CHARS_MAX - END_CHARS - CUT.chars().count();
    let begin = text.char_indices().nth(begin_chars).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().rev().nth(END_CHARS - 1).map_or(0, |(at, _)| at);
    format!("{}{CUT}{}", &text[..begin], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Lists {
        #[serde(deserialize_with = "list::<_, _, 3>")]
        texts: Vec<String>,
    }

    #[test]
    fn a_list_ends_at_its_limit() {
        let parse = |json: &str| serde_json::from_str::<Lists>(json).map(|lists| lists.texts.len());
        assert_eq!(parse(r#"{"texts":["","",""]}"#).unwrap(), 3);
        let error = parse(r#"{"texts":["","","","",7]}"#).unwrap_err().to_string();
        assert!(error.contains("more than 3 elements"), "{error}");
    }

    #[test]
    fn a_text_is_one_visible_line_of_limited_length() {
        for text in ["", "a \"quoted\" C:\\path isn't changed: ä €"] {
            assert_eq!(one_line(text), text);
        }
        assert_eq!(one_line(" a\r\n\tb\u{1b}[2J\u{202e}c\0 "), "a b\\u001b[2J\\u202ec\\u0000");
        let exact = "é".repeat(CHARS_MAX);
        assert_eq!(one_line(&exact), exact);
        for long in ["x".repeat(1 << 20), "é".repeat(1000), "\u{1b}".repeat(5000), " y".repeat(CHARS_MAX)] {
            let line = one_line(&format!("start {long}: the remedy"));
            assert!(line.chars().count() <= CHARS_MAX, "{line}");
            assert!(line.starts_with("start ") && line.ends_with(": the remedy") && line.contains(CUT), "{line}");
            assert!(!line.chars().any(char::is_control), "{line}");
        }
    }
}
