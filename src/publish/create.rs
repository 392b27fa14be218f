//! Creates documents, and confirms that the store has them.
//!
//! In: the bytes of a document. Out: whether the store has these bytes, or other ones, under the document's number. The
//! response to a request can be lost although the store has created the document, and a store that loses races reports
//! success to several creators. Therefore, a document is read back after each attempt, and compared. It has bytes that no
//! other creator has, or its creator does not matter.

use std::time::Duration;

use object_store::{PutMode, PutOptions};
use tokio::time::Instant;

use super::document::Series;
use super::error::{PublishError, StoreFault};
use super::location::Location;
use super::transfer::{back_off, random_below};

/// How often a creation is attempted until the store returns a document. The pauses between attempts double.
const ATTEMPTS_MAX: u32 = 5;
/// The time after which a creation is not attempted again. A request alone can take minutes if the store stalls.
const CREATION_MAX: Duration = Duration::from_secs(60);
/// The time after which a created document is read back. A creation that raced it, in a store that loses races, then has
/// reached the store, too.
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
            return Err(PublishError::Document { object: self.object_url(&object), problem });
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

/// Returns whether the store reports that the object exists. A request that was retried finds the object that it created
/// itself, and S3 reports a conflict if two requests create an object at the same time.
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
