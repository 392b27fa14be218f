//! Names of settings in errors and log lines.
//!
//! A setting is an option of a program, a field or an argument in Rust, and usually a keyword argument with the field's
//! name in Python. Messages of the library do not know who reads them, so they name the option and the field.

use std::fmt;

/// Defines all settings. Each line has a setting, its option, and the library's field or method for it, unless the
/// field has the option's name, apart from a unit.
macro_rules! settings {
    ($($setting:ident = $option:literal $(, $field:literal)?;)*) => {
        /// A setting that an error or a log line mentions, displayed as the option of the programs, and the field or
        /// method in Rust if its name differs: `--max-connections [Limits::connections_max]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Setting {
            $(#[doc = concat!("`", $option, $("`, `", $field,)? "`")] $setting,)*
        }

        impl Setting {
            /// Returns the option of the programs for this setting.
            pub fn option(self) -> &'static str {
                match self {
                    $(Setting::$setting => $option,)*
                }
            }
        }

        impl fmt::Display for Setting {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Setting::$setting => concat!($option, $(" [", $field, "]")?),)*
                })
            }
        }
    };
}

settings! {
    Socket = "--socket";
    AbstractSocket = "--abstract", "Config::abstract_socket";
    SocketMode = "--mode";
    SocketOwner = "--owner";
    SocketGroup = "--group";
    AllowUids = "--allow-uid", "SocketAccess::allow_uids";
    AllowGids = "--allow-gid", "SocketAccess::allow_gids";
    ForeignKeys = "--foreign-keys";
    TcpExposed = "--tcp-exposed";
    Users = "--users";
    Tls = "--tls", "Server::serve_tls";
    TlsClientCa = "--tls-ca", "TlsConfig::client_ca";
    TlsHandshakeTimeout = "--tls-handshake-timeout", "TlsConfig::handshake_timeout";
    MetricsExposed = "--metrics-exposed", "Server::serve_metrics";
    Memory = "--memory";
    NoLease = "--no-lease", "Config::lease = false";
    RowsMin = "--min-rows", "ReplaceRules::rows_min";
    ShrinkMax = "--max-shrink", "ReplaceRules::shrink_max_percent";
    AllowEmpty = "--allow-empty";
    AllowKeyTypeChange = "--allow-key-type-change";
    ConnectionsMax = "--max-connections", "Limits::connections_max";
    BufferMax = "--buffer", "Limits::buffer_max_bytes";
    ClientMemoryMax = "--client-memory-max";
    DrainRateMin = "--min-drain-rate", "Limits::drain_rate_min_bytes_per_s";
    GenerationsMax = "--generations-max";
    Slots = "--slots", "ClusterNode::set_file_slots";
    ServerUser = "--server-user";
    PasswordFile = "--password-file";
    CaFile = "--tls-ca", "TlsOptions::ca_file";
    CertificateFile = "--tls-cert", "TlsOptions::certificate_file";
    KeyFile = "--tls-key", "TlsOptions::key_file";
    ServerName = "--tls-server-name", "TlsOptions::server_name";
}
