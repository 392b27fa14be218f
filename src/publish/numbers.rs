//! The numbers of documents that were deleted.
//!
//! In: a series, and the objects that name its numbers. Out: the highest number that was ever used. Documents are never
//! deleted by these programs, but lifecycle rules of buckets and people delete them. A number that was used must not be
//! used again: nodes that know it would take the new document for the old one.

use std::time::Duration;

use tokio::time::timeout;

use super::document::Series;
use super::error::{PublishError, StoreFault};
use super::limits::{NUMBER_MAX, NUMBERS_MAX};
use super::location::Location;
use super::pin::Pin;
use super::status::NodeStatus;

/// The maximum distance from the highest document to a number that only another object names. Whoever can write a status
/// could otherwise use up all numbers.
const DISTANCE_MAX: u64 = 1 << 20;

/// The maximum time of a listing during a poll.
const LIST_MAX: Duration = Duration::from_secs(60);

impl Location {
    /// Returns the highest number of a series, even if preceding documents were deleted. Returns 0 if there is none.
    /// `known` is a number that exists, or 0. A store that cannot be listed has no gaps.
    pub(super) async fn highest(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let newest = self.newest(series, known).await?;
        Ok(self.numbers_after(series, newest).await?.last().copied().unwrap_or(newest))
    }

    /// Does what [`Location::highest`] does. If the store cannot be listed, for example without the permission, gaps stay
    /// unnoticed.
    pub(super) async fn highest_if_listed(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let newest = self.newest(series, known).await?;
        match timeout(LIST_MAX, self.numbers_after(series, newest)).await {
            Ok(Ok(numbers)) => Ok(numbers.last().copied().unwrap_or(newest)),
            Ok(Err(_)) | Err(_) => Ok(newest),
        }
    }

    /// Returns the numbers of a series that are higher than a number, in ascending order. Returns none if the store cannot
    /// be listed.
    pub(super) async fn numbers_after(&self, series: Series, number: u64) -> Result<Vec<u64>, PublishError> {
        if !self.is_writable {
            return Ok(Vec::new());
        }
        let after = series.object(number);
        let folder = after.split('/').next().unwrap_or_default();
        let listed = self.list(folder, Some(&after), NUMBERS_MAX).await?;
        let number_of = |location: &object_store::path::Path| {
            let number = location.filename()?.strip_suffix(".json")?.parse().ok()?;
            // Other programs may have put other objects there.
            (number <= NUMBER_MAX && *location == self.path(&series.object(number))).then_some(number)
        };
        let mut numbers: Vec<u64> = listed.iter().filter_map(|object| number_of(&object.location)).collect();
        numbers.retain(|found| *found > number);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the highest number of a series that was ever used, as far as the store shows it: by documents, and by the
    /// pins, decisions, and statuses that name numbers of the series. Passes a message to `warn` if documents were deleted.
    pub(super) async fn last_used(&self, series: Series, warn: &mut dyn FnMut(String)) -> Result<u64, PublishError> {
        let newest = self.newest(series, 0).await?;
        let highest = self.numbers_after(series, newest).await?.last().copied().unwrap_or(newest);
        let mut last = highest;
        for (object, number) in self.named(series, warn).await? {
            if number > highest.saturating_add(DISTANCE_MAX) {
                warn(format!(
                    "{} names {number}, which is ignored: the highest number is {highest}",
                    self.object_url(&object)
                ));
            } else {
                last = last.max(number);
            }
        }
        // Another publisher may have created it meanwhile.
        if last > newest && self.len_bytes(&series.object(newest + 1)).await?.is_none() {
            let (deleted, next) = (self.object_url(&series.object(newest + 1)), last + 1);
            warn(format!(
                "{deleted} was deleted, but later numbers were used: the next number is {next}: check the lifecycle rules of \
                 the bucket"
            ));
        }
        Ok(last)
    }

    /// Returns the objects that name numbers of a series, and these numbers.
    async fn named(&self, series: Series, warn: &mut dyn FnMut(String)) -> Result<Vec<(String, u64)>, PublishError> {
        let number = |status: &NodeStatus| match series {
            Series::Manifests => status.serving.max(status.prepared).max(status.newest),
            Series::Pins => status.pin,
            Series::Topologies => status.topology,
            Series::Decisions | Series::Policies => 0,
        };
        // Whoever can write statuses must not keep publishers from publishing.
        let statuses = permitted(NodeStatus::read_all(self, warn).await).unwrap_or_else(|error| {
            warn(format!("{error}: numbers that only nodes know are not considered"));
            Vec::new()
        });
        let mut named: Vec<_> =
            statuses.iter().map(|status| (format!("status/{}.json", status.node), number(status))).collect();
        if series == Series::Pins {
            let decided = permitted(self.numbers_after(Series::Decisions, 0).await)?;
            named.extend(decided.last().map(|number| (Series::Decisions.object(*number), *number)));
        }
        if series == Series::Manifests {
            let pin = permitted(self.highest(Series::Pins, 0).await)?;
            // A pin that cannot be read names nothing.
            let pinned = Pin::read(self, pin).await.ok().flatten();
            let generations = pinned.iter().flat_map(|pin| [pin.generation, pin.others]).flatten();
            named.extend(generations.map(|number| (Series::Pins.object(pin), number)));
        }
        Ok(named)
    }
}

/// Returns nothing if a publisher may not read what other roles write.
fn permitted<T: Default>(found: Result<T, PublishError>) -> Result<T, PublishError> {
    match found {
        Err(PublishError::Store { cause: StoreFault::Credentials(_), .. }) => Ok(T::default()),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_after_gaps_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::parse(&format!("file://{}", folder.path().display())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let highest = |known| runtime.block_on(location.highest(Series::Pins, known)).unwrap();
        assert_eq!(highest(0), 0);
        for number in 1..=9 {
            assert!(runtime.block_on(location.create_document(Series::Pins, number, b"1")).unwrap());
        }
        for other in ["notes.json", "00000000000000000010.json.tmp", "99999999999999999999.json", "11.json"] {
            std::fs::write(folder.path().join("pins").join(other), "").unwrap();
        }
        for deleted in 1..=8 {
            std::fs::remove_file(folder.path().join(Series::Pins.object(deleted))).unwrap();
            assert_eq!((highest(0), highest(deleted), highest(9)), (9, 9, 9), "{deleted}");
        }
        std::fs::remove_file(folder.path().join(Series::Pins.object(9))).unwrap();
        assert_eq!(highest(0), 0);
    }
}
