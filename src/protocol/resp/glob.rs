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
//! A pattern is compiled into segments, which are the parts between its stars. Every element of a segment matches
//! exactly one byte, so a segment has a fixed length. The leftmost match of each segment is always a correct choice, so
//! a search never backtracks. A short segment is compared at each position of the key. A long segment is searched with
//! one bit per element (Shift-And), 64 elements at a time. Matching therefore takes time that is linear in the length
//! of the key: for each byte, at most [`SHORT_SEGMENT_LEN_MAX`] comparisons, or one operation per 64 elements.

/// Maximum number of elements of a segment that is compared at each position of the key, without masks.
const SHORT_SEGMENT_LEN_MAX: usize = 8;

/// The cost, in operations, of allocating a segment: a part of [`Glob::compile_ops`].
const SEGMENT_OPS: usize = 64;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    /// The segments between the stars. There is one more segment than there are stars.
    segments: Vec<Segment>,
    literal_prefix: Vec<u8>,
}

impl Glob {
    /// Compiles a pattern. Every sequence of bytes is a valid pattern.
    pub fn new(pattern: &[u8]) -> Self {
        let (mut segments, mut elements) = (Vec::new(), Vec::new());
        let (mut literal_prefix, mut is_prefix) = (Vec::new(), true);
        let mut rest = pattern;
        while let Some((element, after)) = next_element(rest) {
            match element {
                Element::Literal(byte) if is_prefix => literal_prefix.push(byte),
                _ => is_prefix = false,
            }
            match element {
                Element::Star => segments.push(std::mem::take(&mut elements)),
                Element::Literal(byte) => elements.push(ByteSet::EMPTY.with(byte, byte)),
                Element::Class(set) => elements.push(set),
            }
            rest = after;
        }
        segments.push(elements);
        let last = segments.len() - 1;
        let is_searched = |at: usize| 0 < at && at < last;
        let segments = segments.into_iter().enumerate().map(|(at, elements)| Segment::new(elements, is_searched(at)));
        Glob { segments: segments.collect(), literal_prefix }
    }

    /// Returns the number of operations that compiling the pattern took.
    pub fn compile_ops(&self) -> usize {
        let ops = |segment: &Segment| match segment.masks.is_empty() {
            true => SEGMENT_OPS + segment.elements.len(),
            false => SEGMENT_OPS + 256 * segment.elements.len(),
        };
        self.segments.iter().map(ops).sum()
    }

    /// Returns whether the pattern matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_in(text, &mut 0)
    }

    /// Returns the common prefix of all matches: the bytes before the pattern's first `?`, `*`, or class, with escapes
    /// decoded.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.literal_prefix
    }

    /// Returns whether the pattern matches all of `text`. Increases `ops` by the number of operations that the
    /// comparison took.
    pub fn matches_in(&self, text: &[u8], ops: &mut usize) -> bool {
        *ops += 1;
        let (first, rest) = self.segments.split_first().expect("a pattern has a segment");
        let Some((last, middle)) = rest.split_last() else {
            return text.len() == first.elements.len() && first.matches_start(text, ops);
        };
        let Some(between_len) = text.len().checked_sub(first.elements.len() + last.elements.len()) else {
            return false;
        };
        let (start, text) = text.split_at(first.elements.len());
        let (mut between, end) = text.split_at(between_len);
        if !first.matches_start(start, ops) || !last.matches_start(end, ops) {
            return false;
        }
        middle.iter().all(|segment| match segment.find_end(between, ops) {
            Some(end) => {
                between = &between[end..];
                true
            }
            None => false,
        })
    }
}

/// Consecutive elements of a pattern, without a star between them.
#[derive(Clone, Debug)]
struct Segment {
    elements: Vec<ByteSet>,
    /// The bit masks for the Shift-And search for this segment. Empty if the segment is short, or is the first or the
    /// last one, which is compared at only one position of the key. Each of the 256 byte values has a mask of
    /// [`Segment::words`] words, with one bit per element. A bit is set if its element matches the byte value.
    masks: Vec<u64>,
}

impl Segment {
    fn new(elements: Vec<ByteSet>, is_searched: bool) -> Segment {
        let mut segment = Segment { elements, masks: Vec::new() };
        if is_searched && segment.elements.len() > SHORT_SEGMENT_LEN_MAX {
            let words = segment.words();
            segment.masks = vec![0; 256 * words];
            for (at, element) in segment.elements.iter().enumerate() {
                for byte in (0..=u8::MAX).filter(|byte| element.has(*byte)) {
                    segment.masks[usize::from(byte) * words + at / 64] |= 1 << (at % 64);
                }
            }
        }
        segment
    }

    fn words(&self) -> usize {
        self.elements.len().div_ceil(64)
    }

    /// Returns whether `text` starts with a match of this segment. `text` must be at least as long as the segment.
    fn matches_start(&self, text: &[u8], ops: &mut usize) -> bool {
        self.elements.iter().zip(text).all(|(element, byte)| {
            *ops += 1;
            element.has(*byte)
        })
    }

    /// Returns the end of the first match in `text`.
    fn find_end(&self, text: &[u8], ops: &mut usize) -> Option<usize> {
        let len = self.elements.len();
        if self.masks.is_empty() {
            let start = (0..(text.len() + 1).saturating_sub(len)).find(|start| {
                *ops += 1;
                self.matches_start(&text[*start..], ops)
            });
            return start.map(|start| start + len);
        }
        let words = self.words();
        // Bit `n` is set if the first `n + 1` elements match the `n + 1` bytes that end with the current byte.
        let mut matching = vec![0_u64; words];
        for (at, byte) in text.iter().enumerate() {
            let masks = &self.masks[usize::from(*byte) * words..][..words];
            let mut carry = 1;
            for (word, mask) in matching.iter_mut().zip(masks) {
                let next_carry = *word >> 63;
                *word = (*word << 1 | carry) & mask;
                carry = next_carry;
            }
            *ops += words;
            if matching[words - 1] >> ((len - 1) % 64) & 1 == 1 {
                return Some(at + 1);
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug)]
struct ByteSet([u64; 4]);

impl ByteSet {
    const EMPTY: ByteSet = ByteSet([0; 4]);
    const FULL: ByteSet = ByteSet([u64::MAX; 4]);

    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    /// Returns the set with the bytes from `first` to `last` added.
    fn with(mut self, first: u8, last: u8) -> ByteSet {
        for (number, word) in (0..).zip(&mut self.0) {
            let (low, high) = (first.max(number * 64), last.min(number * 64 + 63));
            if low <= high {
                *word |= (u64::MAX >> (63 - (high - low))) << (low % 64);
            }
        }
        self
    }

    fn complement(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }
}

enum Element {
    Star,
    Literal(u8),
    Class(ByteSet),
}

/// Returns the first element of a pattern, and the rest of the pattern.
fn next_element(pattern: &[u8]) -> Option<(Element, &[u8])> {
    Some(match pattern {
        [] => return None,
        [b'*', after @ ..] => (Element::Star, after),
        [b'?', after @ ..] => (Element::Class(ByteSet::FULL), after),
        [b'[', b'^', class @ ..] => {
            let (members, after) = class_members(class);
            (Element::Class(members.complement()), after)
        }
        [b'[', class @ ..] => {
            let (members, after) = class_members(class);
            (Element::Class(members), after)
        }
        [b'\\', byte, after @ ..] | [byte, after @ ..] => (Element::Literal(*byte), after),
    })
}

/// Parses a class such as `[a-z]`. `class` starts after the opening bracket. Returns the members, and the rest of the
/// pattern.
fn class_members(mut class: &[u8]) -> (ByteSet, &[u8]) {
    let mut members = ByteSet::EMPTY;
    loop {
        match class {
            [] => return (members, class),
            [b']', after @ ..] => return (members, after),
            [b'\\', one, after @ ..] => {
                members = members.with(*one, *one);
                class = after;
            }
            [one, b'-', other, after @ ..] => {
                members = members.with(*one.min(other), *one.max(other));
                class = after;
            }
            [one, after @ ..] => {
                members = members.with(*one, *one);
                class = after;
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
    fn any_byte_can_be_in_a_pattern_or_key() {
        assert!(Glob::new(b"[\x7f-\x81]\xff").matches(b"\x80\xff"));
        assert!(!Glob::new("?".as_bytes()).matches("é".as_bytes()));
        assert!(Glob::new(b"a?b").matches(b"a\0b"));
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
            let glob = Glob::new(&pattern);
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
            assert_eq!(Glob::new(pattern.as_bytes()).literal_prefix(), prefix.as_bytes());
        }
    }

    #[test]
    fn long_segments_match_the_same_texts_as_the_model() {
        // Segments of more than 8 elements are searched with 64-bit words. More than 64 elements need several words.
        let text: Vec<u8> = (0..400_usize).map(|at| b'a' + (at * at / 7 % 3) as u8).collect();
        let mut found = [0; 2];
        for len in [1, 8, 9, 10, 63, 64, 65, 66, 128, 129, 200] {
            for start in (0..text.len() - len).step_by(7) {
                let mut segment = text[start..start + len].to_vec();
                segment[len / 2] = b'?';
                for last in [segment[len - 1], b'x'] {
                    segment[len - 1] = last;
                    for glob in [[&b"*"[..], &segment, b"*"].concat(), [&b"a*"[..], &segment, b"*?"].concat()] {
                        let takes = |at: usize| {
                            text[at..].len() >= len
                                && segment.iter().zip(&text[at..]).all(|(one, byte)| *one == b'?' || one == byte)
                        };
                        let (first, end) = if glob[0] == b'a' { (1, text.len() - 1) } else { (0, text.len()) };
                        let expected = (first..=end - len).any(takes);
                        assert_eq!(Glob::new(&glob).matches(&text), expected, "{len} from {start}, {last}");
                        found[usize::from(expected)] += 1;
                    }
                }
            }
        }
        assert!(found.iter().all(|count| *count > 100), "{found:?}");
    }

    #[test]
    fn a_match_takes_time_linear_in_the_text() {
        let text = "a".repeat(65_535);
        for part in ["*a", "*?", "*[a-z]", "**a", "*aaaaaaa", "*aaaaaaab", "*aaaaaaaaaaaaaaaaaab", "*????????????????b"]
        {
            let pattern = part.repeat(1024 / part.len()) + "b";
            let (glob, mut ops) = (Glob::new(pattern.as_bytes()), 0);
            assert!(!glob.matches_in(text.as_bytes(), &mut ops));
            assert!(ops <= (SHORT_SEGMENT_LEN_MAX + 2) * text.len(), "{part}: {ops}");
            assert!(glob.compile_ops() <= 256 * 1025, "{part}: {}", glob.compile_ops());
        }
        // For each byte of the text, the longest segments need one operation per 64 elements.
        for element in ["a", "?", "[^b]"] {
            let elements = 1021 / element.len();
            let (glob, mut ops) = (Glob::new(format!("*{}b*", element.repeat(elements)).as_bytes()), 0);
            assert!(!glob.matches_in(text.as_bytes(), &mut ops));
            assert!(ops <= (elements / 64 + 2) * text.len(), "{element}: {ops}");
        }
    }
}
