//! Shortens text that comes from files or other machines, and that a message or a fact contains.

use std::borrow::Cow;

/// The end of a shortened text.
const END: &str = "…";

/// Returns a text with at most `len_max_bytes`: the whole text, or its beginning and `…`.
pub(crate) fn excerpt(text: &str, len_max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= len_max_bytes {
        return text.into();
    }
    let end = len_max_bytes.saturating_sub(END.len());
    let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{END}", &text[..end]).into()
}

/// Returns a text with at most `chars_max` characters, and `…` instead of the others.
pub(crate) fn excerpt_chars(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}{END}", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for len_max_bytes in 3..20 {
            for text in ["", "abc", "ääääääää", "a€€€€€€", "0123456789abcdefghi"] {
                let short = excerpt(text, len_max_bytes);
                assert!(short.len() <= len_max_bytes);
                assert_eq!(short == text, text.len() <= len_max_bytes);
                assert!(short == text || text.starts_with(short.strip_suffix('…').unwrap()));
                let short = excerpt_chars(text, len_max_bytes);
                let chars = text.chars().count();
                assert_eq!(short.chars().count(), if chars > len_max_bytes { len_max_bytes + 1 } else { chars });
                assert!(short == text || text.starts_with(short.strip_suffix('…').unwrap()));
            }
        }
    }
}
