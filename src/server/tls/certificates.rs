//! The certificates and keys of the TLS port, which are read again when their files change.
//!
//! In: the paths of the files, and regular calls of [`Certificates::check`]. Out: the configuration of the next
//! handshake. Files that cannot be used leave the previous configuration in place. Established connections keep the
//! keys that they agreed on.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tracing::{error, info, warn};

use super::TlsConfig;
use crate::config_file::{self, PEM_LEN_MAX_BYTES};
use crate::server::stats::{Statistics, TlsStatus};
use crate::server::table::FileVersion;
use crate::sync::unpoisoned;

/// How long changed files must stay unchanged before they are read. The wait is necessary because a certificate and its
/// key are two files, which are replaced one after the other.
const SETTLE: Duration = Duration::from_millis(900);

/// The versions of three files: the certificate, the key, and the certificates of the authorities that sign client
/// certificates. `None` for a file that does not exist or is not configured.
type Versions = [Option<FileVersion>; 3];

pub(in crate::server) struct Certificates {
    config: TlsConfig,
    current: Mutex<Arc<ServerConfig>>,
    files: Mutex<Files>,
    statistics: Arc<Statistics>,
}

/// What was read from the files, and which later versions of the files have been observed.
struct Files {
    read: Versions,
    /// Versions that differ from `read`, and when they were first observed.
    changed: Option<(Versions, Instant)>,
    tickets: Tickets,
    expiry_log: ExpiryLog,
}

/// The keys of session tickets, and the certificates of the client authorities (`client_ca`). If these certificates
/// change, the tickets become invalid.
#[derive(Clone)]
struct Tickets {
    client_ca: Option<Vec<u8>>,
    ticketer: Arc<dyn ProducesTickets>,
}

struct Loaded {
    server: ServerConfig,
    tickets: Tickets,
    expires_s: Option<u64>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(in crate::server) fn load(config: &TlsConfig, statistics: &Arc<Statistics>) -> Result<Certificates, String> {
        let read = config.versions();
        let Loaded { server, tickets, expires_s } = config.load(None)?;
        let files = Files { read, changed: None, tickets, expiry_log: ExpiryLog::default() };
        let certificates = Certificates {
            config: config.clone(),
            current: Mutex::new(Arc::new(server)),
            files: Mutex::new(files),
            statistics: Arc::clone(statistics),
        };
        certificates.set_expires(expires_s);
        config.warn_if_exposed();
        certificates.report_expiry();
        Ok(certificates)
    }

    /// Returns the configuration of the next handshake.
    pub(in crate::server) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&unpoisoned(&self.current))
    }

    /// Returns how long a handshake may take.
    pub(in crate::server) fn handshake_timeout(&self) -> Duration {
        self.config.handshake_timeout
    }

    /// Reads the files again if `is_requested`, or if they have changed and then stayed unchanged for `SETTLE`. Must be
    /// called about once a second.
    pub(in crate::server) fn check(&self, is_requested: bool) {
        if is_requested || self.are_changed_and_settled() {
            self.reload();
        }
        self.report_expiry();
    }

    fn are_changed_and_settled(&self) -> bool {
        let (versions, now) = (self.config.versions(), Instant::now());
        let mut files = unpoisoned(&self.files);
        match files.changed {
            _ if versions == files.read => files.changed = None,
            Some((changed, since)) if changed == versions => return now.duration_since(since) >= SETTLE,
            _ => files.changed = Some((versions, now)),
        }
        false
    }

    fn reload(&self) {
        let tickets = {
            let mut files = unpoisoned(&self.files);
            // The versions are determined before the files are read, so that a change during the reads is noticed
            // later.
            (files.read, files.changed) = (self.config.versions(), None);
            files.tickets.clone()
        };
        let (path, totals) = (self.config.certificate.display(), &self.statistics.totals);
        match self.config.load(Some(&tickets)) {
            Ok(Loaded { server, tickets, expires_s }) => {
                *unpoisoned(&self.current) = Arc::new(server);
                unpoisoned(&self.files).tickets = tickets;
                self.set_expires(expires_s);
                *unpoisoned(&self.status().refused) = String::new();
                totals.tls_reloads.fetch_add(1, Ordering::Relaxed);
                self.config.warn_if_exposed();
                info!("{path}: new connections use this certificate and its key, which were read again");
            }
            Err(problem) => {
                totals.tls_reloads_refused.fetch_add(1, Ordering::Relaxed);
                error!("TLS files were not accepted: {problem}: new connections still use the previous certificate");
                *unpoisoned(&self.status().refused) = problem;
            }
        }
    }

    fn status(&self) -> &TlsStatus {
        &self.statistics.tls
    }

    fn set_expires(&self, expires_s: Option<u64>) {
        self.status().expires_s.store(expires_s.unwrap_or(0), Ordering::Relaxed);
        unpoisoned(&self.files).expiry_log = ExpiryLog::default();
    }

    fn report_expiry(&self) {
        let expires_s = self.status().expires_s.load(Ordering::Relaxed);
        unpoisoned(&self.files).expiry_log.report(expires_s, &self.config.certificate);
    }
}

impl TlsConfig {
    fn versions(&self) -> Versions {
        let version = |path: &Path| FileVersion::at(path).ok();
        [version(&self.certificate), version(&self.key), self.client_ca.as_deref().and_then(version)]
    }

    /// Logs a warning for each file that other users of the machine can change, and for a private key that they can
    /// read.
    fn warn_if_exposed(&self) {
        let files = [
            (Some(&self.certificate), "the certificate", false),
            (Some(&self.key), "the private key", true),
            (self.client_ca.as_ref(), "the authorities of clients", false),
        ];
        for (path, contents, is_secret) in files {
            let Some(path) = path else { continue };
            for exposure in config_file::exposures(path, contents, is_secret) {
                warn!("{}: {exposure}", path.display());
            }
        }
    }

    /// Reads the files. If the authorities for client certificates are those of `tickets`, keeps the key of the session
    /// tickets, so that tickets that clients already have stay valid.
    fn load(&self, tickets: Option<&Tickets>) -> Result<Loaded, String> {
        let chain = certificates(&self.certificate, &read(&self.certificate)?)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| {
            let reason = match error {
                pem::Error::NoItemsFound => "contains no private key".to_owned(),
                error => format!("the private key cannot be parsed: {error}"),
            };
            format!("{}: {reason}: expected an unencrypted key as PEM", self.key.display())
        })?;
        let expires_s = chain.first().and_then(|certificate| not_after_s(certificate));
        let client_ca = self.client_ca.as_deref().map(read).transpose()?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be configured: {error}"))?;
        let builder = match (&self.client_ca, &client_ca) {
            (Some(path), Some(text)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots(path, text)?.into(), provider);
                let verifier = verifier.build().map_err(|error| format!("{}: {error}", path.display()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| {
            format!(
                "{} and {} cannot be used together: {error}: expected the private key of the first certificate",
                self.certificate.display(),
                self.key.display()
            )
        })?;
        let tickets = match tickets {
            Some(tickets) if tickets.client_ca == client_ca => tickets.clone(),
            // A client that resumes a session does not present its certificate again. The tickets of clients that other
            // authorities admitted must therefore become invalid.
            _ => {
                let ticketer = ring::Ticketer::new().map_err(|error| format!("no key for session tickets: {error}"))?;
                Tickets { client_ca, ticketer }
            }
        };
        server.ticketer = Arc::clone(&tickets.ticketer);
        // Clients store their sessions in tickets, so the server stores none.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Loaded { server, tickets, expires_s })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    config_file::read(path, PEM_LEN_MAX_BYTES).map_err(|error| format!("{}: cannot be read: {error}", path.display()))
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: a certificate cannot be parsed: {error}: expected PEM", path.display()))?;
    if certificates.is_empty() {
        return Err(format!(
            "{}: contains no certificate: expected PEM, which begins with -----BEGIN CERTIFICATE-----",
            path.display()
        ));
    }
    Ok(certificates)
}

fn roots(path: &Path, text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, text)? {
        roots
            .add(certificate)
            .map_err(|error| format!("{}: a certificate cannot be used as an authority: {error}", path.display()))?;
    }
    Ok(roots)
}

/// The time before a certificate's expiry at which the server begins to log warnings.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The time between two log lines about the same certificate.
const REPEAT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the end of a certificate's validity in seconds since 1970, or `None` if the certificate does not have the
/// structure that RFC 5280 requires, or expired before 1970.
fn not_after_s(certificate: &[u8]) -> Option<u64> {
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
