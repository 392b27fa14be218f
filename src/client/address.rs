//! Addresses of servers, and environment variables that clients trust.
//!
//! In: a path, an abstract name after `@`, or a URL. Out: the address, or the reason why the text is not an address.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::{env, fmt};

use nix::unistd::{getegid, geteuid, getgid, getuid};
use thiserror::Error;

use crate::DEFAULT_SOCKET;

/// The URL schemes of addresses over TCP. The flag is true if connections use TLS.
const SCHEMES: [(&str, bool); 2] = [("zkv://", false), ("zkv+tls://", true)];
const EXAMPLE: &str = "zkv+tls://user@host:6380";

/// The address of a server.
///
/// An address is written as:
///
/// - the path of a Unix socket. A path that starts with `@` names an abstract socket.
/// - `zkv://host:port`, for TCP without TLS.
/// - `zkv+tls://host:port`, for TCP with TLS. Needs the feature `tls`.
///
/// The host is a name, an IPv4 address, or an IPv6 address in brackets. If a user precedes the host, as in
/// `zkv+tls://user@host:port`, the client logs in as this user. Special characters in the user's name are
/// percent-encoded. An address never contains a password: see [`Login`](super::Login).
///
/// # Example
/// ```
/// use zero_kv::client::Address;
///
/// let address = Address::parse("zkv+tls://reporting@db.example:6380")?;
/// let Address::Tcp(tcp) = &address else { unreachable!() };
/// assert_eq!((&*tcp.host, tcp.port, tcp.tls), ("db.example", 6380, true));
/// assert!(Address::parse("zkv+tls://reporting:secret@db.example:6380").is_err());
/// # Ok::<(), zero_kv::client::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket: its path, or `@` and its abstract name.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(TcpAddress),
}

/// A TCP port of a server, and the user that a client logs in as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpAddress {
    /// A name or an IP address. An IPv6 address has no brackets.
    pub host: String,
    /// The number of the port.
    pub port: u16,
    /// The user, if the address names one.
    pub user: Option<String>,
    /// Whether connections use TLS.
    pub tls: bool,
}

/// The reason why a text is not an address. The message never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AddressError(String);

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`AddressError`], if the text has a scheme, but is not a URL that [`Address`] describes, or if it is only a port, or
    /// a host and a port.
    #[doc(hidden)]
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Address, AddressError> {
        let text = text.as_ref();
        let lossy = text.to_string_lossy();
        let scheme = lossy.split_once("://").map(|(scheme, _)| scheme);
        // A path that starts with one of these characters may contain `://`, too.
        let Some(scheme) = scheme.filter(|scheme| !scheme.starts_with(['/', '.', '@'])) else {
            return match host_and_port(&lossy) {
                Some((host, port)) => Err(AddressError(format!(
                    "the address \"{lossy}\" has no scheme: for TCP, pass zkv://{host}:{port}, or zkv+tls://{host}:{port} \
                     with TLS; for a Unix socket of this name, pass ./{lossy}"
                ))),
                None => Ok(Address::Unix(text.into())),
            };
        };
        for (start, tls) in SCHEMES {
            if let Some(rest) = lossy.strip_prefix(start) {
                return TcpAddress::parse(rest, start, tls).map(Address::Tcp);
            }
        }
        Err(AddressError(format!(
            "an address starts with \"{}://\", where zkv://, zkv+tls://, or the path of a socket was expected",
            scheme.escape_debug()
        )))
    }

    /// Returns the path of the Unix socket. `None` for an address over TCP.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }

    /// Returns the user, if the address names one.
    pub fn user(&self) -> Option<&str> {
        self.tcp()?.user.as_deref()
    }

    pub(super) fn tcp(&self) -> Option<&TcpAddress> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp(tcp) => Some(tcp),
        }
    }
}

impl TcpAddress {
    /// Parses the part of a URL after its scheme.
    fn parse(rest: &str, scheme: &str, tls: bool) -> Result<TcpAddress, AddressError> {
        // A password, which is rejected below, may contain `@`, so the host follows the last `@`.
        let (user, host_and_port) = match rest.rsplit_once('@') {
            Some((user, host_and_port)) => (Some(user), host_and_port),
            None => (None, rest),
        };
        let error = |problem: &str| {
            let found = format!("{scheme}{}{host_and_port}", if user.is_some() { "...@" } else { "" });
            AddressError(format!("the address \"{}\" {problem}", found.escape_debug()))
        };
        let user = match user {
            Some(user) if user.contains(':') => {
                return Err(error(
                    "contains a password, which other users of the machine can see: remove it from the address, and \
                     pass the password in the environment variable ZERO_KV_PASSWORD, or the name of a file with the \
                     password in ZERO_KV_PASSWORD_FILE",
                ));
            }
            Some("") => return Err(error("has an empty user: remove the @, or name the user before it")),
            Some(user) => Some(percent_decoded(user).ok_or_else(|| {
                error("has a user that is not percent-encoded UTF-8: write special characters as % and two digits")
            })?),
            None => None,
        };
        let (host, port) = host_and_port
            .rsplit_once(':')
            .filter(|(host, _)| !host.starts_with('[') || host.ends_with(']'))
            .ok_or_else(|| error(&format!("has no port, as in {EXAMPLE}")))?;
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let Some(port) = port.parse().ok().filter(|port| is_number && *port > 0) else {
            return Err(error(
                "has no valid port: after the host, only a colon and a number from 1 to 65535 may follow",
            ));
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ip) if ip.parse::<Ipv6Addr>().is_ok() => ip,
            Some(_) => return Err(error("has brackets around something other than an IPv6 address")),
            None if is_name(host) => host,
            None => {
                return Err(error(
                    "has no valid host, where a name of ASCII letters, digits, dots, and hyphens, an IPv4 address, or \
                     an IPv6 address in brackets was expected",
                ));
            }
        };
        Ok(TcpAddress { host: host.to_owned(), port, user, tls })
    }
}

/// Returns the host and the port if a text is a port, or a host and a port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| is_port && is_name(host)).map(|port| (host, port))
}

/// Returns whether a text can be the name of a host or an IPv4 address.
fn is_name(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Replaces each `%` and the two hexadecimal digits after it by the byte that the digits encode. Returns `None` if the
/// result is not UTF-8, or if a `%` is not followed by two hexadecimal digits.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes all characters except ASCII letters, ASCII digits, `-`, `.`, `_`, and `~`.
fn percent_encoded(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let encode = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect::<String>().into()
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Address {
        Address::Unix(path.to_path_buf())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(tcp) => write!(f, "{tcp}"),
        }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TcpAddress { host, port, user, tls } = self;
        f.write_str(if *tls { "zkv+tls://" } else { "zkv://" })?;
        if let Some(user) = user {
            write!(f, "{}@", percent_encoded(user))?;
        }
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// The environment variable with the address of the server.
pub const SOCKET_VARIABLE: &str = "ZERO_KV_SOCKET";

/// Returns the address in the environment variable `ZERO_KV_SOCKET`, or [`DEFAULT_SOCKET`].
pub fn default_address() -> PathBuf {
    own_variable(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// Returns the value of an environment variable, unless it is empty. Returns `None` in a set-user-ID or set-group-ID
/// program, whose environment comes from a user with fewer rights.
pub(super) fn own_variable(name: &str) -> Option<OsString> {
    // The caller of a set-user-ID program must not choose which server or password the program uses.
    let has_own_rights = getuid() == geteuid() && getgid() == getegid();
    env::var_os(name).filter(|value| has_own_rights && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, user: Option<&str>, tls: bool) -> Address {
        Address::Tcp(TcpAddress { host: host.to_owned(), port, user: user.map(str::to_owned), tls })
    }

    #[test]
    fn addresses_over_tcp_are_parsed_and_displayed() {
        for (text, expected) in [
            ("zkv://localhost:1", tcp("localhost", 1, None, false)),
            ("zkv+tls://db-1.example_x:65535", tcp("db-1.example_x", 65_535, None, true)),
            ("zkv+tls://reader@127.0.0.1:6380", tcp("127.0.0.1", 6380, Some("reader"), true)),
            ("zkv://[::1]:6380", tcp("::1", 6380, None, false)),
            ("zkv+tls://a%40b%3A%C3%A4%25@[2001:db8::1]:6380", tcp("2001:db8::1", 6380, Some("a@b:ä%"), true)),
        ] {
            let found = Address::parse(text).unwrap();
            assert_eq!(found, expected, "{text}");
            assert_eq!(found.to_string(), text);
        }
        assert_eq!(Address::parse("zkv://%72eader@h:1").unwrap(), tcp("h", 1, Some("reader"), false));
    }

    #[test]
    fn everything_without_a_scheme_is_a_path() {
        for text in
            ["/tmp/zero-kv.sock", "@zero-kv", "relative/s", "host:name", "", "/a/zkv://h:1", "./x://y", "@x://y"]
        {
            assert_eq!(Address::parse(text).unwrap(), Address::Unix(text.into()));
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_port_or_a_host_and_a_port_are_answered_with_the_complete_address() {
        for (text, address) in
            [("6399", "127.0.0.1:6399"), ("localhost:6399", "localhost:6399"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            let error = Address::parse(text).unwrap_err().to_string();
            let expected = format!("pass zkv://{address}, or zkv+tls://{address} with TLS; ");
            assert!(error.contains(&expected) && error.ends_with(&format!("pass ./{text}")), "{error}");
        }
        for path in ["./6399", "s.sock", "a:b", "65536", "", "@6399", "/6399", "./localhost:6399", ":1"] {
            assert_eq!(Address::parse(path), Ok(Address::Unix(path.into())), "{path}");
        }
    }

    #[test]
    fn malformed_addresses_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("redis://h:1", "starts with \"redis://\""),
            ("ZKV://h:1", "starts with \"ZKV://\""),
            ("://h:1", "starts with \"://\""),
            ("zkv://h", "has no port"),
            ("zkv://[::1]", "has no port"),
            ("zkv://h:", "no valid port"),
            ("zkv://h:0", "no valid port"),
            ("zkv://h:65536", "no valid port"),
            ("zkv://h:+1", "no valid port"),
            ("zkv://h:1/", "no valid port"),
            ("zkv://h:1?x=2", "no valid port"),
            ("zkv://:1", "no valid host"),
            ("zkv://::1:1", "no valid host"),
            ("zkv://ü:1", "no valid host"),
            ("zkv://a b:1", "no valid host"),
            ("zkv://[1.2.3.4]:1", "other than an IPv6 address"),
            ("zkv://@h:1", "an empty user"),
            ("zkv://a%4@h:1", "percent-encoded"),
            ("zkv://a%zz@h:1", "percent-encoded"),
            ("zkv://a%ff@h:1", "percent-encoded"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_is_rejected_and_not_repeated() {
        for text in ["zkv+tls://u:secret@h:1", "zkv://u:secret@", "zkv://u:se/c@secret@h:x", "zkv://:secret@h:1"] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains("contains a password") && error.contains("ZERO_KV_PASSWORD_FILE"), "{error}");
            assert!(!error.contains("sec"), "{error}");
        }
    }
}
