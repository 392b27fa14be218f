//! Fast paths for the most frequent commands: GET, HGET, HMGET, HGETALL, ZKV.FLOOR, ZKV.CEILING, and ZKV.COVER.
//! Recognizes ZKV.RANGE and ZKV.COUNT.

use super::commands::{ARGS_MAX_AT_ONCE, Id};

const START: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
/// The 6 bytes of a `GET` command that follow [`START`] and precede the length of the key. The last two bytes of this
/// constant are zero, because [`NAME_MASK`] clears the first two bytes of the length.
const NAME: u64 = u64::from_le_bytes(*b"GET\r\n$\0\0");
/// Mask that clears the case bit of each letter of the name, and clears the two bytes after `$`.
const NAME_MASK: u64 = u64::from_le_bytes([0xDF, 0xDF, 0xDF, 0xFF, 0xFF, 0xFF, 0, 0]);
/// Offset of the length of the key.
const LEN_AT: usize = 14;
/// Maximum number of digits in the length of a key.
const LEN_DIGITS_MAX: usize = 5;

/// Returns the key of a complete `GET` at the start of `input`, and the length of the command.
///
/// Returns `None` for all other input, which [`parse`](super::parse()) handles. The fast path accepts only a complete
/// command in array form: the name `GET`, in upper or lower case, and a key of 1 to 99,999 bytes.
#[inline(always)]
pub fn get(input: &[u8]) -> Option<(&[u8], usize)> {
    let head: &[u8; LEN_AT + 2] = input.first_chunk()?;
    let (start, name) = (head.first_chunk()?, head.last_chunk()?);
    if (u64::from_le_bytes(*start) ^ START) | ((u64::from_le_bytes(*name) & NAME_MASK) ^ NAME) != 0 {
        return None;
    }
    argument(input, LEN_AT)
}

const FLOOR: &[u8] = b"*2\r\n$9\r\nZKV.FLOOR\r\n$";
const CEILING: &[u8] = b"*2\r\n$11\r\nZKV.CEILING\r\n$";
const COVER: &[u8] = b"*2\r\n$9\r\nZKV.COVER\r\n$";

/// Returns the complete `ZKV.FLOOR`, `ZKV.CEILING`, or `ZKV.COVER` at the start of `input`: its identifier, its key, and
/// its length. Returns `None` for all other input, in the cases in which [`get`] returns `None`.
#[inline]
pub fn neighbor(input: &[u8]) -> Option<(Id, &[u8], usize)> {
    let begins_with = |head: &[u8]| input.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head));
    let (id, len_at) = match () {
        () if begins_with(FLOOR) => (Id::ZkvFloor, FLOOR.len()),
        () if begins_with(CEILING) => (Id::ZkvCeiling, CEILING.len()),
        () if begins_with(COVER) => (Id::ZkvCover, COVER.len()),
        () => return None,
    };
    let (key, len_bytes) = argument(input, len_at)?;
    Some((id, key, len_bytes))
}

/// Returns whether `input` begins with a `ZKV.RANGE` (true) or a `ZKV.COUNT` (false) in array form, which may be
/// incomplete. Returns `None` for all other input.
#[inline]
pub fn range_or_count(input: &[u8]) -> Option<bool> {
    const NAME_LINE: &[u8] = b"\r\n$9\r\n";
    let digits = input.strip_prefix(b"*")?;
    let count_len = digits.iter().take(LEN_DIGITS_MAX).take_while(|byte| byte.is_ascii_digit()).count();
    let name = digits[count_len..].strip_prefix(NAME_LINE)?;
    match name.split_first_chunk::<9>()? {
        (name, [b'\r', b'\n', ..]) if name.eq_ignore_ascii_case(b"ZKV.RANGE") => Some(true),
        (name, [b'\r', b'\n', ..]) if name.eq_ignore_ascii_case(b"ZKV.COUNT") => Some(false),
        _ => None,
    }
}

/// Returns the argument of a command whose length begins at `len_at`, and the offset of its end. Returns `None` if the
/// argument is incomplete, or if it does not have 1 to 99,999 bytes.
#[inline(always)]
pub(super) fn argument(input: &[u8], len_at: usize) -> Option<(&[u8], usize)> {
    let first_digit = input.get(len_at)?.wrapping_sub(b'1');
    if first_digit > 8 {
        return None;
    }
    let mut key_len = usize::from(first_digit) + 1;
    let mut line_end = len_at + 1;
    loop {
        let digit = input.get(line_end)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if line_end == len_at + LEN_DIGITS_MAX {
            return None;
        }
        key_len = key_len * 10 + usize::from(digit);
        line_end += 1;
    }
    let key_at = line_end + 2;
    let key_end = key_at + key_len;
    let whole = input.get(..key_end + 2)?;
    let line_ends = [whole[line_end], whole[line_end + 1], whole[key_end], whole[key_end + 1]];
    (line_ends == *b"\r\n\r\n").then(|| (&whole[key_at..key_end], key_end + 2))
}

const GET: &[u8] = b"*3\r\n$4\r\nHGET\r\n$";
const GET_ALL: &[u8] = b"*2\r\n$7\r\nHGETALL\r\n$";
/// The part of an `HMGET` that follows the number of its arguments.
const MULTIPLE_GET: &[u8] = b"\r\n$5\r\nHMGET\r\n$";
/// The number of arguments of an `HMGET` that are not fields: its name and its key.
const OTHER_ARGS: usize = 2;
/// Maximum number of digits in the number of arguments of an `HMGET`.
const COUNT_DIGITS_MAX: usize = 4;

/// An `HGET`, `HMGET`, or `HGETALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRead<'i> {
    /// Which of the three commands this is.
    pub id: Id,
    /// The key.
    pub key: &'i [u8],
    /// The fields. `HGETALL` has none.
    pub fields: HashFields<'i>,
    /// The length of the command.
    pub len_bytes: usize,
}

/// The fields of a command. Iterates over their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashFields<'i> {
    /// The remaining arguments of the command.
    rest: &'i [u8],
    count: usize,
}

impl HashFields<'_> {
    /// The fields of a command without fields.
    pub const NONE: HashFields<'static> = HashFields { rest: &[], count: 0 };
}

impl<'i> Iterator for HashFields<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let (field, end) = argument(self.rest, 1)?;
        (self.rest, self.count) = (&self.rest[end..], self.count - 1);
        Some(field)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for HashFields<'_> {}

/// Returns the complete `HGET`, `HMGET`, or `HGETALL` at the start of `input`.
///
/// Returns `None` for all other input, which [`parse`](super::parse()) handles. The fast path accepts only a complete
/// command in array form whose key and fields each have 1 to 99,999 bytes.
#[inline]
pub fn hash_read(input: &[u8]) -> Option<HashRead<'_>> {
    let begins_with = |head: &[u8]| input.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head));
    if begins_with(GET_ALL) {
        let (key, len_bytes) = argument(input, GET_ALL.len())?;
        return Some(HashRead { id: Id::HGetAll, key, fields: HashFields::NONE, len_bytes });
    }
    if begins_with(GET) {
        return with_fields(Id::HGet, input, GET.len(), 1);
    }
    let digits = input.strip_prefix(b"*")?;
    let digit_count = digits.iter().take(COUNT_DIGITS_MAX).take_while(|byte| byte.is_ascii_digit()).count();
    let count = digits[..digit_count].iter().fold(0, |count, digit| 10 * count + usize::from(digit - b'0'));
    let head = digits[digit_count..].get(..MULTIPLE_GET.len())?;
    if !head.eq_ignore_ascii_case(MULTIPLE_GET)
        || digits[0] == b'0'
        || !(OTHER_ARGS + 1..=ARGS_MAX_AT_ONCE).contains(&count)
    {
        return None;
    }
    with_fields(Id::HMGet, input, 1 + digit_count + MULTIPLE_GET.len(), count - OTHER_ARGS)
}

/// Returns a command whose key's length begins at `key_at`, and that ends with `count` fields.
#[inline]
fn with_fields(id: Id, input: &[u8], key_at: usize, count: usize) -> Option<HashRead<'_>> {
    let (key, fields_at) = argument(input, key_at)?;
    let mut len_bytes = fields_at;
    for _ in 0..count {
        let rest = &input[len_bytes..];
        if rest.first() != Some(&b'$') {
            return None;
        }
        len_bytes += argument(rest, 1)?.1;
    }
    Some(HashRead { id, key, fields: HashFields { rest: &input[fields_at..len_bytes], count }, len_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, key: &[u8]) -> Vec<u8> {
        let mut command = format!("*2\r\n$3\r\n{name}\r\n${}\r\n", key.len()).into_bytes();
        command.extend_from_slice(key);
        command.extend_from_slice(b"\r\n");
        command
    }

    #[test]
    fn a_get_is_accepted_in_any_case_and_with_any_key() {
        for name in ["GET", "get", "Get", "gEt", "geT"] {
            for len in [1, 2, 9, 10, 11, 99, 100, 999, 1000, 9999, 10_000, 65_535, 99_999] {
                let key: Vec<u8> = (0..len).map(|at| (at % 256) as u8).collect();
                let mut input = command(name, &key);
                let whole_len = input.len();
                assert_eq!(get(&input), Some((&key[..], whole_len)));
                input.extend_from_slice(b"*2\r\n");
                assert_eq!(get(&input), Some((&key[..], whole_len)));
            }
        }
    }

    #[test]
    fn floors_ceilings_and_covers_are_accepted_in_any_case_and_only_if_they_are_complete() {
        for (name, id) in [
            ("ZKV.FLOOR", Id::ZkvFloor),
            ("zkv.floor", Id::ZkvFloor),
            ("ZKV.CEILING", Id::ZkvCeiling),
            ("zkv.Ceiling", Id::ZkvCeiling),
            ("ZKV.cover", Id::ZkvCover),
        ] {
            for key in [&b"k"[..], b"key:000000012345"] {
                let mut input = format!("*2\r\n${}\r\n{name}\r\n${}\r\n", name.len(), key.len()).into_bytes();
                input.extend_from_slice(&[key, b"\r\n"].concat());
                let whole_len = input.len();
                for end in 0..whole_len {
                    assert_eq!(neighbor(&input[..end]), None, "{end}");
                }
                input.extend_from_slice(b"*2\r\n");
                assert_eq!(neighbor(&input), Some((id, key, whole_len)));
            }
        }
        assert_eq!(neighbor(&command("GET", b"key")), None);
        assert_eq!(neighbor(b"*2\r\n$9\r\nZKV.FLOOR\r\n$0\r\n\r\n"), None);
        assert_eq!(neighbor(b"*2\r\n$9\r\nZKV.COUNT\r\n$1\r\nk\r\n"), None);
    }

    #[test]
    fn range_commands_are_recognized_in_any_case() {
        for (input, expected) in [
            ("*3\r\n$9\r\nZKV.RANGE\r\n$1\r\na\r\n$1\r\nb\r\n", Some(true)),
            ("*10\r\n$9\r\nzkv.range\r\n", Some(true)),
            ("*3\r\n$9\r\nZkv.Count\r\n", Some(false)),
            ("*3\r\n$9\r\nZKV.COUNT\r", None),
            ("*3\r\n$9\r\nZKV.FLOOR\r\n", None),
            ("*3\r\n$09\r\nZKV.RANGE\r\n", None),
            ("*123456\r\n$9\r\nZKV.RANGE\r\n", None),
            ("ZKV.RANGE - +\r\n", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(range_or_count(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn an_incomplete_get_is_not_accepted() {
        for key in [&b"k"[..], b"key:000000012345"] {
            let input = command("GET", key);
            for end in 0..input.len() {
                assert_eq!(get(&input[..end]), None, "{end}");
            }
        }
    }

    #[test]
    fn a_get_with_any_byte_changed_is_another_get_or_not_accepted() {
        let input = command("GET", b"key:000000012345");
        for at in 0..input.len() {
            for byte in 0..=255 {
                let mut other = input.clone();
                other[at] = byte;
                let same_name = (8..11).contains(&at) && byte | 0x20 == input[at] | 0x20;
                let key = at >= 18 && at < input.len() - 2;
                assert_eq!(get(&other).is_some(), byte == input[at] || same_name || key, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn malformed_lengths_are_not_accepted() {
        for len in ["", "0", "00", "01", "-1", "+1", "1x", "100000", "99999999999999999999"] {
            let mut input = format!("*2\r\n$3\r\nGET\r\n${len}\r\n").into_bytes();
            input.resize(input.len() + 200_000, b'\n');
            assert_eq!(get(&input), None, "{len}");
        }
    }
}

#[cfg(test)]
mod hash_tests {
    use super::*;
    use crate::protocol::resp::{Command, ParseProgress, Parsed, parse};

    fn command(words: &[&str]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
        bytes
    }

    #[test]
    fn complete_commands_are_accepted_in_any_case_and_incomplete_ones_are_not() {
        let many: Vec<String> = (0..1022).map(|field| format!("field{field}")).collect();
        let many: Vec<&str> = ["hMgEt", "k"].into_iter().chain(many.iter().map(String::as_str)).collect();
        for words in [
            &["HGET", "key", "field"][..],
            &["hget", "k", "a field\r\n$1\r\nx"],
            &["HGETALL", "18446744073709551615"],
            &["hGetAll", "\r\n"],
            &["HMGET", "k", "f"],
            &["hmget", "key", "a", "bc", "def", "ghij", "k", "l", "m", "n", "o"],
            &many,
        ] {
            let mut input = command(words);
            let len_bytes = input.len();
            for end in 0..len_bytes {
                assert_eq!(hash_read(&input[..end]), None, "{end} of {words:?}");
            }
            input.extend_from_slice(b"*2\r\n");
            let found = hash_read(&input).unwrap();
            assert_eq!((found.key, found.len_bytes), (words[1].as_bytes(), len_bytes));
            assert_eq!(format!("{:?}", found.id).to_lowercase(), words[0].to_lowercase());
            assert_eq!(found.fields.len(), words.len() - 2);
            assert!(found.fields.eq(words[2..].iter().map(|word| word.as_bytes())));
        }
    }

    #[test]
    fn other_commands_and_malformed_ones_are_not_accepted() {
        for words in
            [&["HGET", "k"][..], &["HGET", "k", "f", "g"], &["HGETALL"], &["HGETALL", "k", "f"], &["HMGET", "k"]]
        {
            assert_eq!(hash_read(&command(words)), None, "{words:?}");
        }
        for words in [&["HLEN", "k"][..], &["GET", "k"], &["HGET", "", "f"], &["HGET", "k", ""], &["HVALS", "k"]] {
            assert_eq!(hash_read(&command(words)), None, "{words:?}");
        }
        for input in
            ["*03\r\n$5\r\nHMGET\r\n$1\r\nk\r\n$1\r\nf\r\n", "*\r\n$5\r\nHMGET\r\n$1\r\nk\r\n", "HGETALL 1\r\n"]
        {
            assert_eq!(hash_read(input.as_bytes()), None, "{input:?}");
        }
    }

    #[test]
    fn a_command_with_any_byte_changed_is_parsed_equally_or_not_accepted() {
        for words in [&["HGET", "key", "field"][..], &["HMGET", "k", "a", "bcd"], &["HGETALL", "key"]] {
            let input = command(words);
            for at in 0..input.len() {
                for byte in 0..=255 {
                    let mut other = input.clone();
                    other[at] = byte;
                    let Some(found) = hash_read(&other) else { continue };
                    let parsed = parse(&other, &mut ParseProgress::default());
                    let Ok(Parsed::Command { len_bytes, .. }) = parsed else { panic!("{byte} at {at}") };
                    let args: Vec<&[u8]> = Command::new(&other[..len_bytes]).args().collect();
                    let args_found: Vec<&[u8]> = [found.key].into_iter().chain(found.fields).collect();
                    assert_eq!((found.len_bytes, &args_found[..]), (len_bytes, &args[1..]), "{byte} at {at}");
                    assert_eq!(
                        format!("{:?}", found.id).to_lowercase(),
                        String::from_utf8_lossy(args[0]).to_lowercase()
                    );
                }
            }
        }
    }
}
