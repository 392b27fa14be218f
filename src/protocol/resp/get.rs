//! Fast paths for GET, the most frequent command, and for ZKV.FLOOR and ZKV.CEILING. Recognizes ZKV.RANGE and ZKV.COUNT.

/// The first 8 bytes of a `GET` command.
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

/// Returns whether a complete `ZKV.FLOOR` (and not `ZKV.CEILING`) is at the start of `input`, its key, and the length of
/// the command. Returns `None` for all other input, in the cases in which [`get`] returns `None`.
#[inline]
pub fn floor_or_ceiling(input: &[u8]) -> Option<(bool, &[u8], usize)> {
    let begins_with = |head: &[u8]| input.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head));
    let (is_floor, len_at) = match () {
        () if begins_with(FLOOR) => (true, FLOOR.len()),
        () if begins_with(CEILING) => (false, CEILING.len()),
        () => return None,
    };
    let (key, len_bytes) = argument(input, len_at)?;
    Some((is_floor, key, len_bytes))
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
    fn floors_and_ceilings_are_accepted_in_any_case_and_only_if_they_are_complete() {
        for (name, is_floor) in
            [("ZKV.FLOOR", true), ("zkv.floor", true), ("ZKV.CEILING", false), ("zkv.Ceiling", false)]
        {
            for key in [&b"k"[..], b"key:000000012345"] {
                let mut input = format!("*2\r\n${}\r\n{name}\r\n${}\r\n", name.len(), key.len()).into_bytes();
                input.extend_from_slice(&[key, b"\r\n"].concat());
                let whole_len = input.len();
                for end in 0..whole_len {
                    assert_eq!(floor_or_ceiling(&input[..end]), None, "{end}");
                }
                input.extend_from_slice(b"*2\r\n");
                assert_eq!(floor_or_ceiling(&input), Some((is_floor, key, whole_len)));
            }
        }
        assert_eq!(floor_or_ceiling(&command("GET", b"key")), None);
        assert_eq!(floor_or_ceiling(b"*2\r\n$9\r\nZKV.FLOOR\r\n$0\r\n\r\n"), None);
        assert_eq!(floor_or_ceiling(b"*2\r\n$9\r\nZKV.COUNT\r\n$1\r\nk\r\n"), None);
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
