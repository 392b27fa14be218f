//! Canaries of a generation.
//!
//! In: lines `key,digest`, as `zkv canary` writes them. Out: the canaries of a manifest, which the files of the
//! generation satisfy.

use std::path::Path;

use twox_hash::XxHash3_128;

use super::error::PublishError;
use super::foreign_text::one_line;
use super::manifest::{Canary, Manifest};
use super::upload::ShardFile;
use crate::cluster::SlotSet;
use crate::config_file::{self, CANARIES_LEN_MAX_BYTES};
use crate::excerpt::excerpt_chars;
use crate::format::key::{Key, KeyKind};
use crate::slots::slot_of;
use crate::store::{LookupError, MappedStore};

/// The text instead of a digest if the table must not have the key.
const ABSENT: &str = "absent";

impl Canary {
    /// Reads canaries from a file with one `key,digest` per line. Skips empty lines.
    ///
    /// # Errors
    /// [`PublishError::Io`], [`PublishError::Document`].
    pub fn read_file(path: &Path) -> Result<Vec<Canary>, PublishError> {
        let text = config_file::read_text(path, CANARIES_LEN_MAX_BYTES).map_err(PublishError::io(path))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let parse = |(number, line): (usize, &str)| {
            Canary::parse(line).ok_or_else(|| PublishError::Document {
                object: format!("{}:{}", path.display(), number + 1),
                problem: format!(
                    "found {:?}, expected `key,digest`, where the digest is 32 hexadecimal digits or `{ABSENT}`: write \
                     the file with `zkv canary`",
                    excerpt_chars(line, 100)
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
            let key = canary.key_in(first).map_err(wrong)?;
            let Some((_, store)) = stores.iter().find(|(slots, _)| slots.has(slot_of(key))) else { continue };
            canary.check(store).map_err(wrong)?;
        }
        Ok(())
    }

    /// Looks the canary up in the table that should satisfy it. Returns what is wrong as the error.
    fn check(&self, store: &MappedStore) -> Result<(), String> {
        let digest = |value: Option<Vec<u8>>| match value {
            Some(value) => format!("{:032x}", XxHash3_128::oneshot(&value)),
            None => ABSENT.to_owned(),
        };
        let found = store.get(self.key_in(store)?).map(digest).map_err(|error: LookupError| error.to_string())?;
        match found == self.digest {
            true => Ok(()),
            false => Err(format!("found {found}, expected {}", self.digest)),
        }
    }

    /// Returns the key, which has the kind of the table's keys. Returns what is wrong as the error.
    fn key_in(&self, store: &MappedStore) -> Result<Key<'_>, String> {
        let key = self.key_of(store.key_kind());
        key.ok_or_else(|| format!("not a key of this table, whose keys are {}", store.key_kind()))
    }

    fn key_of(&self, kind: KeyKind) -> Option<Key<'_>> {
        match kind {
            KeyKind::Bytes => Some(Key::from(self.key.as_str())),
            KeyKind::U64 => self.key.parse().ok().map(Key::U64),
        }
    }
}

impl Manifest {
    /// Looks the canaries of the generation up in a table that has its rows of these slots.
    ///
    /// # Errors
    /// What is wrong with the first canary of the slots that the table does not satisfy.
    pub fn check_canaries(&self, store: &MappedStore, slots: &SlotSet) -> Result<(), String> {
        // A malformed key is not left out, so that the generation is rejected.
        let is_in_slots = |canary: &&Canary| canary.key_of(store.key_kind()).is_none_or(|key| slots.has(slot_of(key)));
        let check = |canary: &Canary| {
            canary.check(store).map_err(|problem| format!("canary {}: {problem}", one_line(&canary.key)))
        };
        self.canaries.iter().filter(is_in_slots).try_for_each(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::{Options, bake_csv};
    use crate::publish::location::Location;

    #[test]
    fn a_table_must_satisfy_the_canaries_of_its_generation() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("users.db");
        bake_csv("7,seven\n".as_bytes(), &db, &Options::default()).unwrap();
        let store = MappedStore::open(&db).unwrap();
        let mut manifest = Manifest::new(&Location::parse("http://host/users").unwrap(), "job", Vec::new());
        let seven = format!("{:032x}", XxHash3_128::oneshot(b"seven"));
        let canary = |key: &str, digest: &str| Canary { key: key.to_owned(), digest: digest.to_owned() };
        manifest.canaries = vec![canary("7", &seven), canary("8", ABSENT)];
        manifest.check_canaries(&store, &SlotSet::ALL).unwrap();

        for (key, digest, expected) in [
            ("7", ABSENT, format!("canary 7: found {seven}, expected absent")),
            ("8", &seven, format!("canary 8: found absent, expected {seven}")),
            ("x", ABSENT, "canary x: not a key of this table, whose keys are unsigned 64-bit numbers".to_owned()),
        ] {
            manifest.canaries = vec![canary(key, digest)];
            assert_eq!(manifest.check_canaries(&store, &SlotSet::ALL).unwrap_err(), expected);
        }
    }
}
