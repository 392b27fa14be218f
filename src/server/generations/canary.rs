//! Canaries: keys that are looked up in a new file before it is served.
//!
//! In: lines `key,digest`. Out: whether a table has the expected values. The digest is the XXH3-128 of the key's value,
//! as 32 hexadecimal digits, or `absent` if the table must not have the key. Canaries detect mistakes, but not values
//! that were forged to match.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use twox_hash::XxHash3_128;

use crate::config_file::{self, CANARIES_LEN_MAX_BYTES};
use crate::excerpt::excerpt_chars;
use crate::format::key::{Key, KeyKind};
use crate::printable::shortened;
use crate::store::{LookupError, Pace, Store};

/// The maximum number of rows of a candidate that are sampled and looked up, besides the canaries. The table's last row
/// is always looked up and is not counted here.
pub(super) const SAMPLE_ROWS: usize = 1000;
/// The maximum number of sampled rows of a server's first file, which clients wait for. Each sampled row can cost
/// several reads from the disk, and the verification of several blocks.
pub(super) const FIRST_SAMPLE_ROWS: usize = 16;
/// The number of sampled rows that are looked up between two pauses of the check.
const ROWS_PER_STEP: usize = 16;
const ABSENT: &str = "absent";
/// The maximum number of characters of a key in a message. The keys of a published table's canaries come from its store,
/// and the message is part of Info.
const KEY_CHARS_MAX: usize = 100;

/// The reason why a table failed its canaries.
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
        "canaries in {}, line {line}: found {found:?}, expected `key,digest`, where the digest is 32 hexadecimal \
         digits or `absent`: write the file with `zkv canary`", path.display()
    )]
    Line {
        /// The path of the canary file.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
        /// The beginning of the line.
        found: String,
    },
    /// A canary's key is not of the table's kind.
    #[error("canary {}: not a key of this table, whose keys are {held}", shortened(key, KEY_CHARS_MAX))]
    Kind {
        /// The key.
        key: String,
        /// The kind of the table's keys.
        held: KeyKind,
    },
    /// A canary's key does not have the expected value.
    #[error("canary {}: found {found}, expected {wanted}", shortened(key, KEY_CHARS_MAX))]
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

/// The canaries: keys with the digests of their expected values.
#[derive(Clone, Debug, Default)]
pub(super) struct Canaries {
    lines: Vec<(String, Wanted)>,
}

/// The digest of an expected value, or `None` if the table must not have the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted(Option<u128>);

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(digest) => write!(f, "{digest:032x}"),
            None => f.write_str(ABSENT),
        }
    }
}

/// Returns the digest that a canary file contains for a value: the XXH3-128 of the value.
pub fn value_digest(value: &[u8]) -> u128 {
    XxHash3_128::oneshot(value)
}

impl Canaries {
    /// Reads a canary file. Skips empty lines.
    ///
    /// # Errors
    /// [`CanaryError::Io`], [`CanaryError::Line`].
    pub(super) fn read(path: &Path) -> Result<Canaries, CanaryError> {
        let text = config_file::read_text(path, CANARIES_LEN_MAX_BYTES);
        let text = text.map_err(|error| CanaryError::Io { path: path.to_path_buf(), error })?;
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let parsed = line.rsplit_once(',').and_then(|(key, digest)| Some((key.to_owned(), parse(digest)?)));
            let refused = || {
                let found = excerpt_chars(line, KEY_CHARS_MAX).into_owned();
                CanaryError::Line { path: path.to_path_buf(), line: number + 1, found }
            };
            lines.push(parsed.ok_or_else(refused)?);
        }
        Ok(Canaries { lines })
    }

    /// Looks up the canaries, and a sample of at most `sample_rows` of the table's rows. Stops early, without an error,
    /// if `pace` cancels the work.
    ///
    /// # Errors
    /// [`CanaryError`] for the first mismatch.
    pub(super) fn run(&self, store: &Store, sample_rows: usize, pace: &Pace) -> Result<(), CanaryError> {
        for (text, wanted) in self.lines.iter().take_while(|_| pace.goes_on()) {
            let held = store.key_kind();
            let key = match held {
                KeyKind::Bytes => Some(Key::from(text)),
                KeyKind::U64 => text.parse().ok().map(Key::U64),
            };
            let key = key.ok_or_else(|| CanaryError::Kind { key: text.clone(), held })?;
            let found = match store.get(key) {
                Ok(value) => Wanted(value.map(value_digest)).to_string(),
                Err(error) => error.to_string(),
            };
            if found != wanted.to_string() {
                return Err(CanaryError::Value { key: text.clone(), found, wanted: wanted.to_string() });
            }
        }
        let step = store.len().div_ceil(sample_rows).max(1);
        let rows: Vec<usize> = (0..store.len()).step_by(step).chain(store.len().checked_sub(1)).collect();
        store.begin_reads_of_rows(&rows);
        let steps = || rows.chunks(ROWS_PER_STEP).take_while(|_| pace.goes_on()).flatten().copied();
        let keys = steps().map(|row| store.row(row));
        store.begin_index_reads(keys.filter_map(|row| row.ok().flatten()).map(|(key, _)| key));
        steps().try_for_each(|row| find_row(store, row).map_err(|problem| CanaryError::Row { row, problem }))
    }
}

fn parse(digest: &str) -> Option<Wanted> {
    match digest {
        ABSENT => Some(Wanted(None)),
        _ if digest.len() == 32 && digest.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u128::from_str_radix(digest, 16).ok().map(|digest| Wanted(Some(digest)))
        }
        _ => None,
    }
}

/// Checks that the index finds a row by its key.
fn find_row(store: &Store, row: usize) -> Result<(), &'static str> {
    let damaged = |_: LookupError| "it is damaged";
    let (key, value) = store.row(row).map_err(damaged)?.ok_or("it does not exist")?;
    match store.get(key).map_err(damaged)? {
        Some(found) if found.as_ptr() == value.as_ptr() && found.len() == value.len() => Ok(()),
        _ => Err("the index does not find it"),
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::bake::{Keys, Options, bake_csv};

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
        let canaries = Canaries::read(file.path()).map_err(|error| error.to_string())?;
        canaries.run(store, SAMPLE_ROWS, &Pace::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_passes_if_its_values_match_its_canaries() {
        let (_folder, numbers) = table("7,seven\n8,\n", Keys::U64);
        let (_folder, bytes) = table("\"a,b\",seven\n", Keys::Bytes);
        let (seven, empty) = (format!("{:032x}", value_digest(b"seven")), format!("{:032x}", value_digest(b"")));
        check_canaries("", &numbers).unwrap();
        check_canaries(&format!("7,{seven}\n\n8,{empty}\n9,absent\n"), &numbers).unwrap();
        check_canaries(&format!("a,b,{seven}\nx,absent"), &bytes).unwrap();

        assert_eq!(
            check_canaries("7,absent", &numbers).unwrap_err(),
            format!("canary 7: found {seven}, expected absent")
        );
        let wrong = check_canaries(&format!("9,{seven}"), &numbers).unwrap_err();
        assert_eq!(wrong, format!("canary 9: found absent, expected {seven}"));
        assert_eq!(
            check_canaries("x,absent", &numbers).unwrap_err(),
            "canary x: not a key of this table, whose keys are unsigned 64-bit numbers"
        );
        for line in ["7", "7,", "7,12", &format!("7,{}", "g".repeat(32)), &format!("7,+{}", "1".repeat(31))] {
            let error = check_canaries(&format!("7,{seven}\n{line}\n"), &numbers).unwrap_err();
            assert!(error.contains("line 2: ") && error.contains("zkv canary"), "{error}");
        }
        assert!(Canaries::read(Path::new("no/such")).unwrap_err().to_string().contains("no/such: No such file"));
    }
}
