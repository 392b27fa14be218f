//! The time when a certificate expires.
//!
//! In: a certificate in DER. Out: the end of its validity, and log lines as it approaches. rustls verifies the validity
//! of client certificates, but does not report when a certificate expires.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::{error, warn};

/// The time before a certificate's expiry at which the server begins to log warnings.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The time between two log lines about the same certificate.
const REPEAT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the version field, which certificates of version 1 omit.
const VERSION: u8 = 0xa0;

/// Returns the end of a certificate's validity in seconds since 1970, or `None` if the certificate does not have the
/// structure that RFC 5280 requires, or expired before 1970.
pub(super) fn not_after_s(certificate: &[u8]) -> Option<u64> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, signed, _) = element(certificate)? else { return None };
    let (tag, _, after_first) = element(signed)?;
    let serial_number = if tag == VERSION { after_first } else { signed };
    let mut rest = serial_number;
    for _serial_number_and_algorithm_and_issuer in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
    let (_, _, not_after) = element(validity)?;
    match element(not_after)? {
        (UTC_TIME, text, _) => {
            let year = number(text.get(..2)?)?;
            seconds(if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        (GENERALIZED_TIME, text, _) => seconds(number(text.get(..4)?)?, text.get(4..)?),
        _ => None,
    }
}

/// Splits off the first DER element. Returns its tag, its contents, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |number, digit| Some(number * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?)))
}

/// Converts a time to seconds since 1970. `text` consists of month, day, hour, minute, and second, with two digits
/// each, and `Z`.
fn seconds(year: i64, text: &[u8]) -> Option<u64> {
    let (text, b"Z") = text.split_at_checked(10)? else { return None };
    let mut parts = text.chunks(2).map(number);
    let mut part = || parts.next().flatten();
    let (month, day, hour, minute, second) = (part()?, part()?, part()?, part()?, part()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // From here on, a year begins in March, so that February 29 is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 is the number of days from March 1 of the year 0 to January 1, 1970.
    let days = 365 * year + leap_days + day_of_year - 719_468;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()
}

/// Decides when to log that a certificate has expired or is about to expire.
#[derive(Default)]
pub(super) struct ExpiryLog {
    last: Option<(bool, Instant)>,
}

impl ExpiryLog {
    /// Logs that the certificate has expired, or that it expires soon, unless the same message was logged within the
    /// last day. `expires_s` is 0 if the time is unknown.
    pub(super) fn report(&mut self, expires_s: u64, certificate: &Path) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if expires_s == 0 || now_s + WARN_BEFORE.as_secs() < expires_s {
            return;
        }
        let is_expired = now_s >= expires_s;
        if self.last.is_some_and(|(was_expired, at)| was_expired == is_expired && at.elapsed() < REPEAT_AFTER) {
            return;
        }
        self.last = Some((is_expired, Instant::now()));
        let (path, hours) = (certificate.display(), now_s.abs_diff(expires_s) / 3600);
        match is_expired {
            true => error!("{path}: the certificate expired {hours} h ago: TLS clients reject it: replace the file"),
            false => warn!("{path}: the certificate expires in {hours} h: replace the file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read_on_both_sides_of_2050_and_in_leap_years() {
        let dates =
            [(1999, 12, 31), (2000, 2, 29), (2024, 2, 29), (2026, 3, 1), (2049, 12, 31), (2050, 1, 1), (2100, 2, 28)];
        for (year, month, day) in dates {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            (params.not_before, params.not_after) = (date_time_ymd(1975, 1, 1), date_time_ymd(year, month, day));
            let expected_s = params.not_after.unix_timestamp() as u64;
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(not_after_s(certificate.der()), Some(expected_s), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn no_prefix_of_a_certificate_has_an_end() {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        for len in 0..der.len() {
            assert_eq!(not_after_s(&der[..len]), None, "{len} of {} bytes", der.len());
        }
    }
}
