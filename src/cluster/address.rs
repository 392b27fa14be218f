//! Addresses of nodes.

use std::fmt;
use std::str::FromStr;

use super::document::host_problem;

/// The address of a node that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// A host name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for NodeAddress {
    /// Shows the address as `HOST:PORT`, as Redis does, also for IPv6 addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeAddress, String> {
        let expected = || format!("found {text:?}, expected HOST:PORT, such as 10.0.0.1:6380 or [::1]:6380");
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(expected)?;
        if host_problem(host).is_some() {
            return Err(expected());
        }
        Ok(NodeAddress { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_with_and_without_brackets() {
        for (text, host, port) in [
            ("10.0.0.1:6380", "10.0.0.1", 6380),
            ("[::1]:1", "::1", 1),
            ("::1:65535", "::1", 65535),
            ("h.x:5", "h.x", 5),
        ] {
            assert_eq!(text.parse(), Ok(NodeAddress { host: host.to_owned(), port }), "{text}");
        }
        for text in ["", "h", "h:", "h:0", "h:65536", ":5", "a b:5", "h:-1", "[]:5"] {
            let error = text.parse::<NodeAddress>().unwrap_err();
            assert!(error.contains("expected HOST:PORT"), "{text}: {error}");
        }
    }
}
