//! Parsing of sizes in command-line options.

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
