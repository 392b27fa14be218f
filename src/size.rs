//! Sizes on command lines.

const EXPECTED: &str = "a size was expected, such as 512MiB or 2GB";

/// Bytes, from a number with or without a unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
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
    number.checked_mul(unit).ok_or_else(|| "more than can be counted".to_owned())
}
