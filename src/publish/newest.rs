//! Finds the newest document of a series whose numbers have gaps.
//!
//! In: a series. Out: its highest number. Numbers have no gaps unless somebody, or a lifecycle rule of the store, deletes
//! documents. Such a gap must not make a publisher use a number again, or a node miss later documents.

use std::time::Duration;

use futures_util::StreamExt;

use super::document::Series;
use super::error::PublishError;
use super::location::Location;

/// The maximum number of listed documents, and the maximum time of a listing.
const LISTED_MAX: usize = 1_000_000;
const LIST_MAX: Duration = Duration::from_secs(60);

impl Location {
    /// Returns the number of the newest document of a series, or 0 if there is none, even if preceding ones were deleted.
    /// `known` is a number that exists or existed, or 0. In a store that can be listed, lists only later documents than
    /// those that a search finds.
    pub(super) async fn newest_beyond_gaps(&self, series: Series, known: u64) -> Result<u64, PublishError> {
        let newest = self.newest(series, known).await?;
        if !self.is_writable {
            return Ok(newest);
        }
        let first = series.object(newest);
        let folder = first.split('/').next().unwrap_or_default();
        let (prefix, offset) = (self.path(folder), self.path(&first));
        let mut objects = self.store.list_with_offset(Some(&prefix), &offset).take(LISTED_MAX);
        let list = async {
            let mut highest = newest;
            while let Some(object) = objects.next().await {
                let location = object.map_err(self.fault(folder))?.location;
                let number = location.filename().and_then(|name| name.strip_suffix(".json")?.parse().ok());
                // Other programs may have put other objects there.
                let number = number.filter(|number| location == self.path(&series.object(*number)));
                highest = highest.max(number.unwrap_or(0));
            }
            Ok::<u64, PublishError>(highest)
        };
        match tokio::time::timeout(LIST_MAX, list).await {
            Ok(Ok(highest)) => Ok(highest),
            // Without the permission to list, or without an end of the listing, gaps stay unnoticed.
            Ok(Err(_)) | Err(_) => Ok(newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_after_a_gap_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::parse(&format!("file://{}", folder.path().display())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let newest = |known| runtime.block_on(location.newest_beyond_gaps(Series::Pins, known)).unwrap();
        assert_eq!(newest(0), 0);
        for number in 1..=9 {
            assert!(runtime.block_on(location.create_bytes(&Series::Pins.object(number), b"1")).unwrap());
        }
        for deleted in 1..=8 {
            std::fs::remove_file(folder.path().join(Series::Pins.object(deleted))).unwrap();
            std::fs::write(folder.path().join("pins/notes.json"), "").unwrap();
            assert_eq!((newest(0), newest(deleted), newest(9)), (9, 9, 9), "{deleted}");
        }
    }
}
