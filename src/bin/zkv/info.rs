//! What a server says of itself.
//!
//! In: an answer to Info. Out: its lines, as text or as JSON. Which there are,
//! the server decides.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::client::{Client, Info};

use crate::output::{settle_stdout, write_json};

/// Values that are text even where they look like numbers.
const TEXTS: [&str; 10] =
    ["version", "socket", "tcp", "file", "memory", "verify", "digest", "keys", "state", "reload_last"];

pub(crate) fn info(client: &mut Client, json: bool) -> anyhow::Result<bool> {
    let info = client.info()?;
    let mut output = io::stdout().lock();
    let written = match json {
        true => write_json(&mut output, &Json(&info)),
        false => info.iter().try_for_each(|(name, value)| writeln!(output, "{}", format!("{name} {value}").trim_end())),
    };
    settle_stdout(written.and_then(|()| output.flush()))?;
    Ok(true)
}

/// One object, in the order of the lines.
struct Json<'a>(&'a Info);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            match number(value).filter(|_| !TEXTS.contains(&name)) {
                Some(number) => map.serialize_entry(name, &number)?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// A value of digits, with or without a fraction.
fn number(value: &str) -> Option<serde_json::Number> {
    value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| value.parse().ok()).flatten()
}
