//! Blocks of IP addresses in CIDR notation, such as `192.0.2.0/24`.
//!
//! Addresses are numbers of 128 bits, in the order in which tables store them: an IPv4 address is the IPv6 address
//! `::ffff:192.0.2.1`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

use crate::excerpt::excerpt;

/// The maximum length of a text that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 64;
/// The length of the prefix that all IPv4 addresses share, in bits.
const IPV4_PREFIX_BITS: u32 = 96;
const BITS: u32 = u128::BITS;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    first: u128,
    prefix_bits: u32,
}

/// A text is not a block of addresses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages show what the fields are")]
pub enum BlockError {
    /// The text has no valid address.
    #[error("{found:?} is not a block of addresses, such as 192.0.2.0/24 or 2001:db8::/32")]
    Address { found: String },
    /// The number of shared bits is invalid.
    #[error("{found:?} has no valid length after the slash: a number from 0 to {bits_max} was expected")]
    PrefixLen { found: String, bits_max: u32 },
    /// The address has bits after those that all addresses of the block share.
    #[error("{found:?} is an address inside the block {block}: give the block, or the address without a length")]
    HostBits { found: String, block: String },
}

impl Block {
    /// Parses a block. An address without a length is a block of one address.
    ///
    /// # Errors
    /// [`BlockError`] if the text is not a block.
    pub fn parse(text: &[u8]) -> Result<Block, BlockError> {
        let found = || excerpt(&String::from_utf8_lossy(text), QUOTED_LEN_MAX_BYTES).into_owned();
        let invalid = || BlockError::Address { found: found() };
        let text = str::from_utf8(text).map_err(|_| invalid())?;
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let (address, bits_max) = match address {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), BITS - IPV4_PREFIX_BITS),
            IpAddr::V6(address) => (address, BITS),
        };
        let len = match len {
            None => bits_max,
            Some(len) => {
                let is_number = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
                let len = len.parse().ok().filter(|len| is_number && *len <= bits_max);
                len.ok_or_else(|| BlockError::PrefixLen { found: found(), bits_max })?
            }
        };
        let block = Block { first: address.into(), prefix_bits: BITS - bits_max + len };
        let host_bits = block.host_bits();
        if block.first & host_bits != 0 {
            let block = Block { first: block.first & !host_bits, ..block };
            return Err(BlockError::HostBits { found: found(), block: block.to_string() });
        }
        Ok(block)
    }

    /// Returns the fewest blocks that have exactly the addresses from `first` to `last`.
    pub fn of_range(first: IpAddr, last: IpAddr) -> impl Iterator<Item = Block> {
        let number = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => address.into(),
        };
        let (mut next, last) = (Some(number(first)), number(last));
        std::iter::from_fn(move || {
            let first = next.filter(|first| *first <= last)?;
            // The longest block that begins at this address and does not reach beyond the last one.
            let free_bits = match last - first {
                u128::MAX => BITS,
                distance => (distance + 1).ilog2(),
            };
            let block = Block { first, prefix_bits: BITS - first.trailing_zeros().min(free_bits) };
            next = u128::from(block.last()).checked_add(1);
            Some(block)
        })
    }

    /// Returns the first address.
    pub fn first(&self) -> Ipv6Addr {
        self.first.into()
    }

    /// Returns the last address.
    pub fn last(&self) -> Ipv6Addr {
        (self.first | self.host_bits()).into()
    }

    /// Returns the bits in which the addresses of the block differ.
    fn host_bits(&self) -> u128 {
        u128::MAX.checked_shr(self.prefix_bits).unwrap_or(0)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first().to_ipv4_mapped(), self.prefix_bits.checked_sub(IPV4_PREFIX_BITS)) {
            (Some(address), Some(len)) => write!(f, "{address}/{len}"),
            _ => write!(f, "{}/{}", self.first(), self.prefix_bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Result<Block, String> {
        Block::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_block_has_a_first_and_a_last_address() {
        for (text, first, last) in [
            ("10.0.0.0/8", "10.0.0.0", "10.255.255.255"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.1"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("2001:db8::/32", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("::1", "::1", "::1"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let block = block(text).unwrap();
            let written = |address: Ipv6Addr| IpAddr::V6(address).to_canonical().to_string();
            assert_eq!((&written(block.first())[..], &written(block.last())[..]), (first, last), "{text}");
            assert_eq!(
                block.to_string().strip_prefix(text).map(|rest| matches!(rest, "" | "/32" | "/128")),
                Some(true)
            );
        }
        assert_eq!(block("::ffff:192.0.2.0/120"), block("192.0.2.0/24"));
    }

    #[test]
    fn the_error_for_a_text_that_is_no_block_shows_what_was_expected() {
        for (text, expected) in [
            ("10.0.0.1/8", "\"10.0.0.1/8\" is an address inside the block 10.0.0.0/8: "),
            ("2001:db8::1/32", "\"2001:db8::1/32\" is an address inside the block 2001:db8::/32: "),
            ("10.0.0.0/33", "\"10.0.0.0/33\" has no valid length after the slash: a number from 0 to 32 was expected"),
            ("::/129", "\"::/129\" has no valid length after the slash: a number from 0 to 128 was expected"),
            ("10.0.0.0/", "\"10.0.0.0/\" has no valid length"),
            ("10.0.0.0/+8", "\"10.0.0.0/+8\" has no valid length"),
            ("10.0.0.0/8/8", "\"10.0.0.0/8/8\" has no valid length"),
            ("10.0.0/8", "\"10.0.0/8\" is not a block of addresses, such as 192.0.2.0/24"),
            ("", "\"\" is not a block of addresses"),
        ] {
            let error = block(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_range_is_divided_into_the_fewest_blocks() {
        let blocks = |first: &str, last: &str| {
            let blocks = Block::of_range(first.parse().unwrap(), last.parse().unwrap());
            blocks.map(|block| block.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(blocks("10.0.0.0", "10.255.255.255"), ["10.0.0.0/8"]);
        assert_eq!(blocks("192.0.2.1", "192.0.2.6"), ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"]);
        assert_eq!(blocks("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(blocks("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(blocks("::1", "::1"), ["::1/128"]);
        assert_eq!(
            blocks("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").len(),
            1
        );
        // Short ranges, against a search that tries all blocks.
        for first in 0..40_u32 {
            for last in first..40 {
                let (mut at, mut expected) = (first, 0);
                while at <= last {
                    let free = (0..=6).rev().find(|bits| at % (1 << bits) == 0 && at + (1 << bits) - 1 <= last);
                    (at, expected) = (at + (1 << free.unwrap()), expected + 1);
                }
                let address = |number: u32| IpAddr::V4(number.into());
                let found: Vec<Block> = Block::of_range(address(first), address(last)).collect();
                assert_eq!(found.len(), expected, "{first} to {last}");
                assert_eq!(found[0].first().to_bits() as u32, first);
                assert!(found.windows(2).all(|pair| pair[0].last().to_bits() + 1 == pair[1].first().to_bits()));
                assert_eq!(found[found.len() - 1].last().to_bits() as u32, last);
            }
        }
    }
}
