//! Matches keys against the patterns of `SCAN … MATCH` and `KEYS`.
//!
//! In: a pattern and a key, both bytes. Out: whether the key matches, and the common prefix of all matches.
//!
//! `?` matches any byte, and `*` matches any number of bytes. The class `[a-z\]]` matches one of the listed bytes, and
//! `[^…]` matches one byte that is not listed. After `\`, the next byte matches literally. The special cases follow
//! Redis: an unterminated class ends with the pattern, `]` is a member of a class only if it is escaped or ends a
//! range, and a range may be reversed. In a range, bytes above 127 are greater than bytes up to 127; in Redis, the
//! order depends on the C compiler.
//!
//! Between two stars, the leftmost match is always a correct choice, so the loop returns only to the last star. After a
//! star, at most [`PART_LEN_MAX_BYTES`] bytes of the pattern are compared at each position of the key, which bounds the
//! time for one key.

/// The maximum length of a part of a pattern that follows a star, up to the next star or the end of the pattern.
pub const PART_LEN_MAX_BYTES: usize = 64;

/// A pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Vec<u8>,
    literal_prefix: Vec<u8>,
}

impl Glob {
    /// Checks a pattern. Returns `None` if a part that follows a star is longer than [`PART_LEN_MAX_BYTES`].
    pub fn new(pattern: &[u8]) -> Option<Self> {
        let (mut literal_prefix, mut is_prefix) = (Vec::new(), true);
        let (mut rest, mut after_star) = (pattern, None);
        loop {
            let (element, after) = next_element(rest);
            if matches!(element, Element::Star | Element::End)
                && after_star.is_some_and(|start: &[u8]| start.len() - rest.len() > PART_LEN_MAX_BYTES)
            {
                return None;
            }
            match element {
                Element::End => return Some(Glob { pattern: pattern.to_vec(), literal_prefix }),
                Element::Literal(byte) if is_prefix => literal_prefix.push(byte),
                Element::Star => (is_prefix, after_star) = (false, Some(after)),
                _ => is_prefix = false,
            }
            rest = after;
        }
    }

    /// Returns the common prefix of all matches: the bytes before the pattern's first `?`, `*`, or class, with escapes
    /// decoded.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.literal_prefix
    }

    /// Returns whether the pattern matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_in(text, &mut 0)
    }

    /// Returns whether the pattern matches all of `text`. Increases `ops` by the number of bytes that were compared.
    pub fn matches_in(&self, text: &[u8], ops: &mut usize) -> bool {
        let (mut pattern, mut left) = (&*self.pattern, text);
        // The pattern after the last star, and the text that is left if this star matches one more byte.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            let (element, after) = next_element(pattern);
            *ops += 1 + pattern.len() - after.len();
            let is_match = match (element, left.split_first()) {
                (Element::Star, _) => {
                    (pattern, retry) = (after, Some((after, left)));
                    continue;
                }
                (Element::End, None) => return true,
                (Element::End, _) | (_, None) => false,
                (Element::Any, _) => true,
                (Element::Literal(literal), Some((byte, _))) => literal == *byte,
                (Element::Class { members, is_complement }, Some((byte, _))) => {
                    is_member(members, *byte) != is_complement
                }
            };
            if is_match {
                (pattern, left) = (after, &left[1..]);
                continue;
            }
            let Some((after_star, [_, rest @ ..])) = retry else { return false };
            (pattern, left, retry) = (after_star, rest, Some((after_star, rest)));
        }
    }
}

#[derive(Clone, Copy)]
enum Element<'p> {
    End,
    Star,
    Any,
    Literal(u8),
    Class { members: &'p [u8], is_complement: bool },
}

fn next_element(pattern: &[u8]) -> (Element<'_>, &[u8]) {
    let class = |class, is_complement| {
        let mut rest: &[u8] = class;
        while let Some((.., after)) = next_range(rest) {
            rest = after;
        }
        let members = &class[..class.len() - rest.len()];
        (Element::Class { members, is_complement }, rest.get(1..).unwrap_or_default())
    };
    match pattern {
        [] => (Element::End, pattern),
        [b'*', after @ ..] => (Element::Star, after),
        [b'?', after @ ..] => (Element::Any, after),
        [b'[', b'^', members @ ..] => class(members, true),
        [b'[', members @ ..] => class(members, false),
        [b'\\', byte, after @ ..] | [byte, after @ ..] => (Element::Literal(*byte), after),
    }
}

/// Returns the first range of a class (its two ends), and the rest of the class. Returns `None` at the end of the
/// class.
fn next_range(class: &[u8]) -> Option<(u8, u8, &[u8])> {
    match class {
        [] | [b']', ..] => None,
        [b'\\', one, after @ ..] => Some((*one, *one, after)),
        [one, b'-', other, after @ ..] => Some((*one.min(other), *one.max(other), after)),
        [one, after @ ..] => Some((*one, *one, after)),
    }
}

fn is_member(mut members: &[u8], byte: u8) -> bool {
    while let Some((first, last, after)) = next_range(members) {
        if (first..=last).contains(&byte) {
            return true;
        }
        members = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes()).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, matching, others) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "ab\n"], &[]),
            ("h?llo", &["hello", "h*llo", "h\nllo"], &["hllo", "heello", "Hello"]),
            ("h*llo", &["hllo", "heeeello", "hllollo"], &["hll", "xhllo", "hllox"]),
            ("*a*b", &["ab", "xaxb", "aab", "abab"], &["ba", "abx"]),
            ("a**b", &["ab", "axb"], &["a"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo", "haello"]),
            ("h[^e]llo", &["hallo", "h^llo"], &["hello", "hllo"]),
            ("h[a-c]llo", &["hallo", "hbllo", "hcllo"], &["hdllo", "h-llo"]),
            ("[z-x]", &["x", "y", "z"], &["-", "a"]),
            ("[a-c-e]", &["b", "-", "e"], &["d"]),
            ("[]", &[], &["", "]", "a"]),
            ("[^]", &["]", "a"], &[""]),
            ("[]a]", &[], &["]", "a", "]a]"]),
            ("[\\]a]", &["]", "a"], &["\\", "\\]"]),
            ("[\\a-c]", &["a", "-", "c"], &["b"]),
            ("[a-\\]]", &["a]", "]]", "\\]"], &["a", "b]", "[]"]),
            ("[a-]", &["]", "^", "a", "`"], &["-", "b"]),
            ("[ab", &["a", "b"], &["[", "[ab"]),
            ("[^ab", &["c"], &["a", "b"]),
            ("[a-", &["a", "-"], &["b"]),
            ("[", &[], &["[", "a", ""]),
            ("[^", &["a", "^"], &[""]),
            ("[a\\", &["a", "\\"], &["b"]),
            ("\\*", &["*"], &["a", "\\*"]),
            ("\\a\\\\", &["a\\"], &["a"]),
            ("a\\", &["a\\"], &["a"]),
            ("a-]^", &["a-]^"], &["b"]),
        ] {
            for text in matching {
                assert!(matches(pattern, text), "{pattern:?} {text:?}");
            }
            for text in others {
                assert!(!matches(pattern, text), "{pattern:?} {text:?}");
            }
        }
    }

    #[test]
    fn any_byte_can_be_in_a_pattern_or_key() {
        assert!(Glob::new(b"[\x7f-\x81]\xff").unwrap().matches(b"\x80\xff"));
        assert!(!Glob::new("?".as_bytes()).unwrap().matches("é".as_bytes()));
        assert!(Glob::new(b"a?b").unwrap().matches(b"a\0b"));
    }

    /// Returns all texts of up to `len_max` bytes that consist of `letters`.
    fn texts(letters: &[u8], len_max: usize) -> Vec<Vec<u8>> {
        let mut texts = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..len_max {
            let to = texts.len();
            for at in from..to {
                for &letter in letters {
                    texts.push([&texts[at][..], &[letter]].concat());
                }
            }
            from = to;
        }
        texts
    }

    /// A recursive reference matcher, for patterns without classes (`[…]`).
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', after @ ..], _) => (0..=text.len()).any(|at| model(after, &text[at..])),
            ([b'\\', byte, after @ ..], [first, rest @ ..]) => byte == first && model(after, rest),
            ([b'?', after @ ..], [_, rest @ ..]) => model(after, rest),
            ([byte, after @ ..], [first, rest @ ..]) => byte == first && model(after, rest),
            (_, []) => false,
        }
    }

    #[test]
    fn every_short_pattern_matches_the_same_texts_as_the_model() {
        let texts = texts(b"ab*\\", 4);
        for pattern in self::texts(b"ab*?\\", 5) {
            let glob = Glob::new(&pattern).unwrap();
            let prefix = glob.literal_prefix();
            for text in &texts {
                let matched = glob.matches(text);
                assert_eq!(matched, model(&pattern, text), "{pattern:?} {text:?}");
                assert!(!matched || text.starts_with(prefix), "{pattern:?} {text:?}");
            }
            if !pattern.iter().any(|byte| b"*?\\".contains(byte)) {
                assert_eq!(prefix, pattern);
            }
        }
    }

    #[test]
    fn the_literal_prefix_ends_at_a_class_but_not_at_an_escape() {
        for (pattern, prefix) in
            [("user:[12]*", "user:"), ("a\\*b*", "a*b"), ("\\[a]?", "[a]"), ("a\\", "a\\"), ("*a", "")]
        {
            assert_eq!(Glob::new(pattern.as_bytes()).unwrap().literal_prefix(), prefix.as_bytes());
        }
    }

    #[test]
    fn the_time_for_one_key_is_bounded() {
        let part = "a".repeat(PART_LEN_MAX_BYTES - 1);
        for (pattern, is_valid) in [
            (format!("{part}{part}*{part}b*b{part}"), true),
            (format!("*{part}bb"), false),
            (format!("*{part}bb*"), false),
            (format!("a*b*[{}]", "*".repeat(PART_LEN_MAX_BYTES)), false),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(glob.is_some(), is_valid, "{pattern}");
            let (text, mut ops) = (vec![b'a'; 65_535], 0);
            assert!(glob.is_none_or(|glob| !glob.matches_in(&text, &mut ops)));
            assert!(ops <= 2 * PART_LEN_MAX_BYTES * text.len(), "{ops}");
        }
    }
}
