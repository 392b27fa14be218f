//! Foreign text in output for people: names, notes, file names, and messages of other programs.
//!
//! In: any text. Out: text that cannot move the cursor of a terminal, change its settings, or look like other text:
//! control characters, characters that change the direction of text, and invisible characters are escaped as in JSON
//! (`\n`, `\u001b`), so escaped JSON stays valid JSON.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

/// Returns whether a character must be escaped, because it could mislead a reader.
pub fn is_escaped(char: char) -> bool {
    char.is_control()
        || matches!(char,
            // Marks, embeddings, overrides, and isolates that change the direction of the text around them.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // Invisible characters.
            | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
            // Separators of lines and paragraphs.
            | '\u{2028}' | '\u{2029}')
}

fn push_escaped(to: &mut impl fmt::Write, char: char) -> fmt::Result {
    match char {
        '\n' => to.write_str("\\n"),
        '\r' => to.write_str("\\r"),
        '\t' => to.write_str("\\t"),
        char => char.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(to, "\\u{unit:04x}")),
    }
}

/// Writes text, and escapes the characters for which `is_escaped` is true.
fn write_escaped(to: &mut impl fmt::Write, text: &str, is_escaped: impl Fn(char) -> bool) -> fmt::Result {
    let mut plain_from = 0;
    for (at, char) in text.char_indices().filter(|(_, char)| is_escaped(*char)) {
        to.write_str(&text[plain_from..at])?;
        push_escaped(to, char)?;
        plain_from = at + char.len_utf8();
    }
    to.write_str(&text[plain_from..])
}

/// Returns a text on one line, with escapes for all characters that [`Printable`] escapes, except those that `is_kept`
/// selects.
pub fn escaped_except(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    write_escaped(&mut escaped, text, |char| is_escaped(char) && !is_kept(char)).expect("a String takes any text");
    escaped
}

/// Displays a text on one line.
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

        impl fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                write_escaped(self.0, text, is_escaped)
            }
        }

        write!(Escaping(f), "{}", self.0)
    }
}

/// Returns a text on one line with at most `chars_max` characters, and `...` instead of the others. If the text is
/// bytes, invalid UTF-8 must have been replaced.
pub fn shortened(text: &str, chars_max: usize) -> String {
    let mut short = String::new();
    let mut room = chars_max;
    for char in text.chars() {
        let len_before = short.len();
        match is_escaped(char) {
            true => push_escaped(&mut short, char).expect("a String takes any text"),
            false => short.push(char),
        }
        let taken = if is_escaped(char) { short.len() - len_before } else { 1 };
        if taken > room {
            short.truncate(len_before);
            short.push_str("...");
            break;
        }
        room -= taken;
    }
    short
}

/// Writes text, and escapes everything that [`Printable`] escapes, except line ends and tabs. Bytes that are not UTF-8
/// are replaced by U+FFFD.
pub struct PrintableWriter<W: Write> {
    output: W,
    /// The first bytes of a character whose other bytes have not been written yet.
    incomplete: Vec<u8>,
}

impl<W: Write> PrintableWriter<W> {
    pub fn new(output: W) -> PrintableWriter<W> {
        PrintableWriter { output, incomplete: Vec::new() }
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.incomplete.extend_from_slice(bytes);
        let text = std::mem::take(&mut self.incomplete);
        let mut printable = String::with_capacity(text.len());
        let mut chunks = text.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            printable.push_str(&escaped_except(chunk.valid(), |char| char == '\n' || char == '\t'));
            let invalid = chunk.invalid();
            let is_incomplete = str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_incomplete {
                self.incomplete = invalid.to_vec();
            } else if !invalid.is_empty() {
                printable.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.output.write_all(printable.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.incomplete).is_empty() {
            self.output.write_all("\u{fffd}".as_bytes())?;
        }
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that would otherwise clear the screen, move the cursor, reverse the text, or hide a part of it.
    const HOSTILE: &str = "a\x1b[2Jb\u{9b}1;1Hc\rd\ne\tf\u{202e}g\u{200b}h\u{7f}i\0j\u{e0041}\u{2028}ü日\u{301}";
    const ESCAPED: &str = r"a\u001b[2Jb\u009b1;1Hc\rd\ne\tf\u202eg\u200bh\u007fi\u0000j\udb40\udc41\u2028ü日";

    #[test]
    fn hostile_text_is_displayed_on_one_line_without_control_and_invisible_characters() {
        assert_eq!(Printable(HOSTILE).to_string(), format!("{ESCAPED}\u{301}"));
        assert_eq!(serde_json::from_str::<String>(&format!("\"{}\"", Printable(HOSTILE))).unwrap(), HOSTILE);
        for char in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = Printable(char).to_string();
            assert!(!shown.contains(is_escaped), "{char:?}");
            assert_eq!(shown.chars().count() == 1, !is_escaped(char), "{char:?}");
        }
    }

    #[test]
    fn long_text_is_shortened_and_its_length_counts_escapes() {
        assert_eq!(shortened("", 0), "");
        assert_eq!(shortened("üü", 2), "üü");
        assert_eq!(shortened("üüü", 2), "üü...");
        assert_eq!(shortened("\x1bab", 6), r"\u001b...");
        assert_eq!(shortened("\x1bab", 5), "...");
        assert_eq!(shortened(&"x".repeat(70_000), 120).len(), 123);
        assert_eq!(shortened(HOSTILE, usize::MAX), Printable(HOSTILE).to_string());
    }

    #[test]
    fn a_writer_escapes_text_that_arrives_in_pieces_and_keeps_line_ends() {
        let text = [HOSTILE.as_bytes(), b"\xff\xfe\xe6\x97"].concat();
        let expected = ESCAPED.replace(r"\n", "\n").replace(r"\t", "\t") + "\u{301}\u{fffd}\u{fffd}\u{fffd}";
        for piece_len_bytes in 1..=text.len() {
            let mut written = Vec::new();
            let mut writer = PrintableWriter::new(&mut written);
            text.chunks(piece_len_bytes).for_each(|piece| writer.write_all(piece).unwrap());
            writer.flush().unwrap();
            drop(writer);
            assert_eq!(String::from_utf8(written).unwrap(), expected, "pieces of {piece_len_bytes} bytes");
        }
    }
}
