//! Other processes that report under the name of a node.
//!
//! In: the status in the store, before each report of a node. Out: the instance of another process that reports under the
//! name, as long as it does. Each process has a random instance, which its reports state. After the first report of a
//! process, only another running process can replace it, so a restart is not taken for a second process.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::error::PublishError;
use super::location::Location;
use super::status::NodeStatus;
use super::transfer::random_bytes;
use crate::sync::unpoisoned;

/// How long another process is reported after its last report was found. A process reports at least once per minute.
const REMEMBERED_MAX: Duration = Duration::from_secs(180);

/// The instance of a process, and what it has found of others.
pub(super) struct Namesakes {
    instance: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a report of this process has reached the store.
    has_reported: bool,
    /// The instance of another process, and when its report was found.
    found: Option<(String, Instant)>,
}

impl Namesakes {
    pub(super) fn new() -> Namesakes {
        let instance = format!("{:016x}", u64::from_le_bytes(random_bytes()));
        Namesakes { instance, state: Mutex::default() }
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the instance of another process that reports under the name, or an empty text.
    pub(super) fn other(&self) -> String {
        self.other_at(Instant::now())
    }

    fn other_at(&self, now: Instant) -> String {
        let state = unpoisoned(&self.state);
        let found = state.found.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) < REMEMBERED_MAX);
        found.map(|(instance, _)| instance.clone()).unwrap_or_default()
    }

    /// Writes a status, after a look at the one that it replaces.
    pub(super) async fn report(&self, location: &Location, mut status: NodeStatus) -> Result<(), PublishError> {
        // What cannot be read now is read before the next report.
        if let Ok(Some(found)) = NodeStatus::read(location, &status.node).await {
            self.found(&found.instance, Instant::now());
        }
        (status.instance, status.other_instance) = (self.instance.clone(), self.other());
        status.write(location).await?;
        unpoisoned(&self.state).has_reported = true;
        Ok(())
    }

    /// Records the instance of the status in the store, which is empty if an earlier version wrote it.
    fn found(&self, instance: &str, now: Instant) {
        let mut state = unpoisoned(&self.state);
        if state.has_reported && !instance.is_empty() && instance != self.instance {
            state.found = Some((instance.to_owned(), now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_reported_only_while_it_reports() {
        let (namesakes, start) = (Namesakes::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // The process that ran before.
        namesakes.found("before", at(0));
        assert_eq!(namesakes.other_at(at(0)), "");
        unpoisoned(&namesakes.state).has_reported = true;
        for own in [namesakes.instance().to_owned(), String::new()] {
            namesakes.found(&own, at(1));
            assert_eq!(namesakes.other_at(at(1)), "");
        }
        namesakes.found("other", at(60));
        namesakes.found(namesakes.instance(), at(61));
        assert_eq!((namesakes.other_at(at(60)), namesakes.other_at(at(239))), ("other".into(), "other".into()));
        assert_eq!(namesakes.other_at(at(240)), "");
        assert_ne!(Namesakes::new().instance(), namesakes.instance());
    }
}
