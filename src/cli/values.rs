//! Parsing of numbers, sizes, durations, addresses, and names in command-line options, with errors that state the
//! allowed values.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::cluster::node_id_problem;

/// Parses a number of at least 1.
pub fn parse_count(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a number of at least 1")
}

/// The maximum of all durations: adding a longer one to the clock could overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(1_000_000);

/// The unit of a duration without a unit.
#[derive(Clone, Copy)]
pub enum BareUnit {
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
}

impl BareUnit {
    fn name_and_duration(self) -> (&'static str, Duration) {
        match self {
            BareUnit::Seconds => ("seconds", Duration::from_secs(1)),
            BareUnit::Microseconds => ("microseconds", Duration::from_micros(1)),
        }
    }
}

/// Returns a parser of durations within these limits: numbers with units, such as `500ms`, `1.5s`, or `1h30m`, or a
/// number of seconds or microseconds.
pub fn duration(
    bare: BareUnit,
    limits: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let (unit, unit_duration) = bare.name_and_duration();
        let parsed = parse_units(text, unit_duration).filter(|duration| limits.contains(duration));
        parsed.ok_or_else(|| {
            let (min, max) = (limits.start().div_duration_f64(unit_duration), limits.end());
            let max = max.div_duration_f64(unit_duration);
            format!("expected {min} to {max} {unit}, such as 10, or a time with its unit, such as 500ms, 1.5s, or 5min")
        })
    }
}

/// Parses a duration. Returns `None` if the text is none, or if it is too long for a [`Duration`].
fn parse_units(text: &str, unit: Duration) -> Option<Duration> {
    let number_len = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, rest) = text.split_at(number_len);
    let (number, unit_name): (Option<f64>, _) = (number.parse().ok(), rest.trim_start());
    let single = match unit_name {
        "" => Some(unit),
        // A number in front of several units, such as `1h30m`, is no factor.
        name if name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            humantime::parse_duration(&format!("1{name}")).ok()
        }
        _ => None,
    };
    match (number, single) {
        (Some(number), Some(unit)) => Duration::try_from_secs_f64(number * unit.as_secs_f64()).ok(),
        _ => humantime::parse_duration(text).ok(),
    }
}

/// Returns a parser of the address of a listening socket: an IP address and a port. Errors suggest `port` if the text
/// has none.
pub fn listening_address(
    default_port: u16,
) -> impl Fn(&str) -> Result<SocketAddr, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse().map_err(|_| {
            let port = text.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(default_port);
            format!(
                "expected an IP address and a port, such as 127.0.0.1:{port} or [::1]:{port} for this machine only, or \
                 0.0.0.0:{port} for all networks"
            )
        })
    }
}

const EXPECTED: &str = "expected a size, such as 4096, 512MiB, 1.5GiB, or 2GB";

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

/// Parses a number of bytes, with or without a unit, such as `4096`, `512MiB`, `1.5GiB`, or `2GB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let number_len = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(number_len);
    let unit_bytes: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
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
    const TOO_LARGE: &str = "the size does not fit into 64 bits";
    if let Some((whole, fraction)) = number.split_once('.') {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let bytes = number.parse::<f64>().map_or(f64::NAN, |number| number * unit_bytes as f64);
        return match bytes {
            _ if !is_number(whole) || !is_number(fraction) => Err(EXPECTED.to_owned()),
            bytes if bytes >= u64::MAX as f64 => Err(TOO_LARGE.to_owned()),
            bytes => Ok(bytes as u64),
        };
    }
    let number: u64 = number.parse().map_err(|_| EXPECTED.to_owned())?;
    number.checked_mul(unit_bytes).ok_or_else(|| TOO_LARGE.to_owned())
}

/// The value names of durations and of sizes in the help of all programs.
const DURATIONS: [&str; 1] = ["TIME"];
const SIZES: [&str; 3] = ["SIZE", "RATE", "SIZE|none"];

/// Checks, for a test, that every option of a program that takes a duration or a size accepts the same spellings, and
/// that no option has a value name that hides that it is one.
///
/// # Panics
/// If an option rejects a spelling, or if the program has no such option.
#[doc(hidden)]
pub fn check_spellings(program: &clap::Command) {
    assert!(check_command(program, program, &[program.get_name().to_owned()]) > 0);
}

/// Checks the options of one command of a program, and of its subcommands. `path` are the names of the command. Returns
/// the number of options that take durations or sizes.
fn check_command(program: &clap::Command, command: &clap::Command, path: &[String]) -> usize {
    let mut checked = 0;
    for sub in command.get_subcommands() {
        checked += check_command(program, sub, &[path, &[sub.get_name().to_owned()]].concat());
    }
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let spellings: &[&str] = match name {
            name if DURATIONS.contains(&name) => {
                &["20", "20s", "20000ms", "20000000us", "1min", "1m", "1h", "1min 30s", "1m30s", "20.5s", "20 s"]
            }
            name if SIZES.contains(&name) => {
                &["536870912", "512MiB", "512M", "512mib", "512 MiB", "0.5GiB", "1GB", "1g"]
            }
            name => {
                let units = ["SECOND", "AGE", "DURATION", "TIMEOUT", "WARMUP"];
                let is_hidden = units.iter().any(|unit| name.contains(unit));
                assert!(!is_hidden, "--{long} {name}: use one of {DURATIONS:?} or {SIZES:?}");
                continue;
            }
        };
        checked += 1;
        for spelling in spellings {
            let args = path.iter().cloned().chain([format!("--{long}={spelling}")]);
            if let Err(error) = program.clone().try_get_matches_from(args) {
                // Other errors are about missing options.
                assert_ne!(error.kind(), clap::error::ErrorKind::ValueValidation, "{error}");
            }
        }
    }
    checked
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
    fn durations_have_units_or_the_unit_of_the_option() {
        let limits = Duration::from_millis(10)..=DURATION_MAX;
        let seconds = duration(BareUnit::Seconds, limits.clone());
        for (text, ms) in [
            ("10", 10_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1.5s", 1500),
            ("1.5 min", 90_000),
            ("1h30m", 5_400_000),
            ("1min 30s", 90_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "-1", "x", "s", "1.5.1s", "9ms", "0", "1e3", "1000001", "inf", "NaN", "1 1", "99999999999999999999y"]
        {
            let error = seconds(text).unwrap_err();
            assert!(
                error.starts_with("expected 0.01 to 1000000 seconds, such as 10, or a time with its unit"),
                "{error}"
            );
        }
        let microseconds = duration(BareUnit::Microseconds, Duration::ZERO..=DURATION_MAX);
        assert_eq!(microseconds("50"), Ok(Duration::from_micros(50)));
        assert_eq!(microseconds("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(microseconds("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn sizes_have_units_or_are_bytes() {
        for (text, bytes) in
            [("4096", 4096), ("1k", 1024), ("1.5KiB", 1536), ("2 GB", 2_000_000_000), ("0.5mib", 1 << 19), ("7b", 7)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "1.", ".5k", "1.2.3k", "1x", "k", "1 1", "+1"] {
            assert_eq!(parse_size(text), Err(EXPECTED.to_owned()), "{text}");
        }
        for text in ["18446744073709551616b", "16777216t", "16777216.5t"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_listening_address_without_an_ip_address_or_a_port_is_answered_with_an_example() {
        let parse = listening_address(6380);
        assert_eq!(parse("127.0.0.1:7").unwrap().to_string(), "127.0.0.1:7");
        for (text, port) in [("6399", 6399), ("localhost:6399", 6399), ("127.0.0.1", 6380), ("", 6380), (":9", 9)] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("such as 127.0.0.1:{port} or [::1]:{port} ")), "{text}: {error}");
        }
    }

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
