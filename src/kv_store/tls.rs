//! Options of the TLS port.

use std::net::SocketAddr;
use std::path::PathBuf;

use zero_kv::server::Server;

#[derive(Clone, clap::Args)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS reads the files and the time"))]
pub(crate) struct TlsArgs {
    /// Also listen on this TCP address, such as 127.0.0.1:6390, for clients that use TLS
    #[arg(long, value_name = "ADDRESS", requires_all = ["tls_cert", "tls_key"], value_parser = parse_address)]
    pub(crate) tls: Option<SocketAddr>,
    /// Prove the server's identity with the certificate in this PEM file, which may also contain intermediate
    /// certificates. The files of --tls-cert, --tls-key, and --tls-ca are read again when they change, and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// Use the certificate's private key in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_key: Option<PathBuf>,
    /// Serve only TLS clients that have a certificate from one of the authorities in this file, as PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Disconnect a client whose TLS handshake takes longer than this
    #[arg(long, value_name = "SECONDS", requires = "tls", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    tls_handshake_timeout: u32,
}

impl TlsArgs {
    /// Makes the server listen on the TLS port, if the options name one.
    #[cfg(feature = "tls")]
    pub(crate) fn serve(self, server: &mut Server, exposed: bool) -> anyhow::Result<()> {
        use std::time::Duration;
        use zero_kv::server::TlsConfig;

        let (Some(address), Some(certificate), Some(key)) = (self.tls, self.tls_cert, self.tls_key) else {
            return Ok(());
        };
        let handshake_timeout = Duration::from_secs(self.tls_handshake_timeout.into());
        let config = TlsConfig { certificate, key, client_ca: self.tls_ca, handshake_timeout };
        Ok(server.serve_tls(address, &config, exposed)?)
    }

    /// Does nothing. Without the feature `tls`, [`parse_address`] rejects every address, so there is no TLS port.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn serve(self, _: &mut Server, _: bool) -> anyhow::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn parse_address(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    text.parse()
}

#[cfg(not(feature = "tls"))]
fn parse_address(_: &str) -> Result<SocketAddr, &'static str> {
    Err("this program was built without the feature tls: build it with the feature tls or full")
}
