//! Text that a store, or whoever writes to it, chooses, in messages for people.
//!
//! In: text of any length, with any characters. Out: one line of limited length, whose characters do not change a
//! terminal. Errors are in logs, in Info, in statuses, and on terminals, so all of them have this form:
//! [`PublishError`](super::PublishError) converts its texts.

use crate::printable::Printable;

/// The maximum number of characters of a text in a message.
pub(crate) const CHARS_MAX: usize = 300;
/// The number of characters that stay at the end of a longer text, which has the remedy.
const END_CHARS: usize = 100;
/// What stands for the middle of a longer text.
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
