//! Names of settings in errors and log lines.
//!
//! In: a program's names for its settings. Out: the name of a setting in a message. The same setting can be a field of
//! a Rust struct, a command-line option, or a Python keyword argument. Messages of the library therefore contain a
//! [`Setting`], which is displayed as the program's name for the setting.

use std::fmt;
use std::sync::OnceLock;

/// A setting that an error or a log line mentions. A `Setting` is displayed as the program's name for the setting: see
/// [`name_settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// The field `Config::socket`.
    Socket,
    /// The field `Config::abstract_socket`.
    AbstractSocket,
    /// The field `SocketAccess::mode`.
    SocketMode,
    /// The field `SocketAccess::owner`.
    SocketOwner,
    /// The field `SocketAccess::group`.
    SocketGroup,
    /// The field `SocketAccess::allow_uids`.
    AllowUids,
    /// The field `SocketAccess::allow_gids`.
    AllowGids,
    /// The field `Config::tcp_exposed`.
    TcpExposed,
    /// The argument `exposed` of `Server::serve_metrics`.
    MetricsExposed,
    /// The field `Config::memory`.
    Memory,
    /// The field `Config::lease`, set to false.
    NoLease,
    /// The field `ReplaceRules::rows_min`.
    RowsMin,
    /// The field `ReplaceRules::shrink_max_percent`.
    ShrinkMax,
    /// The field `ReplaceRules::allow_empty`.
    AllowEmpty,
    /// The field `ReplaceRules::allow_key_kind_change`.
    AllowKeyKindChange,
    /// The field `Limits::connections_max`.
    ConnectionsMax,
    /// The field `Limits::buffer_max_bytes`.
    BufferMax,
    /// The field `Limits::client_memory_max_bytes`.
    ClientMemoryMax,
    /// The field `Limits::drain_rate_min_bytes_per_s`.
    DrainRateMin,
    /// The field `Limits::generations_max`.
    GenerationsMax,
    /// The field `client::Options::server_user`.
    ServerUser,
}

static NAME_OF: OnceLock<fn(Setting) -> Option<&'static str>> = OnceLock::new();

/// Sets the names that settings have in the errors and log lines of this process. If `name_of` returns `None` for a
/// setting, messages contain the name of the library's field. Only the first call has an effect.
pub fn name_settings(name_of: fn(Setting) -> Option<&'static str>) {
    let _ = NAME_OF.set(name_of);
}

impl Setting {
    /// Returns the name of the library's field or argument.
    fn field(self) -> &'static str {
        match self {
            Setting::Socket => "Config::socket",
            Setting::AbstractSocket => "Config::abstract_socket",
            Setting::SocketMode => "SocketAccess::mode",
            Setting::SocketOwner => "SocketAccess::owner",
            Setting::SocketGroup => "SocketAccess::group",
            Setting::AllowUids => "SocketAccess::allow_uids",
            Setting::AllowGids => "SocketAccess::allow_gids",
            Setting::TcpExposed => "Config::tcp_exposed",
            Setting::MetricsExposed => "exposed",
            Setting::Memory => "Config::memory",
            Setting::NoLease => "Config::lease = false",
            Setting::RowsMin => "ReplaceRules::rows_min",
            Setting::ShrinkMax => "ReplaceRules::shrink_max_percent",
            Setting::AllowEmpty => "ReplaceRules::allow_empty",
            Setting::AllowKeyKindChange => "ReplaceRules::allow_key_kind_change",
            Setting::ConnectionsMax => "Limits::connections_max",
            Setting::BufferMax => "Limits::buffer_max_bytes",
            Setting::ClientMemoryMax => "Limits::client_memory_max_bytes",
            Setting::DrainRateMin => "Limits::drain_rate_min_bytes_per_s",
            Setting::GenerationsMax => "Limits::generations_max",
            Setting::ServerUser => "Options::server_user",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAME_OF.get().and_then(|name_of| name_of(*self));
        f.write_str(name.unwrap_or_else(|| self.field()))
    }
}
