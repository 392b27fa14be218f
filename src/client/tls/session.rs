//! One TLS session, and descriptions of why it failed.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, ClientConnection, Error};

use crate::setting::Setting;

/// Maximum length of one read from the socket: about four full TLS records.
const READ_LEN_BYTES: usize = 64 << 10;

/// A session, with the received records that have not been decrypted yet.
pub(in crate::client) struct TlsSession {
    session: ClientConnection,
    /// The buffer of received bytes. The bytes from `start` to `end` have not been processed yet.
    received: Vec<u8>,
    start: usize,
    end: usize,
    trust: Trust,
}

impl TlsSession {
    pub(super) fn new(session: ClientConnection, trust: Trust) -> TlsSession {
        TlsSession { session, received: vec![0; READ_LEN_BYTES], start: 0, end: 0, trust }
    }

    pub(in crate::client) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    pub(in crate::client) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts as many bytes as the session accepts, and returns their number. The session accepts no more bytes while
    /// too many encrypted bytes are unsent.
    pub(in crate::client) fn encrypt(&mut self, plaintext: &[u8]) -> usize {
        // The writer only appends to a buffer, and cannot fail.
        self.session.writer().write(plaintext).unwrap_or(0)
    }

    /// Sends all records, or as many as the socket accepts.
    ///
    /// # Errors
    /// The errors of the socket, including [`ErrorKind::WouldBlock`].
    pub(in crate::client) fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(socket)?;
        }
        Ok(())
    }

    /// Decrypts received records into `buffer`. Returns the number of decrypted bytes, 0 if the server has ended the
    /// session, or `None` if more bytes must be received first.
    ///
    /// # Errors
    /// The reason why the session failed. The caller should then call [`TlsSession::send`], which sends the server an
    /// alert with this reason.
    pub(in crate::client) fn decrypt(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, String> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(Some(0)),
                Ok(len_bytes) => return Ok(Some(len_bytes)),
            }
            if self.start == self.end {
                return Ok(None);
            }
            let used = self.session.read_tls(&mut &self.received[self.start..self.end]);
            self.start += used.map_err(|error| error.to_string())?;
            self.session.process_new_packets().map_err(|error| problem(&error, &self.trust))?;
        }
    }

    /// Receives records. Returns the number of received bytes, or 0 at the end of the connection. Must be called only
    /// after all earlier records have been decrypted.
    pub(in crate::client) fn receive(&mut self, socket: &mut impl Read) -> io::Result<usize> {
        (self.start, self.end) = (0, 0);
        self.end = socket.read(&mut self.received)?;
        Ok(self.end)
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").finish_non_exhaustive()
    }
}

/// The facts about a client's TLS options that error messages state.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// The name that the certificate must be valid for.
    pub(super) name: String,
    /// The source of the trusted authorities.
    pub(super) authorities: String,
    /// Whether the client has a certificate.
    pub(super) has_certificate: bool,
}

pub(super) fn problem(error: &Error, trust: &Trust) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate_problem(error, trust),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            format!(
                "the server did not respond with TLS ({error}): name its TLS port, or use zkv:// for a port without TLS"
            )
        }
        Error::AlertReceived(alert) => alert_problem(*alert, trust),
        error => error.to_string(),
    }
}

fn certificate_problem(error: &CertificateError, trust: &Trust) -> String {
    let Trust { name, authorities, .. } = trust;
    match error {
        // The signature is bad if the issuer has the name of a trusted authority, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the server's certificate is not signed by {authorities}: name the certificate of the authority that has \
             signed it with {}",
            Setting::CaFile
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the server's certificate is for {}, where {name} was expected: connect to a name of the certificate, or \
             name it with {}",
            presented.join(", "),
            Setting::ServerName
        ),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the server's certificate expired {} ago, where a valid certificate was expected: renew it, or correct \
             this machine's clock",
            interval(*not_after, *time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the server's certificate is valid only in {}: correct the clock of this machine, or of the machine that \
             issued the certificate",
            interval(*time, *not_before)
        ),
        error => format!("the server's certificate cannot be used: {error}: issue another certificate"),
    }
}

fn interval(from: UnixTime, to: UnixTime) -> String {
    match to.as_secs().saturating_sub(from.as_secs()) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn alert_problem(alert: AlertDescription, trust: &Trust) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired | Alert::HandshakeFailure | Alert::BadCertificate if !trust.has_certificate => {
            format!(
                "the server ended the handshake ({alert:?}); it may require a client certificate: name one with {} \
                 and {}",
                Setting::CertificateFile,
                Setting::KeyFile
            )
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::AccessDenied
        | Alert::DecryptError => format!(
            "the server rejected this client's certificate ({alert:?}): name a valid certificate of an authority that \
             the server trusts with {} and {}",
            Setting::CertificateFile,
            Setting::KeyFile
        ),
        alert => format!("the server ended the session ({alert:?}): see the log of kv_store"),
    }
}
