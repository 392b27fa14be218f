//! Parses and writes IPv4 addresses in a fraction of the time of the standard library.
//!
//! In: text. Out: addresses, and their text.

use std::net::Ipv4Addr;

/// Parses the texts that `Ipv4Addr` parses, in a third of the time.
pub(super) fn parse(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut bits, mut octet, mut digit_count, mut dot_count) = (0_u32, 0_u32, 0, 0);
    for byte in text {
        match byte {
            // No number begins with a zero, apart from 0 itself.
            b'0'..=b'9' if digit_count == 0 || octet > 0 => {
                octet = 10 * octet + u32::from(byte - b'0');
                digit_count += 1;
                if octet > 255 {
                    return None;
                }
            }
            b'.' if digit_count > 0 && dot_count < 3 => {
                bits = bits << 8 | octet;
                (octet, digit_count, dot_count) = (0, 0, dot_count + 1);
            }
            _ => return None,
        }
    }
    (digit_count > 0 && dot_count == 3).then(|| Ipv4Addr::from_bits(bits << 8 | octet))
}

/// Appends what `Ipv4Addr` displays, in a fraction of the time.
pub(super) fn write(address: Ipv4Addr, to: &mut Vec<u8>) {
    let mut text = [b'.'; 16];
    let mut len_bytes = 0;
    for octet in address.octets() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let leading = usize::from(octet < 100) + usize::from(octet < 10);
        for digit in &digits[leading..] {
            text[len_bytes] = b'0' + digit;
            len_bytes += 1;
        }
        // The point after the last number is left out.
        len_bytes += 1;
    }
    to.extend_from_slice(&text[..len_bytes - 1]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_are_parsed_and_written_as_in_the_standard_library(
            bits in prop_oneof![any::<u32>(), any::<u32>().prop_map(|bits| bits & 0x0063_0900)],
            text in "[0-9]{0,4}[.][0-9]{1,3}[.]{1,2}[0-9]{1,3}[.][0-9a.]{0,4}|[0-9.]{0,16}",
        ) {
            let address = Ipv4Addr::from_bits(bits);
            let mut written = Vec::new();
            write(address, &mut written);
            prop_assert_eq!(String::from_utf8(written).unwrap(), address.to_string());
            prop_assert_eq!(parse(address.to_string().as_bytes()), Some(address));
            prop_assert_eq!(parse(text.as_bytes()), text.parse().ok(), "{}", text);
        }
    }
}
