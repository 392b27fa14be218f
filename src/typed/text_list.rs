//! Lists of text: their encoding, and their elements.
//!
//! In: texts, or the bytes of a list from a row. Out: the bytes of a list, or its texts. A list is stored as a JSON
//! array of strings, in the only form that this module writes: without white space, and with escapes only where JSON
//! needs them, in their shortest spelling. Other programs write this form, too, such as `JSON.stringify` of JavaScript.
//! So the same texts always have the same bytes, and Redis clients get the stored bytes.
//!
//! The bytes may come from a damaged or forged file: [`TextList::from_bytes`] accepts no other form.

use std::borrow::Cow;
use std::fmt;

/// A list of texts.
///
/// # Example
/// ```
/// use zero_kv::typed::TextList;
///
/// let list = TextList::from_bytes(br#"["red","1\" screw"]"#).unwrap();
/// assert_eq!(list.iter().collect::<Vec<_>>(), ["red", "1\" screw"]);
/// assert_eq!(list.len(), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TextList<'a> {
    json: &'a str,
}

impl<'a> TextList<'a> {
    /// Returns the list with this JSON array. Returns `None` if `json` has another form than the one in which lists are
    /// stored: see [`TextList::encode`].
    pub fn from_bytes(json: &'a [u8]) -> Option<TextList<'a>> {
        let json = std::str::from_utf8(json).ok()?;
        let mut rest = json.strip_prefix('[')?.strip_suffix(']')?.as_bytes();
        while !rest.is_empty() {
            rest = &rest[string_len_bytes(rest)?..];
            match rest {
                [] => {}
                // A comma precedes another string.
                [b',', after @ ..] if !after.is_empty() => rest = after,
                _ => return None,
            }
        }
        Some(TextList { json })
    }

    /// Replaces the contents of `to` by the JSON array of these texts: strings separated by commas, without white
    /// space. Quotes, backslashes, and control characters below U+0020 are escaped: as `\b`, `\t`, `\n`, `\f`, or `\r`
    /// if possible, and otherwise as `\u` with four lowercase hexadecimal digits.
    pub fn encode<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, to: &mut Vec<u8>) -> TextList<'_> {
        to.clear();
        to.push(b'[');
        for text in texts {
            push_text(text.as_ref(), to);
        }
        to.push(b']');
        TextList { json: std::str::from_utf8(to).expect("texts are UTF-8") }
    }

    /// Returns the JSON array, as it is stored.
    pub fn as_json(&self) -> &'a str {
        self.json
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.strings().count()
    }

    /// Returns whether the list has no texts.
    pub fn is_empty(&self) -> bool {
        self.json == "[]"
    }

    /// Returns an iterator over the texts. A text without escapes is a part of the list's bytes.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        self.strings().map(unescaped)
    }

    /// Returns an iterator over the strings, without their quotes.
    fn strings(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = &self.json[1..self.json.len() - 1];
        std::iter::from_fn(move || {
            let len_bytes = string_len_bytes(rest.as_bytes())?;
            let string = &rest[1..len_bytes - 1];
            rest = rest[len_bytes..].strip_prefix(',').unwrap_or_default();
            Some(string)
        })
    }
}

impl fmt::Debug for TextList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Appends a text to a list that begins with `[`, and is not complete.
pub(crate) fn push_text(text: &str, to: &mut Vec<u8>) {
    if to.len() > 1 {
        to.push(b',');
    }
    to.push(b'"');
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            0x08 => b"\\b",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            0x0c => b"\\f",
            b'\r' => b"\\r",
            0..0x20 => &[b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]],
            _ => continue,
        };
        to.extend_from_slice(&text.as_bytes()[copied..at]);
        to.extend_from_slice(escape);
        copied = at + 1;
    }
    to.extend_from_slice(&text.as_bytes()[copied..]);
    to.push(b'"');
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns the length of the string at the start of `json`, with its quotes. Returns `None` if there is no string, or
/// if it has another form than [`push_text`] gives it.
fn string_len_bytes(json: &[u8]) -> Option<usize> {
    let mut at = json.strip_prefix(b"\"").map(|_| 1)?;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += escape(&json[at..])?.1,
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// Returns the character that an escape stands for, and the length of the escape. Returns `None` if [`push_text`] does
/// not write this escape.
fn escape(json: &[u8]) -> Option<(char, usize)> {
    Some(match *json.get(1)? {
        byte @ (b'"' | b'\\') => (byte.into(), 2),
        b'b' => ('\u{8}', 2),
        b't' => ('\t', 2),
        b'n' => ('\n', 2),
        b'f' => ('\u{c}', 2),
        b'r' => ('\r', 2),
        b'u' => {
            let digit = |at: usize| HEX.iter().position(|digit| json.get(at) == Some(digit));
            let code = (digit(2)? << 12 | digit(3)? << 8 | digit(4)? << 4 | digit(5)?) as u8 as char;
            let is_written = json[2..4] == *b"00" && code < ' ' && !"\u{8}\t\n\u{c}\r".contains(code);
            is_written.then_some((code, 6))?
        }
        _ => return None,
    })
}

fn unescaped(string: &str) -> Cow<'_, str> {
    if !string.contains('\\') {
        return Cow::Borrowed(string);
    }
    let (mut text, mut rest) = (String::with_capacity(string.len()), string);
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (character, len_bytes) = escape(&rest.as_bytes()[at..]).expect("the form was checked");
        text.push(character);
        rest = &rest[at + len_bytes..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_and_have_the_json_of_other_programs() {
        let controls: String = (0..=0x20).map(|code| char::from_u32(code).unwrap()).collect();
        let lists: [&[&str]; 7] = [
            &[],
            &[""],
            &["a", "", "ü🦀\u{7f}"],
            &["\"", "\\", "\\\"", ",", "[", "]"],
            &[&controls],
            &["a\nb", "\u{1}\u{1f}"],
            &["null", "1", "\\u0041"],
        ];
        let mut bytes = Vec::new();
        for texts in lists {
            let list = TextList::encode(texts, &mut bytes);
            assert!(list.iter().eq(texts.iter().copied()), "{texts:?}");
            assert_eq!((list.len(), list.is_empty()), (texts.len(), texts.is_empty()));
            assert_eq!(TextList::from_bytes(list.as_json().as_bytes()), Some(list));
            #[cfg(feature = "bake")]
            assert_eq!(list.as_json(), serde_json::to_string(texts).unwrap());
        }
    }

    #[test]
    fn another_spelling_of_a_list_is_rejected() {
        for json in [
            "",
            "[",
            "]",
            "[]]",
            "[\"a\"",
            "\"a\"]",
            "[ ]",
            "[\"a\",]",
            "[,\"a\"]",
            "[\"a\" ,\"b\"]",
            "[\"a\",,\"b\"]",
            "[\"a\"\"b\"]",
            "[a]",
            "[1]",
            "[null]",
            "[\"\n\"]",
            "[\"\\/\"]",
            "[\"\\u0041\"]",
            "[\"\\u001F\"]",
            "[\"\\u000a\"]",
            "[\"\\u0100\"]",
            "[\"\\u001\"]",
            "[\"\\\"]",
            "[\"\\x\"]",
            "[[]]",
        ] {
            assert_eq!(TextList::from_bytes(json.as_bytes()), None, "{json}");
        }
        assert_eq!(TextList::from_bytes(b"[\"\xff\"]"), None);
    }

    #[test]
    fn every_changed_byte_yields_a_list_that_encodes_to_the_same_bytes_or_none() {
        let mut bytes = Vec::new();
        TextList::encode(["a\u{1}\"", "", "é,"], &mut bytes);
        let mut encoded = Vec::new();
        for at in 0..bytes.len() {
            for changed_to in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = changed_to;
                if let Some(list) = TextList::from_bytes(&changed) {
                    TextList::encode(list.iter(), &mut encoded);
                    assert_eq!(encoded, changed);
                }
            }
        }
    }
}
