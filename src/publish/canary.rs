//! Canaries of a generation.
//!
//! In: lines `key,digest`, as `zkv canary` writes them. Out: the canaries of a manifest, which the files of the
//! generation satisfy.

use std::path::Path;

use twox_hash::XxHash3_128;

use super::error::PublishError;
use super::manifest::Canary;
use super::upload::ShardFile;
use crate::format::key::{Key, KeyKind};
use crate::slots::slot_of;
use crate::store::{LookupError, MappedStore, open_regular};

/// The text instead of a digest if the table must not have the key.
const ABSENT: &str = "absent";

impl Canary {
    /// Reads canaries from a file with one `key,digest` per line. Skips empty lines.
    ///
    /// # Errors
    /// [`PublishError::Io`], [`PublishError::Document`].
    pub fn read_file(path: &Path) -> Result<Vec<Canary>, PublishError> {
        let text = open_regular(path).and_then(std::io::read_to_string).map_err(PublishError::io(path))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let parse = |(number, line): (usize, &str)| {
            Canary::parse(line).ok_or_else(|| PublishError::Document {
                object: format!("{}:{}", path.display(), number + 1),
                problem: format!(
                    "found {:?}, expected `key,digest`, where the digest is 32 hexadecimal digits or `{ABSENT}`: write \
                     the file with `zkv canary`",
                    line.chars().take(100).collect::<String>()
                ),
            })
        };
        lines.map(parse).collect()
    }

    fn parse(line: &str) -> Option<Canary> {
        let (key, digest) = line.rsplit_once(',')?;
        let is_digest = digest.len() == 32 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        (is_digest || digest == ABSENT).then(|| Canary { key: key.to_owned(), digest: digest.to_ascii_lowercase() })
    }

    /// Looks canaries up in the files of a generation, so that a mistake is found before the generation is published.
    ///
    /// # Errors
    /// [`PublishError::Document`] for the first canary that a server would reject; [`PublishError::File`].
    pub fn check_all(canaries: &[Canary], shards: &[ShardFile]) -> Result<(), PublishError> {
        if canaries.is_empty() {
            return Ok(());
        }
        let open = |shard: &ShardFile| Ok((shard.slots, MappedStore::open(&shard.path)?));
        let stores = shards.iter().map(open).collect::<Result<Vec<_>, PublishError>>()?;
        for canary in canaries {
            let wrong = |problem: String| PublishError::Document {
                object: format!("canary {}", canary.key),
                problem: format!("{problem}: correct the canary, or bake other rows"),
            };
            let Some((_, first)) = stores.first() else { continue };
            let key = match first.key_kind() {
                KeyKind::Bytes => Some(Key::from(canary.key.as_str())),
                KeyKind::U64 => canary.key.parse().ok().map(Key::U64),
            };
            let key =
                key.ok_or_else(|| wrong(format!("not a key of this table, whose keys are {}", first.key_kind())))?;
            let Some((_, store)) = stores.iter().find(|(slots, _)| slots.has(slot_of(key))) else { continue };
            let digest = |value: Option<Vec<u8>>| match value {
                Some(value) => format!("{:032x}", XxHash3_128::oneshot(&value)),
                None => ABSENT.to_owned(),
            };
            let found = store.get(key).map(digest).map_err(|error: LookupError| wrong(error.to_string()))?;
            if found != canary.digest {
                return Err(wrong(format!("found {found}, expected {}", canary.digest)));
            }
        }
        Ok(())
    }
}
