//! `zkv info`: prints the fields of a server's Info response, as text or as JSON. All fields are printed, including
//! fields that this program does not use.

use std::io::Write;

use serde::ser::{Serialize, SerializeMap, Serializer};
use zero_kv::client::{Client, Info};
use zero_kv::printable::Printable;

use crate::output::{print, write_json_line};

/// Fields whose values are JSON strings even if they look like numbers.
const TEXT_FIELDS: &[&str] =
    &["version", "socket", "tcp", "file", "memory", "verify", "digest", "keys", "state", "reload_last"];

pub(crate) fn info(client: &mut Client, json: bool) -> anyhow::Result<bool> {
    let info = client.info()?;
    print(|stdout| match json {
        true => write_json_line(stdout, &InfoObject(&info)),
        false => info
            .iter()
            .try_for_each(|(name, value)| writeln!(stdout, "{}", Printable(format!("{name} {value}").trim_end()))),
    })?;
    Ok(true)
}

/// Serializes an Info response as one JSON object, with the fields in the server's order.
struct InfoObject<'a>(&'a Info);

impl Serialize for InfoObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            match parse_number(value).filter(|_| !TEXT_FIELDS.contains(&name)) {
                Some(number) => map.serialize_entry(name, &number)?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Parses a value that is a decimal number, with or without a fraction.
fn parse_number(value: &str) -> Option<serde_json::Number> {
    value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| value.parse().ok()).flatten()
}
