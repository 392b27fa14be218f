//! Heads: the numbers that fences store for keys.
//!
//! In: keys. Out: numbers in the order of the keys, in which fences and their tree are searched.

use super::key::Key;
use super::key_type::{KeyType, PartType};

/// The head of each IPv4 address is less than this number, and that of each IPv6 address in use is not.
const AFTER_IPV4: u64 = 1 << 48;

/// Computes the heads of a table's keys.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    common_len_bytes: usize,
    begins_with_address: bool,
}

impl Heads {
    /// Returns the heads of keys of this type, of which the first `common_len_bytes` bytes are equal.
    pub fn new(key_type: KeyType, common_len_bytes: usize) -> Heads {
        let begins_with_address = key_type.parts()[0] == PartType::Ip && common_len_bytes == 0;
        Heads { common_len_bytes, begins_with_address }
    }

    /// Returns the head of a key. A greater key never has a smaller head, if both keys begin with the common bytes.
    #[inline]
    pub fn of(self, key: Key<'_>) -> u64 {
        match key {
            Key::Bytes(bytes) if self.begins_with_address => address_head(bytes),
            _ => key.head(self.common_len_bytes),
        }
    }
}

/// Returns the head of a key that begins with an address. The first 8 bytes of IPv4 addresses are zeros, so that they
/// would all have the same head.
#[inline]
fn address_head(key: &[u8]) -> u64 {
    let (high, low) = (Key::Bytes(key).head(0), Key::Bytes(key).head(8));
    if high == 0 { low.min(AFTER_IPV4) } else { high.max(AFTER_IPV4) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Ipv6Addr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_ipv6_mapped()),
            any::<u128>().prop_map(Ipv6Addr::from),
            // Addresses with few bits, near the limits between the kinds of heads.
            (0..128_u32, -2..3_i128).prop_map(|(bit, more)| Ipv6Addr::from((1_u128 << bit).wrapping_add(more as u128))),
        ]
    }

    proptest! {
        #[test]
        fn heads_of_addresses_are_in_the_order_of_the_addresses(
            (a, b) in (address(), address()),
            (a_end, b_end) in (prop::collection::vec(any::<u8>(), 0..3), prop::collection::vec(any::<u8>(), 0..3)),
            len_bytes in 0..20_usize,
        ) {
            let heads = Heads::new("ip,bytes".parse().unwrap(), 0);
            let mut keys = [[&a.octets()[..], &a_end].concat(), [&b.octets()[..], &b_end].concat()];
            // The end of a range can have fewer bytes.
            keys[0].truncate(len_bytes);
            keys.sort();
            prop_assert!(heads.of(Key::Bytes(&keys[0])) <= heads.of(Key::Bytes(&keys[1])), "{keys:?}");
        }
    }

    #[test]
    fn heads_of_ipv4_addresses_differ() {
        let heads = Heads::new("ip".parse().unwrap(), 0);
        let head = |text: &str| {
            let key = KeyType::of(PartType::Ip).parse(text.as_bytes()).unwrap();
            heads.of(key.as_key())
        };
        assert_eq!(head("192.0.2.1"), 0xFFFF_C000_0201);
        assert_eq!(head("::1"), 1);
        assert_eq!(head("2001:db8::1"), 0x2001_0DB8_0000_0000);
        assert_eq!((head("::1:0:0:0"), head("0:0:0:1::")), (AFTER_IPV4, AFTER_IPV4));
        // Other tables keep the bytes after the common prefix.
        let heads = Heads::new("ip".parse().unwrap(), 12);
        assert_eq!(heads.of(Key::Bytes(&Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets())), 0xC000_0201 << 32);
        assert_eq!(Heads::new(KeyType::BYTES, 0).of(Key::Bytes(&[0; 16])), 0);
    }
}
