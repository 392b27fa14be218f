//! Fast path for HGET, HMGET, and HGETALL, the most frequent commands that read hashes.

use super::commands::{ARGS_MAX_AT_ONCE, Id};
use super::get::argument;

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
    use super::super::{Command, ParseProgress, Parsed, parse};
    use super::*;

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
