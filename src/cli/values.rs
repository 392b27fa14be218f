//! Parsing of numbers, sizes, and names in command-line options, with errors that state the allowed values.

use std::num::NonZeroUsize;

use crate::cluster::node_id_problem;

/// Parses a number of at least 1.
pub fn parse_count(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a number of at least 1")
}

/// Parses a number of 32 bits.
pub fn parse_u32(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a number from 0 to 4294967295")
}

const EXPECTED: &str = "expected a size, such as 512MiB or 2GB";

/// Parses a number of bytes per second, such as `50MB`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => {
            Err("expected at least 1 byte per second, such as 50MB; without the option, the rate has no limit"
                .to_owned())
        }
        rate => Ok(rate),
    }
}

/// Parses a number of bytes, with or without a unit, such as `4096`, `512MiB`, or `2GB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit_bytes = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(EXPECTED.to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| EXPECTED.to_owned())?;
    number.checked_mul(unit_bytes).ok_or_else(|| "the size does not fit into 64 bits".to_owned())
}

/// Parses the name of a node or a zone.
pub fn parse_name(text: &str) -> Result<String, &'static str> {
    node_id_problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Returns the first name that a list has twice.
pub fn repeated(names: &[String]) -> Option<&str> {
    let is_repeated = |(index, name): &(usize, &String)| names[..*index].contains(name);
    names.iter().enumerate().find(is_repeated).map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_that_a_list_has_twice_is_found() {
        let names = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(repeated(&names("a,b,c")), None);
        assert_eq!(repeated(&names("a,b,c,b,a")), Some("b"));
    }

    #[test]
    fn names_are_parts_of_names_of_objects() {
        assert_eq!(parse_name("rack-1.east_2"), Ok("rack-1.east_2".to_owned()));
        for text in ["", "a b", "a/b", ".a", "ä", &"a".repeat(101)] {
            assert!(parse_name(text).unwrap_err().starts_with("expected at most 100 letters"), "{text:?}");
        }
    }
}
