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

/// Returns the end of a certificate's validity in seconds since 1970, or `None` if the certificate does not have the
/// structure that RFC 5280 requires, or expired before 1970.
pub(super) fn not_after_s(certificate: &[u8]) -> Option<u64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(certificate.validity().not_after.timestamp()).ok()
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
