//! Certificates that are issued when a test runs, and clients that use TLS.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::servers::Server;
use super::waiting::PATIENCE;

/// A connection that uses TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority that issues certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    pub certificate_pem: String,
    key: KeyPair,
}

impl Identity {
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed if it has the name of its issuer.
        params.distinguished_name.push(DnType::CommonName, "authority");
        Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for the names of this machine, which expires in the year 2200.
    pub fn issue(&self) -> Identity {
        self.issue_until(2200)
    }

    /// Issues a certificate for the names of this machine, which expires at the beginning of a year.
    pub fn issue_until(&self, year: i32) -> Identity {
        self.issue_for(&["localhost", "127.0.0.1"], 2001, year)
    }

    /// Issues a certificate for these names, which is valid from the beginning of one year to the beginning of another.
    pub fn issue_for(&self, names: &[&str], from_year: i32, until_year: i32) -> Identity {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from_year, 1, 1), date_time_ymd(until_year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.der().clone(), certificate_pem: certificate.pem(), key }
    }

    /// Returns the configuration of clients that trust this authority, and that have a certificate if `identity` is
    /// given. `version` is the only version of TLS that they use, or `None` for all versions.
    pub fn clients(
        &self,
        identity: Option<&Identity>,
        version: Option<&'static SupportedProtocolVersion>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
        let builder = match &version {
            Some(version) => builder.with_protocol_versions(&[version]),
            None => builder.with_safe_default_protocol_versions(),
        };
        let builder = builder.unwrap().with_root_certificates(roots);
        Arc::new(match identity {
            Some(identity) => {
                let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![identity.certificate.clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        })
    }
}

/// The files of a server's TLS port.
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub ca: PathBuf,
}

impl TlsFiles {
    /// Writes the certificate of a server, its key, and the certificate of the authority into a folder.
    pub fn write(folder: &Path, authority: &Authority, identity: &Identity) -> TlsFiles {
        let [certificate, key, ca] = ["tls.crt", "tls.key", "tls-ca.crt"].map(|name| folder.join(name));
        let files = TlsFiles { certificate, key, ca };
        std::fs::write(&files.ca, authority.pem()).unwrap();
        files.replace(identity);
        files
    }

    /// Replaces the certificate and the key by rename.
    pub fn replace(&self, identity: &Identity) {
        for (path, pem) in [(&self.key, identity.key_pem()), (&self.certificate, identity.certificate_pem.clone())] {
            let new = path.with_extension("new");
            std::fs::write(&new, pem).unwrap();
            std::fs::rename(&new, path).unwrap();
        }
    }

    /// Returns the options of a server with a TLS port on which clients need no certificate.
    pub fn options(&self) -> [&str; 6] {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.to_str().unwrap());
        ["--tls", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]
    }
}

/// Connects to a server over TCP.
pub fn connect_tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Connects to a server with TLS. The handshake takes place when the stream is first used.
pub fn connect_tls(server: &Server, config: &Arc<ClientConfig>) -> TlsStream {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(session, connect_tcp(server.tls()))
}

/// Completes the handshake.
///
/// # Errors
/// If the server or the client ends the handshake.
pub fn shake_hands(stream: &mut TlsStream) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}
