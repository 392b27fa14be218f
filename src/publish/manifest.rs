//! Manifests: which files form a generation.
//!
//! In: entries of uploaded files. Out: a document that a reader accepts only if it is complete: see
//! [`Manifest::check`].

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::author::{TOOL, author};
use super::change::Facts;
use super::document::Series;
use super::error::PublishError;
use super::limits::{
    self, ALLOWED_MAX, CANARIES_MAX, COLUMN_COUNT_MAX, COLUMN_LEN_MAX_BYTES, ENTRIES_MAX, FILE_LEN_MAX_BYTES,
    KEY_LEN_MAX_BYTES, NOTE_LEN_MAX_BYTES, NUMBER_MAX, OBJECT_LEN_MAX_BYTES, ROW_COUNT_MAX, TEXT_LEN_MAX_BYTES,
    check_count, check_len, check_number, one_line,
};
use super::location::Location;
use crate::Lookup;
use crate::canary::Canary;
use crate::cluster::SlotSet;
use crate::excerpt::excerpt_chars;
use crate::format::key_type::KeyType;
use crate::slots::{SLOT_COUNT, SlotRange, slot_of_typed};
use crate::store::MappedStore;
use crate::typed::Schema;

/// The format of the manifests that this version writes, and the newest that it reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// The name of the slot function in manifests: CRC-16/XMODEM, modulo [`SLOT_COUNT`].
const SLOT_FUNCTION: &str = "crc16-xmodem";

/// A generation of a published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// The format of the manifest: [`MANIFEST_FORMAT`].
    pub format: u32,
    /// The name of the table: the last component of its URL.
    pub table: String,
    /// The number of the generation. The first generation has number 1.
    pub number: u64,
    /// The number of the generation that was the newest one before this one, or 0.
    pub parent: u64,
    /// When the manifest was created, as RFC 3339 text.
    pub created: String,
    /// A name of the publishing job, unique among the jobs of the table.
    pub job: String,
    /// The program that created the manifest, with its version.
    pub tool: String,
    /// Who created the manifest, as `USER@HOST`. Empty if an earlier version created it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub created_by: String,
    /// The type of the keys, such as `u64` or `bytes,date`.
    pub key_kind: String,
    /// The columns of a typed table, as `name:type` text. Empty for other tables.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "limits::list::<_, _, COLUMN_COUNT_MAX>"
    )]
    pub schema: Vec<String>,
    /// The function that maps keys to slots.
    pub slot_function: String,
    /// The files, in the order of their slots.
    #[serde(deserialize_with = "limits::list::<_, _, ENTRIES_MAX>")]
    pub entries: Vec<Entry>,
    /// Keys with the digests of their values. A server looks them up before it serves the generation.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "limits::list::<_, _, CANARIES_MAX>")]
    pub canaries: Vec<Canary>,
    /// The suspicious changes from the preceding generation that the publisher has allowed, by their names: see
    /// [`Change`](super::Change).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "limits::list::<_, _, ALLOWED_MAX>")]
    pub allowed: Vec<String>,
    /// A text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A file of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EntryFields")]
#[non_exhaustive]
pub struct Entry {
    /// The slots of the file's keys.
    #[serde(flatten)]
    pub slots: SlotRange,
    /// The name of the object, relative to the table's URL.
    pub object: String,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The number of rows.
    pub rows: u64,
    /// The digest in the file's header, as 32 hexadecimal digits.
    pub digest: String,
    /// The type of the keys, such as `u64` or `bytes,date`.
    pub key_kind: String,
    /// The columns of a typed table, as `name:type` text. Empty for other tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schema: Vec<String>,
    /// The name of the key's column in a typed table. Empty if the column has no name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_name: String,
}

impl Entry {
    /// Returns the entry as JSON text, which another process can read with [`Entry::from_json`].
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("the fields of an entry are numbers and text")
    }

    /// Reads an entry from the JSON text of [`Entry::to_json`].
    ///
    /// # Errors
    /// [`PublishError::Document`] if the text is not an entry.
    pub fn from_json(text: &str) -> Result<Entry, PublishError> {
        let malformed = |error: serde_json::Error| PublishError::Document {
            object: "entry".to_owned(),
            problem: format!("found {:?}, expected the JSON of an entry: {error}", excerpt_chars(text, 100)),
        };
        serde_json::from_str(text).map_err(malformed)
    }

    /// Checks the fields that do not depend on other entries. The error states the problem.
    fn check(&self) -> Result<(), String> {
        check_len("the name of an object", &self.object, OBJECT_LEN_MAX_BYTES)?;
        let parts: Vec<&str> = self.object.split('/').collect();
        let is_name = |part: &&str| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_valid)
        };
        if parts.len() != 3 || parts[0] != "data" || !parts.iter().all(is_name) {
            return Err(format!("the name of an object is {:?}, expected data/JOB/NAME", self.object));
        }
        let malformed = |problem: String| format!("the file {}: {problem}", self.object);
        check_number("the length in bytes", self.bytes, FILE_LEN_MAX_BYTES).map_err(malformed)?;
        check_number("the number of rows", self.rows, ROW_COUNT_MAX).map_err(malformed)?;
        if self.digest.len() != 32 || !self.digest.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(malformed(format!(
                "the digest is {:?}, expected 32 hexadecimal digits",
                one_line(&self.digest)
            )));
        }
        let key_type: Result<KeyType, _> = self.key_kind.parse();
        key_type.map_err(|error| malformed(format!("the type of keys: {error}")))?;
        check_len("the name of the key", &self.key_name, TEXT_LEN_MAX_BYTES).map_err(malformed)
    }
}

/// The fields of an [`Entry`]. The deserializer of a flattened field would keep all unknown fields in memory.
#[derive(Deserialize)]
struct EntryFields {
    first_slot: u16,
    last_slot: u16,
    object: String,
    bytes: u64,
    rows: u64,
    digest: String,
    key_kind: String,
    #[serde(default, deserialize_with = "limits::list::<_, _, COLUMN_COUNT_MAX>")]
    schema: Vec<String>,
    #[serde(default)]
    key_name: String,
}

impl From<EntryFields> for Entry {
    fn from(fields: EntryFields) -> Entry {
        let EntryFields { first_slot, last_slot, object, bytes, rows, digest, key_kind, schema, key_name } = fields;
        Entry { slots: SlotRange { first_slot, last_slot }, object, bytes, rows, digest, key_kind, schema, key_name }
    }
}

/// Checks that a canary can be a line of a canary file. The error states the problem.
fn check_canary_text(canary: &Canary) -> Result<(), String> {
    check_len("the key of a canary", &canary.key, KEY_LEN_MAX_BYTES)?;
    check_len("the digest of a canary", &canary.digest, TEXT_LEN_MAX_BYTES)?;
    match canary.key.contains('\n') {
        true => Err(format!("the key of a canary has a line end: {:?}", one_line(&canary.key))),
        false => Ok(()),
    }
}

/// Checks the parts of a manifest that a publisher chooses. The error states the problem.
pub(super) fn check_note_and_canaries(note: &str, canaries: &[Canary]) -> Result<(), String> {
    check_len("the note", note, NOTE_LEN_MAX_BYTES)?;
    check_count("canaries", canaries.len(), CANARIES_MAX)?;
    canaries.iter().try_for_each(check_canary_text)
}

/// The field that is read first, because a newer format may have other fields.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl Manifest {
    /// Creates the manifest of a new generation. Its number is set when it is committed.
    pub(super) fn new(location: &Location, job: &str, mut entries: Vec<Entry>) -> Manifest {
        entries.sort_by_key(|entry| entry.slots);
        let (key_kind, schema) =
            entries.first().map(|entry| (entry.key_kind.clone(), entry.schema.clone())).unwrap_or_default();
        Manifest {
            format: MANIFEST_FORMAT,
            table: location.table().to_owned(),
            number: 0,
            parent: 0,
            created: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            job: job.to_owned(),
            tool: TOOL.to_owned(),
            created_by: author(),
            key_kind,
            schema,
            slot_function: SLOT_FUNCTION.to_owned(),
            entries,
            canaries: Vec::new(),
            allowed: Vec::new(),
            note: String::new(),
        }
    }

    /// Reads the manifest of a generation. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError::Document`] if the manifest is damaged, of a newer format, or incomplete.
    pub(super) async fn read(location: &Location, number: u64) -> Result<Option<Manifest>, PublishError> {
        location.read_document(Series::Manifests, number, |json| Manifest::decode(json, number)).await
    }

    /// Decodes a manifest that has a given number. The error states the problem.
    pub(super) fn decode(json: &[u8], number: u64) -> Result<Manifest, String> {
        let FormatOnly { format } = super::document::decode(json)?;
        if format > MANIFEST_FORMAT {
            return Err(format!(
                "has format {format}, and this version reads up to {MANIFEST_FORMAT}: install a newer version"
            ));
        }
        let manifest: Manifest = super::document::decode(json)?;
        if manifest.number != number {
            return Err(format!("is the manifest of generation {}, expected {number}", manifest.number));
        }
        manifest.check().map_err(|problem| format!("{problem}: publish the table again"))?;
        Ok(manifest)
    }

    /// Checks that the files cover every slot exactly once and agree with each other, and that all numbers and lengths
    /// are within the [limits]. The error states the problem.
    pub(super) fn check(&self) -> Result<(), String> {
        check_number("the number", self.number, NUMBER_MAX)?;
        check_number("the number of the parent", self.parent, NUMBER_MAX)?;
        check_len("the name of the table", &self.table, TEXT_LEN_MAX_BYTES)?;
        check_len("the time", &self.created, TEXT_LEN_MAX_BYTES)?;
        check_len("the name of the job", &self.job, TEXT_LEN_MAX_BYTES)?;
        check_len("the name of the tool", &self.tool, TEXT_LEN_MAX_BYTES)?;
        check_len("the name of the creator", &self.created_by, TEXT_LEN_MAX_BYTES)?;
        check_count("files", self.entries.len(), ENTRIES_MAX)?;
        check_count("columns", self.schema.len(), COLUMN_COUNT_MAX)?;
        self.schema.iter().try_for_each(|column| check_len("a column", column, COLUMN_LEN_MAX_BYTES))?;
        check_note_and_canaries(&self.note, &self.canaries)?;
        self.allowed.iter().try_for_each(|change| check_len("an allowed change", change, TEXT_LEN_MAX_BYTES))?;
        if self.slot_function != SLOT_FUNCTION {
            return Err(format!("the slot function is {:?}, expected {SLOT_FUNCTION:?}", self.slot_function));
        }
        check_coverage(self.entries.iter().map(|entry| entry.slots))?;
        for entry in &self.entries {
            entry.check()?;
            if entry.key_kind != self.key_kind || entry.schema != self.schema {
                return Err(format!("the file {} has other key kinds or columns than the first file", entry.object));
            }
        }
        Ok(())
    }

    /// Looks the canaries of the generation up in a table that has its rows of these slots.
    ///
    /// # Errors
    /// The problem with the first failed canary of these slots.
    pub fn check_canaries(&self, store: &MappedStore, slots: &SlotSet) -> Result<(), String> {
        let held = store.key_type();
        // A malformed key is not left out, so that the generation is rejected.
        let is_in_slots =
            |canary: &&Canary| canary.key_of(held).map_or(true, |key| slots.has(slot_of_typed(held, key.as_key())));
        let check = |canary: &Canary| canary.check(held, |key| store.get(key)).map_err(|error| error.to_string());
        self.canaries.iter().filter(is_in_slots).try_for_each(check)
    }

    pub(super) fn facts(&self) -> Facts {
        Facts { rows: self.rows(), key_kind: self.key_kind.clone(), schema: self.schema.clone() }
    }

    /// Returns the number of rows of all files.
    pub fn rows(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.rows))
    }

    /// Returns the length of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Returns the digest of the only file, or the XXH3-128 of the digests of several files, as 32 hexadecimal digits.
    pub fn digest(&self) -> String {
        match &self.entries[..] {
            [entry] => entry.digest.clone(),
            entries => {
                let digests: String = entries.iter().map(|entry| entry.digest.as_str()).collect();
                format!("{:032x}", twox_hash::XxHash3_128::oneshot(digests.as_bytes()))
            }
        }
    }
}

/// The maximum number of gaps and overlaps that an error names.
const PROBLEMS_MAX: usize = 4;

/// Checks that ranges cover every slot exactly once. The error states the first gaps and overlaps.
pub(super) fn check_coverage(ranges: impl Iterator<Item = SlotRange>) -> Result<(), String> {
    let mut ranges: Vec<SlotRange> = ranges.collect();
    if let Some(range) = ranges.iter().find(|range| !range.is_valid()) {
        return Err(format!("found the slots {range}, expected slots from 0 to {}", SLOT_COUNT - 1));
    }
    ranges.sort();
    let (mut problems, mut next_slot, mut before) = (Vec::new(), 0, None::<SlotRange>);
    for range in ranges {
        if range.first_slot > next_slot {
            problems.push(format!("no file has {}", name_of(next_slot, range.first_slot - 1)));
        }
        match before {
            Some(before) if before == range => problems.push(format!("several files have the slots {range}")),
            Some(before) if before.overlaps(range) => {
                let common = name_of(range.first_slot, range.last_slot.min(before.last_slot));
                problems.push(format!("several files have {common}: those with the slots {before} and {range}"));
            }
            _ => {}
        }
        before = [before, Some(range)].into_iter().flatten().max_by_key(|range| range.last_slot);
        next_slot = next_slot.max(range.last_slot + 1);
    }
    if next_slot < SLOT_COUNT {
        problems.push(format!("no file has {}", name_of(next_slot, SLOT_COUNT - 1)));
    }
    match problems.len() {
        0 => Ok(()),
        count => {
            problems.truncate(PROBLEMS_MAX);
            let more = count - problems.len();
            Err(problems.join("; ") + &if more > 0 { format!("; and {more} more") } else { String::new() })
        }
    }
}

/// Returns a name for one slot or several slots.
fn name_of(first_slot: u16, last_slot: u16) -> String {
    match first_slot == last_slot {
        true => format!("slot {first_slot}"),
        false => format!("the slots {first_slot}-{last_slot}"),
    }
}

pub(super) fn schema_names(schema: Option<&Schema>) -> Vec<String> {
    let columns = schema.map(Schema::columns).unwrap_or_default();
    columns.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Result<(), String> {
        check_coverage(text.split_whitespace().map(|range| range.parse().unwrap()))
    }

    const MANY_OVERLAPS: &str = "several files have slot 1: those with the slots 0-16383 and 1-1; several files have \
                                 slot 2: those with the slots 0-16383 and 2-2; several files have slot 3: those with \
                                 the slots 0-16383 and 3-3; several files have slot 4: those with the slots 0-16383 \
                                 and 4-4; and 1 more";

    #[test]
    fn ranges_must_cover_every_slot_exactly_once() {
        for complete in ["0-16383", "8192-16383 0-8191", "0-0 1-1 2-16383"] {
            assert_eq!(ranges(complete), Ok(()));
        }
        for (incomplete, problem) in [
            ("", "no file has the slots 0-16383"),
            ("1-16383", "no file has slot 0"),
            ("0-16382", "no file has slot 16383"),
            ("0-10 12-16383", "no file has slot 11"),
            (
                "0-10 12-99 200-16000",
                "no file has slot 11; no file has the slots 100-199; no file has the slots 16001-16383",
            ),
            ("0-10 10-16383", "several files have slot 10: those with the slots 0-10 and 10-16383"),
            ("0-16383 5-6", "several files have the slots 5-6: those with the slots 0-16383 and 5-6"),
            ("0-16383 0-16383", "several files have the slots 0-16383"),
            ("0-16383 1-1 2-2 3-3 4-4 5-5", MANY_OVERLAPS),
        ] {
            assert_eq!(ranges(incomplete), Err(problem.to_owned()), "{incomplete}");
        }
    }
}
