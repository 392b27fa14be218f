//! Policies: the quotas of a table.
//!
//! In: quotas of an operator. Out: a series of documents. The newest document applies. Publishers reject a generation that
//! exceeds a quota, so that a job with too many rows does not fill the disks of all nodes.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::create::pause_after_race;
use super::document::{Series, decode, encode};
use super::error::PublishError;
use super::limits::{NUMBER_MAX, TEXT_LEN_MAX_BYTES, check_len, check_number};
use super::location::Location;
use super::publication::Publication;

/// How often the creation of a policy is repeated when another operator was first.
const CREATIONS_MAX: u32 = 100;

/// The quotas of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Policy {
    /// The number of the policy. It is set when the policy is created.
    #[serde(default)]
    pub number: u64,
    /// The maximum length of all files of a generation, in bytes. `None` for no limit.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// The maximum number of rows of a generation. `None` for no limit.
    #[serde(default)]
    pub max_rows: Option<u64>,
    /// When the policy was created, as RFC 3339 text.
    pub created: String,
}

impl Policy {
    /// Checks a generation. Returns the quota that it exceeds as the error.
    fn check(&self, rows: u64, bytes: u64) -> Result<(), String> {
        for (name, found, max) in [("rows", rows, self.max_rows), ("bytes", bytes, self.max_bytes)] {
            if let Some(max) = max.filter(|max| found > *max) {
                return Err(format!("it has {found} {name}, expected at most {max}"));
            }
        }
        Ok(())
    }

    async fn read(location: &Location, number: u64) -> Result<Option<Policy>, PublishError> {
        let decode = |json: &[u8]| {
            let policy: Policy = decode(json)?;
            check_number("the number", policy.number, NUMBER_MAX)?;
            check_len("the time", &policy.created, TEXT_LEN_MAX_BYTES)?;
            match policy.number == number {
                true => Ok(policy),
                false => Err(format!("is policy {}, expected {number}: create another policy", policy.number)),
            }
        };
        location.read_document(Series::Policies, number, decode).await
    }

    async fn newest(location: &Location) -> Result<Option<Policy>, PublishError> {
        match location.highest(Series::Policies, 0).await? {
            0 => Ok(None),
            number => Policy::read(location, number).await,
        }
    }
}

impl Publication {
    /// Returns the newest policy, or `None` if there is none.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn policy(&self) -> Result<Option<Policy>, PublishError> {
        self.block_on(Policy::newest)
    }

    /// Creates a policy with quotas. Returns it with its number.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn create_policy(&self, max_bytes: Option<u64>, max_rows: Option<u64>) -> Result<Policy, PublishError> {
        let created = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut policy = Policy { number: 0, max_bytes, max_rows, created };
        self.block_on(async |location| {
            location.check_writable()?;
            for attempt in 0..CREATIONS_MAX {
                policy.number = location.highest(Series::Policies, policy.number).await? + 1;
                if location.create_document(Series::Policies, policy.number, &encode(&policy)).await? {
                    return Ok(());
                }
                // Another operator was first.
                pause_after_race(attempt).await;
            }
            let problem = format!("{CREATIONS_MAX} other operators were first: create the policy again");
            Err(PublishError::Document { object: location.object_url("policies"), problem })
        })?;
        Ok(policy)
    }

    /// Checks a new generation against the newest policy.
    pub(super) async fn check_policy(&self, rows: u64, bytes: u64) -> Result<(), PublishError> {
        let Some(policy) = Policy::newest(&self.location).await? else { return Ok(()) };
        let number = policy.number;
        policy.check(rows, bytes).map_err(|problem| PublishError::Quota { url: self.url().to_owned(), number, problem })
    }
}
