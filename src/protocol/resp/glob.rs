//! Patterns as `SCAN … MATCH` and `KEYS` take them.
//!
//! In: a pattern and a key, both bytes. Out: whether they match, and with what
//! bytes every match begins.
//!
//! `?` is any byte and `*` any bytes; `[a-z\]]` is a byte of those listed and
//! `[^…]` one of all others; `\` takes the byte behind it for itself. What is
//! odd is so in Redis: a class that does not end ends with the pattern, `]` is
//! never a member unless escaped, and a range may be written backwards. Bytes
//! above 127 are above all others, where Redis follows the C compiler.
//!
//! All but `*` take exactly one byte. So when bytes do not fit, only the last
//! `*` before them needs to take one more: a match takes at most the product
//! of both lengths, where a search through all stars is exponential.

/// A pattern.
#[derive(Clone, Copy, Debug)]
pub struct Glob<'a> {
    pattern: &'a [u8],
}

impl<'a> Glob<'a> {
    /// The pattern that is written so; all bytes are one.
    pub fn new(pattern: &'a [u8]) -> Self {
        Glob { pattern }
    }

    /// Whether all of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_in(text, &mut 0)
    }

    /// The bytes that every match begins with.
    pub fn literal_prefix(&self) -> Vec<u8> {
        let mut prefix = Vec::new();
        let mut rest = self.pattern;
        while let Some((byte, behind)) = literal(rest) {
            prefix.push(byte);
            rest = behind;
        }
        prefix
    }

    /// [`Glob::matches`], which adds to `steps` how long it took.
    pub fn matches_in(&self, mut text: &[u8], steps: &mut usize) -> bool {
        let mut pattern = self.pattern;
        // The pattern behind the last star, and the text from which on it is tried.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            *steps += 1;
            if let [b'*', behind @ ..] = pattern {
                pattern = behind;
                retry = Some((pattern, text));
                continue;
            }
            let fitted = match (text, pattern) {
                ([], _) => return pattern.is_empty(),
                (_, []) => None,
                ([byte, rest @ ..], _) => takes(pattern, *byte, steps).map(|behind| (behind, rest)),
            };
            if let Some(behind) = fitted {
                (pattern, text) = behind;
                continue;
            }
            match retry {
                Some((behind, [_, rest @ ..])) => {
                    (pattern, text) = (behind, rest);
                    retry = Some((behind, rest));
                }
                _ => return false,
            }
        }
    }
}

/// The byte that the pattern begins with, if it is one, and what is behind it.
fn literal(pattern: &[u8]) -> Option<(u8, &[u8])> {
    match pattern {
        [] | [b'*' | b'?' | b'[', ..] => None,
        [b'\\', byte, behind @ ..] | [byte, behind @ ..] => Some((*byte, behind)),
    }
}

/// What is behind the pattern's first part, which is no star, if that takes `byte`.
fn takes<'a>(pattern: &'a [u8], byte: u8, steps: &mut usize) -> Option<&'a [u8]> {
    match pattern {
        [b'?', behind @ ..] => Some(behind),
        [b'[', b'^', class @ ..] => {
            let (member, behind) = find_in_class(class, byte, steps);
            (!member).then_some(behind)
        }
        [b'[', class @ ..] => {
            let (member, behind) = find_in_class(class, byte, steps);
            member.then_some(behind)
        }
        _ => literal(pattern).filter(|(expected, _)| *expected == byte).map(|(_, behind)| behind),
    }
}

/// Whether `byte` is of the class, and what is behind it.
fn find_in_class<'a>(mut class: &'a [u8], byte: u8, steps: &mut usize) -> (bool, &'a [u8]) {
    let mut member = false;
    loop {
        *steps += 1;
        match class {
            [] => return (member, class),
            [b']', behind @ ..] => return (member, behind),
            [b'\\', one, behind @ ..] => {
                member |= *one == byte;
                class = behind;
            }
            [one, b'-', other, behind @ ..] => {
                member |= (*one.min(other)..=*one.max(other)).contains(&byte);
                class = behind;
            }
            [one, behind @ ..] => {
                member |= *one == byte;
                class = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes()).matches(text.as_bytes())
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
    fn bytes_are_bytes() {
        assert!(Glob::new(b"[\x7f-\x81]\xff").matches(b"\x80\xff"));
        assert!(!Glob::new("?".as_bytes()).matches("é".as_bytes()));
        assert!(Glob::new(b"a?b").matches(b"a\0b"));
    }

    /// All texts over `letters` of up to `len_max` bytes.
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

    /// The plainest matcher there is, for patterns without classes.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', behind @ ..], _) => (0..=text.len()).any(|at| model(behind, &text[at..])),
            ([b'\\', byte, behind @ ..], [first, rest @ ..]) => byte == first && model(behind, rest),
            ([b'?', behind @ ..], [_, rest @ ..]) => model(behind, rest),
            ([byte, behind @ ..], [first, rest @ ..]) => byte == first && model(behind, rest),
            (_, []) => false,
        }
    }

    #[test]
    fn every_short_pattern_matches_as_the_model() {
        let texts = texts(b"ab*\\", 4);
        for pattern in self::texts(b"ab*?\\", 5) {
            let glob = Glob::new(&pattern);
            let prefix = glob.literal_prefix();
            for text in &texts {
                let matched = glob.matches(text);
                assert_eq!(matched, model(&pattern, text), "{pattern:?} {text:?}");
                assert!(!matched || text.starts_with(&prefix), "{pattern:?} {text:?}");
            }
            if !pattern.iter().any(|byte| b"*?\\".contains(byte)) {
                assert_eq!(prefix, pattern);
            }
        }
    }

    #[test]
    fn classes_end_the_prefix_and_escapes_do_not() {
        for (pattern, prefix) in
            [("user:[12]*", "user:"), ("a\\*b*", "a*b"), ("\\[a]?", "[a]"), ("a\\", "a\\"), ("*a", "")]
        {
            assert_eq!(Glob::new(pattern.as_bytes()).literal_prefix(), prefix.as_bytes());
        }
    }

    #[test]
    fn fifty_stars_take_no_more_than_the_product_of_the_lengths() {
        for part in ["*a", "*?", "*[a-z]", "**a", "*aaaaaaa"] {
            let pattern = part.repeat(50) + "b";
            let text = "a".repeat(5000);
            let mut steps = 0;
            assert!(!Glob::new(pattern.as_bytes()).matches_in(text.as_bytes(), &mut steps));
            assert!(steps <= (pattern.len() + 2) * (text.len() + 2), "{part}: {steps}");
        }
    }
}
