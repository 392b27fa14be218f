//! Canaries: keys with the digests of their expected values.
//!
//! In: lines `key,digest`, as `zkv canary` writes them. Out: whether a table has the expected values. A publisher looks
//! the canaries of a generation up before it publishes the files, and a server before it serves a file. Canaries detect
//! mistakes, but not values that were forged to match.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use twox_hash::XxHash3_128;

use crate::config_file::{self, CANARIES_LEN_MAX_BYTES};
use crate::excerpt::excerpt_chars;
use crate::format::OwnedKey;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::printable::shortened;
use crate::store::LookupError;

/// The text instead of a digest if the table must not have the key.
const ABSENT: &str = "absent";
/// The maximum number of characters of a key in a message. The keys of a published table's canaries come from its
/// store, and the message is part of Info.
const KEY_CHARS_MAX: usize = 100;

/// A key with the digest of its expected value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// The key, as text.
    pub key: String,
    /// The XXH3-128 of the value, as 32 hexadecimal digits, or `absent` if the table must not have the key.
    pub digest: String,
}

/// The reason why canaries cannot be read, or why a table does not satisfy them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CanaryError {
    /// The canary file cannot be read.
    #[error("canaries in {}: {error}", path.display())]
    Io {
        /// The path of the canary file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A line of the canary file is malformed.
    #[error(
        "{}:{line}: found {found:?}, expected `key,digest`, where the digest is 32 hexadecimal digits or `absent`: \
         write the file with `zkv canary`", path.display()
    )]
    Line {
        /// The path of the canary file.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
        /// The beginning of the line.
        found: String,
    },
    /// A canary's key is not of the table's type.
    #[error("canary {}: not a key of this table, whose keys are {held}", shortened(key, KEY_CHARS_MAX))]
    KeyType {
        /// The key.
        key: String,
        /// The type of the table's keys.
        held: KeyType,
    },
    /// A canary's key does not have the expected value.
    #[error(
        "canary {}: found {found}, expected {wanted}: correct the canary, or bake other rows",
        shortened(key, KEY_CHARS_MAX)
    )]
    Value {
        /// The key.
        key: String,
        /// The digest of the value found, `absent`, or the error of the lookup.
        found: String,
        /// The expected digest, or `absent`.
        wanted: String,
    },
    /// A row of the table cannot be found by its key, or cannot be read.
    #[error("row {row}: {problem}")]
    Row {
        /// The number of the row, counted from 0.
        row: usize,
        /// What is wrong with the row.
        problem: &'static str,
    },
}

/// Returns the XXH3-128 of a value.
pub fn value_digest(value: &[u8]) -> u128 {
    XxHash3_128::oneshot(value)
}

/// Returns the digest of a value as canaries have it. `None` stands for a missing key.
pub fn digest_text(value: Option<&[u8]>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{:032x}", value_digest(value)))
}

impl Canary {
    /// Reads canaries from a file with one `key,digest` per line. Skips empty lines.
    ///
    /// # Errors
    /// [`CanaryError::Io`], [`CanaryError::Line`].
    pub fn read_file(path: &Path) -> Result<Vec<Canary>, CanaryError> {
        let text = config_file::read_text(path, CANARIES_LEN_MAX_BYTES);
        let text = text.map_err(|error| CanaryError::Io { path: path.to_path_buf(), error })?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let parse = |(number, line): (usize, &str)| {
            Canary::parse(line).ok_or_else(|| CanaryError::Line {
                path: path.to_path_buf(),
                line: number + 1,
                found: excerpt_chars(line, KEY_CHARS_MAX).into_owned(),
            })
        };
        lines.map(parse).collect()
    }

    fn parse(line: &str) -> Option<Canary> {
        let (key, digest) = line.rsplit_once(',')?;
        let is_digest = digest.len() == 32 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        (is_digest || digest == ABSENT).then(|| Canary { key: key.to_owned(), digest: digest.to_ascii_lowercase() })
    }

    /// Returns the stored key, which has the type of the table's keys.
    ///
    /// # Errors
    /// [`CanaryError::KeyType`].
    pub(crate) fn key_of(&self, held: KeyType) -> Result<OwnedKey, CanaryError> {
        held.parse(self.key.as_bytes()).map_err(|_| CanaryError::KeyType { key: self.key.clone(), held })
    }

    /// Looks the canary up with `get` in a table whose keys have the type `held`.
    ///
    /// # Errors
    /// [`CanaryError::KeyType`], [`CanaryError::Value`].
    pub(crate) fn check<V: AsRef<[u8]>>(
        &self,
        held: KeyType,
        get: impl FnOnce(Key<'_>) -> Result<Option<V>, LookupError>,
    ) -> Result<(), CanaryError> {
        let found = match get(self.key_of(held)?.as_key()) {
            Ok(value) => digest_text(value.as_ref().map(AsRef::as_ref)),
            Err(error) => error.to_string(),
        };
        match found == self.digest {
            true => Ok(()),
            false => Err(CanaryError::Value { key: self.key.clone(), found, wanted: self.digest.clone() }),
        }
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::Lookup;
    use crate::bake::{Keys, Options, bake_csv};
    use crate::store::Store;

    fn table(csv: &str, keys: Keys) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(csv.as_bytes(), &db, &Options { keys, ..Options::default() }).unwrap();
        let store = Store::open(db).unwrap();
        (folder, store)
    }

    fn check_canaries(lines: &str, store: &Store) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines).unwrap();
        let canaries = Canary::read_file(file.path()).map_err(|error| error.to_string())?;
        let check = |canary: &Canary| canary.check(store.key_type(), |key| store.get(key));
        canaries.iter().try_for_each(check).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_passes_if_its_values_match_its_canaries() {
        let (_folder, numbers) = table("7,seven\n8,\n", Keys::U64);
        let (_folder, bytes) = table("\"a,b\",seven\n", Keys::BYTES);
        let (seven, empty) = (digest_text(Some(b"seven")), digest_text(Some(b"")));
        check_canaries("", &numbers).unwrap();
        check_canaries(&format!("7,{seven}\n\n8,{empty}\n9,absent\n"), &numbers).unwrap();
        check_canaries(&format!("a,b,{seven}\nx,absent"), &bytes).unwrap();

        let remedy = "correct the canary, or bake other rows";
        for (line, expected) in [
            ("7,absent".to_owned(), format!("canary 7: found {seven}, expected absent: {remedy}")),
            (format!("9,{seven}"), format!("canary 9: found absent, expected {seven}: {remedy}")),
            ("x,absent".to_owned(), "canary x: not a key of this table, whose keys are u64".to_owned()),
        ] {
            assert_eq!(check_canaries(&line, &numbers).unwrap_err(), expected);
        }
        for line in ["7", "7,", "7,12", &format!("7,{}", "g".repeat(32)), &format!("7,+{}", "1".repeat(31))] {
            let error = check_canaries(&format!("7,{seven}\n{line}\n"), &numbers).unwrap_err();
            assert!(error.contains(":2: found") && error.contains("zkv canary"), "{error}");
        }
        assert!(Canary::read_file(Path::new("no/such")).unwrap_err().to_string().contains("no/such: No such file"));
    }
}
