//! Heads: the numbers that fences store for keys.
//!
//! In: keys. Out: numbers in the order of the keys, in which fences and their tree are searched.

use super::key::Key;
use super::key_type::{KeyType, PartType};

/// The head of each IPv4 address is less than this number, and that of each IPv6 address in use is not.
const AFTER_IPV4: u64 = 1 << 48;
/// The short form of each IPv4 address is from this number on and less than the next one, and that of each IPv6 address
/// in use is not less than the next one.
const SHORT_IPV4: u64 = 1 << 60;
const AFTER_SHORT_IPV4: u64 = 1 << 61;
const HEAD_LEN_BYTES: usize = 8;

/// Computes the heads of a table's keys.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    common_len_bytes: usize,
    addresses: Addresses,
}

/// Where keys have addresses, whose first bytes are equal for all IPv4 addresses.
#[derive(Clone, Copy, Debug)]
enum Addresses {
    /// Nowhere, or where they do not affect heads.
    None,
    /// At the beginning.
    First,
    /// After other parts of keys of this type.
    Later(KeyType),
}

impl Heads {
    /// Returns the heads of keys of this type, of which the first `common_len_bytes` bytes are equal.
    #[inline]
    pub fn new(key_type: KeyType, common_len_bytes: usize) -> Heads {
        let addresses = match key_type.parts() {
            [PartType::Ip, ..] if common_len_bytes == 0 => Addresses::First,
            [PartType::Ip, ..] | [_] => Addresses::None,
            parts if parts.contains(&PartType::Ip) => Addresses::Later(key_type),
            _ => Addresses::None,
        };
        Heads { common_len_bytes, addresses }
    }

    /// Returns the head of a key. A greater key never has a smaller head, if both keys begin with the common bytes.
    #[inline]
    pub fn of(self, key: Key<'_>) -> u64 {
        match (key, self.addresses) {
            (Key::Bytes(bytes), Addresses::First) => address_head(bytes),
            (Key::Bytes(bytes), Addresses::Later(key_type)) => self.head_with_address(bytes, key_type),
            _ => key.head(self.common_len_bytes),
        }
    }

    /// Returns the head of a key of several parts, with the short form of the first address instead of its first bytes.
    fn head_with_address(self, key: &[u8], key_type: KeyType) -> u64 {
        let head = Key::Bytes(key).head(self.common_len_bytes);
        let address_at = key_type.first_part_at(PartType::Ip, key);
        let Some(before) = address_at.and_then(|at| at.checked_sub(self.common_len_bytes)) else { return head };
        if before >= HEAD_LEN_BYTES {
            return head;
        }
        let bits = u8::BITS * before as u32;
        let address = short_address(&key[key.len().min(self.common_len_bytes + before)..]);
        head & !(u64::MAX >> bits) | address >> bits
    }
}

/// Returns the first two numbers of 8 bytes of a key that begins with an address.
#[inline]
fn halves(key: &[u8]) -> (u64, u64) {
    (Key::Bytes(key).head(0), Key::Bytes(key).head(HEAD_LEN_BYTES))
}

/// Returns the head of a key that begins with an address. The first 8 bytes of IPv4 addresses are zeros, so that they
/// would all have the same head.
#[inline]
fn address_head(key: &[u8]) -> u64 {
    let (high, low) = halves(key);
    if high == 0 { low.min(AFTER_IPV4) } else { high.max(AFTER_IPV4) }
}

/// Returns a number, in the order of addresses, whose first bytes are different for most IPv4 addresses, too.
fn short_address(key: &[u8]) -> u64 {
    const FIRST_IPV4: u64 = 0xFFFF << 32;
    let (high, low) = halves(key);
    match low.checked_sub(FIRST_IPV4) {
        _ if high > 0 => high.max(AFTER_SHORT_IPV4),
        None => 0,
        Some(address) if address < 1 << 32 => SHORT_IPV4 | address << 28,
        Some(_) => AFTER_SHORT_IPV4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::format::OwnedKey;
    use crate::format::key_type::KeyValue;

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

        #[test]
        fn heads_of_keys_with_later_addresses_are_in_the_order_of_the_keys(
            key_type in prop::sample::select(vec!["bytes,ip", "date,ip", "hex,ipv4,ip", "bytes,ip,ip", "hex,bytes,ip"]),
            (a, b) in (address(), address()),
            leading in prop::collection::vec(prop::sample::select(vec![0, 1, 0xFF]), 0..7),
            more in prop::collection::vec(prop::sample::select(vec![0, 1, 0xFF]), 0..3),
            (is_valid, share) in (any::<bool>(), any::<bool>()),
            len_bytes in 0..30_usize,
        ) {
            let key_type: KeyType = key_type.parse().unwrap();
            let key = |bytes: &[u8], address: Ipv6Addr| {
                let values = key_type.parts().iter().map(|part| match part {
                    PartType::Ip => KeyValue::Ip(address.into()),
                    PartType::Ipv4 => Ipv4Addr::from_bits(bytes.len() as u32).into(),
                    PartType::Date => KeyValue::Date(bytes.len() as i32),
                    _ => bytes.to_vec().into(),
                });
                match key_type.key(values).unwrap() {
                    OwnedKey::Bytes(key) => key,
                    OwnedKey::U64(_) => unreachable!("composite keys are bytes"),
                }
            };
            let other = if share { leading.clone() } else { [&leading[..], &more].concat() };
            let mut keys = [key(&leading, a), key(&other, b)];
            // The ends of ranges of keys can be any bytes.
            keys[0].truncate(len_bytes);
            if !is_valid {
                keys[1] = [&leading[..], &more, &a.octets()].concat();
            }
            keys.sort();
            for common_len_bytes in 0..=Key::Bytes(&keys[0]).common_len_bytes(&Key::Bytes(&keys[1])) {
                let heads = Heads::new(key_type, common_len_bytes);
                let found = [&keys[0], &keys[1]].map(|key| heads.of(Key::Bytes(key)));
                prop_assert!(found[0] <= found[1], "{common_len_bytes} of {keys:?}: {found:?}");
            }
        }
    }

    #[test]
    fn heads_of_ipv4_addresses_after_other_parts_differ() {
        let head = |key_type: &str, common_len_bytes, text: &str| {
            let key_type: KeyType = key_type.parse().unwrap();
            Heads::new(key_type, common_len_bytes).of(key_type.parse(text.as_bytes()).unwrap().as_key())
        };
        assert_eq!(head("bytes,ip", 0, "DE,192.0.2.1"), 0x4445_0000_1C00_0020);
        assert_eq!(head("bytes,ip", 0, "DE,2001:db8::1"), 0x4445_0000_2001_0DB8);
        assert_eq!(head("bytes,ip", 1, "DE,192.0.2.1"), 0x4500_001C_0000_2010);
        assert_eq!(head("bytes,ip", 4, "DE,192.0.2.1"), 0x1C00_0020_1000_0000);
        assert_eq!(head("bytes,ip", 4, "DE,::1"), 0);
        assert_eq!(head("bytes,ip", 4, "DE,64:ff9b::1"), AFTER_SHORT_IPV4);
        // The common prefix ends in the address, or the address begins after the head.
        assert_eq!(head("bytes,ip", 16, "DE,192.0.2.1"), 0xC000_0201 << 32);
        assert_eq!(head("bytes,ip", 0, "abcdefgh,192.0.2.1"), 0x6162_6364_6566_6768);
        // A zero in a part is two bytes.
        assert_eq!(head("bytes,ip", 0, "a\0,192.0.2.1"), 0x6100_FF00_001C_0000);
        assert_eq!(head("ipv4,ip", 0, "192.0.2.1,192.0.2.1"), 0xC000_0201_1C00_0020);
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
