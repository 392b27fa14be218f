//! Facts about a server.

use std::str::FromStr;

/// Facts about a server and its table, each with a name and a value. `docs/PROTOCOL.md` lists the facts. Later versions
/// of the server may add more facts.
///
/// # Example
/// ```no_run
/// let info = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?.info()?;
/// println!("{:?} rows of generation {:?}, on {:?}", info.rows(), info.generation(), info.get("socket"));
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    text: String,
}

impl Info {
    pub(super) fn new(text: &[u8]) -> Self {
        Info { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// Returns the names and values in the order in which the server sent them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// Returns the value of the fact `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(line_name, value)| (line_name == name).then_some(value))
    }

    /// Returns the value of the fact `name` as a number.
    pub fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.get(name)?.parse().ok()
    }

    /// Returns the number of the generation that the server serves, counted from 1.
    pub fn generation(&self) -> Option<u64> {
        self.number("generation")
    }

    /// Returns the table's digest.
    pub fn digest(&self) -> Option<u128> {
        u128::from_str_radix(self.get("digest")?, 16).ok()
    }

    /// Returns the table's number of rows.
    pub fn rows(&self) -> Option<u64> {
        self.number("rows")
    }
}
