//! Settings that errors and log lines name.
//!
//! In: how a program writes its settings. Out: the name of a setting in a message. A field of a struct, a command-line
//! flag, and a keyword argument are written differently, so messages of the library name a [`Setting`].

use std::fmt;
use std::sync::OnceLock;

/// A setting that an error or a log line names. Displays as the program's name for it: see [`name_settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// `Config::socket`
    Socket,
    /// `Config::abstract_socket`
    AbstractSocket,
    /// `SocketAccess::mode`
    SocketMode,
    /// `SocketAccess::owner`
    SocketOwner,
    /// `SocketAccess::group`
    SocketGroup,
    /// `SocketAccess::allow_uids`
    AllowUids,
    /// `SocketAccess::allow_gids`
    AllowGids,
    /// `Config::tcp_exposed`
    TcpExposed,
    /// The argument `exposed` of `Server::serve_metrics`
    MetricsExposed,
    /// `Config::memory`
    Memory,
    /// `Config::lease` set to false
    NoLease,
    /// `ReplaceRules::rows_min`
    RowsMin,
    /// `Limits::connections_max`
    ConnectionsMax,
    /// `Limits::buffer_max_bytes`
    BufferMax,
    /// `Limits::client_memory_max_bytes`
    ClientMemoryMax,
    /// `Limits::drain_rate_min_bytes_per_s`
    DrainRateMin,
    /// `Limits::generations_max`
    GenerationsMax,
    /// `client::Options::server_user`
    ServerUser,
}

static NAME_OF: OnceLock<fn(Setting) -> Option<&'static str>> = OnceLock::new();

/// Sets how the errors and log lines of this process name settings. `None` keeps the name of the library's field. The
/// first call counts.
pub fn name_settings(name_of: fn(Setting) -> Option<&'static str>) {
    let _ = NAME_OF.set(name_of);
}

impl Setting {
    /// Returns the name of the field of this library.
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
