//! Parsing of numbers in command-line options, with errors that name the numbers that are allowed.

use std::num::NonZeroUsize;

/// Parses a number of at least 1.
pub fn parse_count(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a number of at least 1")
}

/// Parses a number of 32 bits.
pub fn parse_u32(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a number from 0 to 4294967295")
}
