//! What a server says of itself.

use std::str::FromStr;

/// What a server says of itself: lines of a name and a value, as
/// `docs/PROTOCOL.md` lists them. Later servers may have more of them.
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

    /// Names and values, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// The value with this name, if the server has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(of, value)| (of == name).then_some(value))
    }

    /// The number with this name, if the server has it.
    pub fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.get(name)?.parse().ok()
    }

    /// Which file it is, of those that the server has served, counted from 1.
    pub fn generation(&self) -> Option<u64> {
        self.number("generation")
    }

    /// The digest of the file that it serves.
    pub fn digest(&self) -> Option<u128> {
        u128::from_str_radix(self.get("digest")?, 16).ok()
    }

    /// How many rows that file has.
    pub fn rows(&self) -> Option<u64> {
        self.number("rows")
    }
}
