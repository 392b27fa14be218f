//! Names of settings in errors and log lines.
//!
//! In: a program's names for its settings. Out: the name of a setting in a message. A setting can be a field of a Rust
//! struct in one program, and a command-line option or a Python keyword argument in others. Messages of the library
//! therefore contain a [`Setting`], which is displayed as the program's name for the setting.

use std::fmt;
use std::sync::OnceLock;

/// Defines all settings. Each line has a setting, and the library's field or argument for it.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident = $field:literal;)*) => {
        /// A setting that an error or a log line mentions. A `Setting` is displayed as the program's name for the
        /// setting: see [`name_settings`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Setting {
            $($(#[$doc])* #[doc = concat!("`", $field, "`")] $setting,)*
        }

        impl Setting {
            /// Returns the name of the library's field or argument for this setting.
            fn field(self) -> &'static str {
                match self {
                    $(Setting::$setting => $field,)*
                }
            }
        }
    };
}

settings! {
    Socket = "Config::socket";
    AbstractSocket = "Config::abstract_socket";
    SocketMode = "SocketAccess::mode";
    SocketOwner = "SocketAccess::owner";
    SocketGroup = "SocketAccess::group";
    AllowUids = "SocketAccess::allow_uids";
    AllowGids = "SocketAccess::allow_gids";
    ForeignKeys = "Config::foreign_keys";
    TcpExposed = "Config::tcp_exposed";
    Users = "Config::users";
    /// The TLS port, which has the name of the method that opens it.
    Tls = "Server::serve_tls";
    TlsClientCa = "TlsConfig::client_ca";
    TlsHandshakeTimeout = "TlsConfig::handshake_timeout";
    /// The argument `exposed` of `Server::serve_metrics`.
    MetricsExposed = "exposed";
    Memory = "Config::memory";
    NoLease = "Config::lease = false";
    RowsMin = "ReplaceRules::rows_min";
    ShrinkMax = "ReplaceRules::shrink_max_percent";
    AllowEmpty = "ReplaceRules::allow_empty";
    AllowKeyKindChange = "ReplaceRules::allow_key_kind_change";
    ConnectionsMax = "Limits::connections_max";
    BufferMax = "Limits::buffer_max_bytes";
    ClientMemoryMax = "Limits::client_memory_max_bytes";
    DrainRateMin = "Limits::drain_rate_min_bytes_per_s";
    GenerationsMax = "Limits::generations_max";
    ServerUser = "Options::server_user";
    PasswordFile = "Login::with_password_file";
    CaFile = "TlsOptions::ca_file";
    CertificateFile = "TlsOptions::certificate_file";
    KeyFile = "TlsOptions::key_file";
    ServerName = "TlsOptions::server_name";
}

static NAME_OF: OnceLock<fn(Setting) -> Option<&'static str>> = OnceLock::new();

/// Sets the names of settings in the errors and log lines of this process. If `name_of` returns `None` for a setting,
/// messages contain the name of the library's field. Only the first call has an effect.
pub fn name_settings(name_of: fn(Setting) -> Option<&'static str>) {
    let _ = NAME_OF.set(name_of);
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAME_OF.get().and_then(|name_of| name_of(*self));
        f.write_str(name.unwrap_or_else(|| self.field()))
    }
}
