//! Documents: the small JSON objects of a published table.
//!
//! In: a value. Out: JSON with a checksum, and back. The documents of a series are numbered from 1 without gaps, and
//! each is created only once, so a reader finds the newest one without listing the store, and a publisher that creates
//! a number has won it.
//!
//! The response to a request can be lost although the store has created the document, and a store that loses races
//! reports success to several creators. Therefore, a document is read back after each attempt to create it, and
//! compared. It has bytes that no other creator has, or its creator does not matter.

use std::time::Duration;

use futures_util::StreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::{GetOptions, ObjectMeta, ObjectStoreExt, PutMode, PutOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use twox_hash::XxHash3_128;

use super::bounded_http::{BodyLimit, is_body_beyond_limit};
use super::error::{PublishError, StoreFault};
use super::limits::{
    DECISION_LEN_MAX_BYTES, MANIFEST_LEN_MAX_BYTES, NUMBER_MAX, PIN_LEN_MAX_BYTES, POLICY_LEN_MAX_BYTES,
    TOPOLOGY_LEN_MAX_BYTES,
};
use super::location::Location;
use super::transfer::{back_off, random_below};

/// The maximum time of a listing. A store can return empty pages without end.
const LIST_MAX: Duration = Duration::from_secs(600);
/// The maximum length of the token with which a listing continues. It is a part of the URL of the next request.
const PAGE_TOKEN_LEN_MAX_BYTES: usize = 8192;
/// A search for the newest document that has come so far first checks that the store does not report every object.
const PROBE_STEP: u64 = 16;

/// A sequence of numbered documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// Manifests: the files of each generation.
    Manifests,
    /// Pins: which generation nodes serve.
    Pins,
    /// Decisions about the pin with the same number. This series has gaps.
    Decisions,
    /// Topologies: which nodes of a cluster serve which slots.
    Topologies,
    /// Policies: the quotas of the table.
    Policies,
}

impl Series {
    pub(super) fn object(self, number: u64) -> String {
        let folder = match self {
            Series::Manifests => "manifests",
            Series::Pins => "pins",
            Series::Decisions => "decisions",
            Series::Topologies => "topology",
            Series::Policies => "policies",
        };
        format!("{folder}/{number:020}.json")
    }

    /// Returns the maximum length of a document. A longer one is neither created nor read.
    pub(super) fn len_max_bytes(self) -> u64 {
        match self {
            Series::Manifests => MANIFEST_LEN_MAX_BYTES,
            Series::Pins => PIN_LEN_MAX_BYTES,
            Series::Decisions => DECISION_LEN_MAX_BYTES,
            Series::Topologies => TOPOLOGY_LEN_MAX_BYTES,
            Series::Policies => POLICY_LEN_MAX_BYTES,
        }
    }
}

/// The JSON of a document, with the checksum of its body's text.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
    xxh3_128: String,
}

pub(super) fn encode(body: &impl Serialize) -> Vec<u8> {
    let body = serde_json::value::to_raw_value(body).expect("documents have only keys that are strings");
    let xxh3_128 = checksum(&body);
    let mut json = serde_json::to_vec(&Sealed { body: &body, xxh3_128 }).expect("a raw value is valid JSON");
    json.push(b'\n');
    json
}

/// The remedy for an unreadable document.
const REMEDY: &str = "create a newer one, which replaces it";

/// Decodes a document. The error states the problem.
pub(super) fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    let sealed: Sealed =
        serde_json::from_slice(json).map_err(|error| format!("is not a document: {error}: {REMEDY}"))?;
    let expected = checksum(sealed.body);
    if sealed.xxh3_128 != expected {
        return Err(format!("is damaged: its checksum is {:?}, expected {expected:?}: {REMEDY}", sealed.xxh3_128));
    }
    serde_json::from_str(sealed.body.get()).map_err(|error| format!("is malformed: {error}"))
}

fn checksum(body: &RawValue) -> String {
    format!("{:032x}", XxHash3_128::oneshot(body.get().as_bytes()))
}

impl Location {
    /// Reads a document of a series. Returns `None` if there is none. The error of `decode` is the problem.
    pub(super) async fn read_document<T>(
        &self,
        series: Series,
        number: u64,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, PublishError> {
        let object = series.object(number);
        let Some(json) = self.read_bytes(&object, series.len_max_bytes()).await? else { return Ok(None) };
        decode(&json).map(Some).map_err(|problem| self.document_fault(&object, problem))
    }

    /// Reads an object of limited length. Returns `None` if there is none.
    pub(super) async fn read_bytes(&self, object: &str, len_max_bytes: u64) -> Result<Option<Vec<u8>>, PublishError> {
        let fault = self.fault(object);
        let too_long = |found: &str| {
            let problem =
                format!("has {found} bytes, expected at most {len_max_bytes}: delete it, or create another one");
            self.document_fault(object, problem)
        };
        let mut options = GetOptions::default();
        options.extensions.insert(BodyLimit(len_max_bytes));
        let result = match self.store.get_opts(&self.path(object), options).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) if is_body_beyond_limit(&error) => return Err(too_long("more")),
            result => result.map_err(&fault)?,
        };
        if result.meta.size > len_max_bytes {
            return Err(too_long(&result.meta.size.to_string()));
        }
        Ok(Some(result.bytes().await.map_err(fault)?.to_vec()))
    }

    pub(super) async fn overwrite_bytes(&self, object: &str, bytes: Vec<u8>) -> Result<(), PublishError> {
        let put = self.store.put_opts(&self.path(object), bytes.into(), PutOptions::default()).await;
        put.map(drop).map_err(self.fault(object))
    }

    /// Returns the length of an object in bytes, or `None` if there is none.
    pub(super) async fn len_bytes(&self, object: &str) -> Result<Option<u64>, PublishError> {
        match self.store.head(&self.path(object)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.fault(object)(error)),
        }
    }

    /// Lists the objects in a folder of the table, at most `count_max` of them. With `after`, lists only those whose
    /// names follow the name of this object.
    ///
    /// # Errors
    /// [`PublishError::Document`] if there are more, or if the listing does not end in time.
    pub(super) async fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<ObjectMeta>, PublishError> {
        let list = async {
            match &self.pages {
                Some(pages) => self.list_pages(&**pages, folder, after, count_max).await,
                None => self.list_stream(folder, after, count_max).await,
            }
        };
        let timed_out = |_| {
            let max_s = LIST_MAX.as_secs();
            let problem = format!("the listing did not end within {max_s} s: check what answers at this address");
            self.document_fault(folder, problem)
        };
        tokio::time::timeout(LIST_MAX, list).await.map_err(timed_out)?
    }

    /// Lists page by page, because the crate panics if the token of the next page does not fit into a URL.
    async fn list_pages(
        &self,
        pages: &dyn PaginatedListStore,
        folder: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<ObjectMeta>, PublishError> {
        // Otherwise, the objects of a folder whose name begins with this name would be listed, too.
        let prefix = format!("{}/", self.path(folder));
        let (mut listed, mut page_token) = (Vec::new(), None);
        loop {
            let offset = after.map(|after| self.path(after).to_string());
            let options = PaginatedListOptions { offset, page_token: page_token.clone(), ..Default::default() };
            let page = pages.list_paginated(Some(&prefix), options).await.map_err(self.fault(folder))?;
            listed.extend(page.result.objects);
            if listed.len() > count_max {
                return Err(self.too_many(folder, count_max));
            }
            let Some(token) = page.page_token.filter(|token| !token.is_empty()) else { return Ok(listed) };
            if token.len() > PAGE_TOKEN_LEN_MAX_BYTES || page_token.as_ref() == Some(&token) {
                let problem = format!(
                    "the listing continues with a token of {} bytes, expected a new one of at most \
                     {PAGE_TOKEN_LEN_MAX_BYTES}: check what answers at this address",
                    token.len()
                );
                return Err(self.document_fault(folder, problem));
            }
            page_token = Some(token);
        }
    }

    async fn list_stream(
        &self,
        folder: &str,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<Vec<ObjectMeta>, PublishError> {
        let (prefix, mut listed) = (self.path(folder), Vec::new());
        let mut objects = match after {
            Some(after) => self.store.list_with_offset(Some(&prefix), &self.path(after)),
            None => self.store.list(Some(&prefix)),
        };
        while let Some(object) = objects.next().await {
            if listed.len() == count_max {
                return Err(self.too_many(folder, count_max));
            }
            listed.push(object.map_err(self.fault(folder))?);
        }
        Ok(listed)
    }

    fn too_many(&self, folder: &str, count_max: usize) -> PublishError {
        self.document_fault(folder, format!("has more than {count_max} objects: delete those that nobody needs"))
    }

    async fn exists(&self, object: &str) -> Result<bool, PublishError> {
        Ok(self.len_bytes(object).await?.is_some())
    }

    /// Returns the number of the newest document of a series, or 0 if there is none. `known` is a number that exists,
    /// or 0. Lists nothing: it doubles the distance from `known` until a number is missing, and then bisects. Sends at
    /// most two requests per bit of a number.
    pub(super) async fn newest(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let (mut present, mut step) = (known, 1);
        let mut missing = loop {
            let number = present.saturating_add(step);
            if number > NUMBER_MAX {
                let problem = format!(
                    "the store reports that document {present} exists, and numbers have no gaps: check what answers at \
                     this address"
                );
                return Err(self.document_fault(&series.object(present), problem));
            }
            if !self.exists(&series.object(number)).await? {
                break number;
            }
            if step == PROBE_STEP {
                self.check_absence(series).await?;
            }
            (present, step) = (number, step * 2);
        };
        while missing - present > 1 {
            let middle = present + (missing - present) / 2;
            match self.exists(&series.object(middle)).await? {
                true => present = middle,
                false => missing = middle,
            }
        }
        Ok(present)
    }

    /// Rejects a server that reports that every object exists, for example one that answers with a page for any path.
    async fn check_absence(&self, series: Series) -> Result<(), PublishError> {
        // Numbers begin at 1.
        let object = series.object(0);
        if !self.exists(&object).await? {
            return Ok(());
        }
        let problem =
            format!("the store reports that {object} exists, which nobody creates: check what answers at this address");
        Err(self.document_fault(&object, problem))
    }
}

/// How often a creation is attempted until the store returns a document. The pauses between attempts double.
const ATTEMPTS_MAX: u32 = 5;
/// The time after which a creation is not attempted again. A request alone can take minutes if the store stalls.
const CREATION_MAX: Duration = Duration::from_secs(60);
/// The time after which a created document is read back. A creation that raced it, in a store that loses races, then
/// has reached the store, too.
const READ_BACK_AFTER: Duration = Duration::from_millis(100);
/// The maximum pause after another creator was first.
const PAUSE_MAX_MS: u64 = 2000;

impl Location {
    /// Creates a document of a series, and reads it back. Returns false if another document has the number.
    ///
    /// # Errors
    /// [`PublishError::Unconfirmed`] if the document may exist, but the store does not return it.
    pub(super) async fn create_document(&self, series: Series, number: u64, json: &[u8]) -> Result<bool, PublishError> {
        let (object, len_max_bytes) = (series.object(number), series.len_max_bytes());
        if json.len() as u64 > len_max_bytes {
            let problem = format!("would have {} bytes, expected at most {len_max_bytes}", json.len());
            return Err(self.document_fault(&object, problem));
        }
        let (started, mut attempt) = (Instant::now(), 0);
        loop {
            let sent = self.create_once(&object, json).await;
            match &sent {
                Err(error) if is_rejected(error) || (self.is_local() && !is_taken(error)) => {
                    return Err(self.fault(&object)(sent.expect_err("it is an error")));
                }
                // A folder loses no race.
                Ok(()) if !self.is_local() => tokio::time::sleep(READ_BACK_AFTER).await,
                _ => {}
            }
            let problem = match self.read_bytes(&object, json.len() as u64).await {
                Ok(Some(found)) => return Ok(found == json),
                // A longer document is another one.
                Err(PublishError::Document { .. }) => return Ok(false),
                Ok(None) => match sent {
                    Err(error) if !is_taken(&error) => self.fault(&object)(error),
                    _ => self.unconfirmed(
                        &object,
                        "the store accepted it, but does not return it: check whether a cache answers",
                    ),
                },
                Err(error) => self.unconfirmed(&object, &error.to_string()),
            };
            attempt += 1;
            if attempt == ATTEMPTS_MAX || started.elapsed() > CREATION_MAX {
                return Err(problem);
            }
            back_off(attempt).await;
        }
    }

    /// Requests the creation of an object, and does not read it back.
    pub(super) async fn create_once(&self, object: &str, bytes: &[u8]) -> object_store::Result<()> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.store.put_opts(&self.path(object), bytes.to_vec().into(), options).await.map(drop)
    }

    fn unconfirmed(&self, object: &str, problem: &str) -> PublishError {
        PublishError::Unconfirmed { object: self.object_url(object), problem: problem.to_owned() }
    }
}

/// Returns whether the store reports that the object exists. A retried request finds the object that it created itself,
/// and S3 reports a conflict if two requests create an object at the same time.
pub(super) fn is_taken(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
}

/// Returns whether the store has certainly not created the object.
fn is_rejected(error: &object_store::Error) -> bool {
    use object_store::Error;

    let is_refused = matches!(error, Error::NotSupported { .. } | Error::NotImplemented { .. });
    is_refused
        || matches!(StoreFault::new(error), StoreFault::NotFound | StoreFault::NoBucket | StoreFault::Credentials(_))
}

/// Waits after another creator was first, longer after each attempt.
pub(super) async fn pause_after_race(attempt: u32) {
    let max_ms = PAUSE_MAX_MS.min(25 << attempt.min(10));
    tokio::time::sleep(Duration::from_millis(random_below(max_ms))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Body {
        text: String,
        number: u64,
    }

    #[test]
    fn a_document_with_any_changed_byte_is_rejected_or_equal() {
        let body = Body { text: "a \"quoted\" note".to_owned(), number: u64::MAX };
        let json = encode(&body);
        assert_eq!(decode::<Body>(&json).unwrap(), body);
        for at in 0..json.len() {
            for changed in [json[at] ^ 1, json[at] ^ 0x80, b' '] {
                let mut damaged = json.clone();
                damaged[at] = changed;
                if let Ok(decoded) = decode::<Body>(&damaged) {
                    assert_eq!(decoded, body, "byte {at}");
                }
            }
            assert!(at >= json.len() - 1 || decode::<Body>(&json[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn the_newest_number_is_found_from_any_known_number() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::parse(&format!("file://{}", folder.path().display())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for newest in 1..=40 {
            assert!(runtime.block_on(location.create_document(Series::Pins, newest, b"1")).unwrap());
            for known in 0..=newest {
                assert_eq!(runtime.block_on(location.newest(Series::Pins, known)).unwrap(), newest);
            }
        }
        assert_eq!(runtime.block_on(location.newest(Series::Manifests, 0)).unwrap(), 0);
        assert!(!runtime.block_on(location.create_document(Series::Pins, 1, b"2")).unwrap());
        assert!(runtime.block_on(location.create_document(Series::Pins, 1, b"1")).unwrap());
    }
}
