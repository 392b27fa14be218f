//! Parses integers like Redis.

/// Parses a decimal number as strictly as Redis does: the only sign is `-`, leading zeros and spaces are not allowed,
/// and the number must fit into an `i64`.
pub fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, magnitude) = match digits {
        [b'-', magnitude @ ..] => (true, magnitude),
        magnitude => (false, magnitude),
    };
    match magnitude {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // The loop computes a negative number, because the smallest number has no positive counterpart.
    let mut number = 0_i64;
    for &digit in magnitude {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_up_to_64_bits_are_parsed() {
        for number in [0, 1, -1, 9, 10, 99, -99, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn text_that_redis_rejects_as_a_number_is_rejected() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            "00",
            " 1",
            "1 ",
            "1x",
            "x",
            "0x1",
            "1.0",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
