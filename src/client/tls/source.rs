//! The certificates of a client, which are read again when their files change.
//!
//! In: the options for TLS. Out: a session for each connection.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::session::{TlsSession, Trust};
use crate::client::options::TlsOptions;
use crate::config_file::{self, PEM_LEN_MAX_BYTES};
use crate::setting::Setting;
use crate::sync::unpoisoned;

#[derive(Debug)]
pub(in crate::client) struct TlsSource {
    options: TlsOptions,
    name: ServerName<'static>,
    trust: Trust,
    loaded: Mutex<Loaded>,
}

/// A configuration, and the versions of the files that it was read from. A new connection can resume an earlier session
/// only if both use the same configuration.
#[derive(Clone, Debug)]
struct Loaded {
    versions: [Option<FileVersion>; 3],
    config: Arc<ClientConfig>,
}

/// The time when a file was last changed, and its length.
type FileVersion = (SystemTime, u64);

impl TlsSource {
    pub(in crate::client) fn new(host: &str, options: &TlsOptions) -> Result<TlsSource, String> {
        let name = options.server_name.as_deref().unwrap_or(host).to_owned();
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| format!("{name:?} cannot be the name of a server: name one with {}", Setting::ServerName))?;
        let trust = Trust {
            name,
            authorities: match &options.ca_file {
                Some(path) => format!("an authority in {}", path.display()),
                None => "an authority that the system trusts".to_owned(),
            },
            has_certificate: options.certificate_file.is_some(),
        };
        let loaded = Loaded { versions: versions(options), config: Arc::new(load(options, config_file::read_once)?) };
        Ok(TlsSource { options: options.clone(), name: server_name, trust, loaded: Mutex::new(loaded) })
    }

    /// Returns a session whose handshake has not begun.
    pub(in crate::client) fn start(&self) -> Result<Box<TlsSession>, String> {
        let session = ClientConnection::new(self.config(), self.name.clone()).map_err(|error| error.to_string())?;
        Ok(Box::new(TlsSession::new(session, self.trust.clone())))
    }

    /// Returns the configuration. Reads all files again if one of them has changed. If the files cannot be used, keeps
    /// the previous configuration. For example, a certificate and its key do not match for a moment while their two
    /// files are being replaced.
    fn config(&self) -> Arc<ClientConfig> {
        let mut loaded = unpoisoned(&self.loaded);
        let versions = versions(&self.options);
        if versions != loaded.versions
            && let Ok(config) = load(&self.options, config_file::read)
        {
            *loaded = Loaded { versions, config: Arc::new(config) };
        }
        Arc::clone(&loaded.config)
    }
}

fn versions(options: &TlsOptions) -> [Option<FileVersion>; 3] {
    [&options.ca_file, &options.certificate_file, &options.key_file].map(|path| {
        let metadata = std::fs::metadata(path.as_ref()?).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

/// Loads the files, each of which `read_file` reads.
fn load(options: &TlsOptions, read_file: fn(&Path, usize) -> io::Result<Vec<u8>>) -> Result<ClientConfig, String> {
    let read = |path: &Path| read_file(path, PEM_LEN_MAX_BYTES).map_err(|error| format!("{}: {error}", path.display()));
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(authorities(options.ca_file.as_deref(), &read)?);
    match (&options.certificate_file, &options.key_file) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate, &read(certificate)?)?;
            let key_der =
                PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| pem_problem(key, "private key", &error))?;
            builder.with_client_auth_cert(chain, key_der).map_err(|error| {
                format!(
                    "{}: the certificate and the key {} cannot be used together: {error}",
                    certificate.display(),
                    key.display()
                )
            })
        }
        _ => Err(format!(
            "a client certificate consists of a certificate and a key: name both, with {} and {}",
            Setting::CertificateFile,
            Setting::KeyFile
        )),
    }
}

fn authorities(path: Option<&Path>, read: &dyn Fn(&Path) -> Result<Vec<u8>, String>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            for certificate in certificates(path, &read(path)?)? {
                roots.add(certificate).map_err(|error| {
                    format!("{}: a certificate cannot be used as an authority: {error}", path.display())
                })?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let reason = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
                return Err(format!(
                    "the system trusts no authorities{reason}: name a file with their certificates with {}, or install \
                     the package ca-certificates",
                    Setting::CaFile
                ));
            }
        }
    }
    Ok(roots)
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    match CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if certificates.is_empty() => Err(pem_problem(path, "certificate", &pem::Error::NoItemsFound)),
        read => read.map_err(|error| pem_problem(path, "certificate", &error)),
    }
}

fn pem_problem(path: &Path, expected: &str, error: &pem::Error) -> String {
    let path = path.display();
    match error {
        pem::Error::NoItemsFound => format!("{path}: no {expected} was found, where PEM was expected"),
        error => format!("{path}: no {expected} can be read, where PEM was expected: {error}"),
    }
}
