//! Describes why a session failed, and what to do.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

use crate::setting::Setting;

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
                "the server ended the handshake ({alert:?}); it may require a client certificate: name one with {} and {}",
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
