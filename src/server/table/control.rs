//! Requests to a running server, and the published table that it follows.
//!
//! In: requests for reloads and rollbacks, from clients and other threads. Out: messages to the supervisor, or requests
//! to the published table. The code that fetches generations is in `zero_kv::publish`, and the program `kv_store`
//! connects the two, so the server needs no object store.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::replace::ReplaceRules;
use crate::server::stats::Statistics;

pub(super) enum Message {
    /// Check whether there is a new file at the path.
    CheckPath,
    /// Check whether the served file was changed in place.
    Changed,
    /// Serve the file at the path, even if it was rejected before. Contains the number of the attempt.
    Reload(u64),
    /// Serve the previous generation. Contains the number of the attempt.
    Rollback(u64),
    /// Serve the file at the path by these rules, and send the outcome.
    Serve {
        rules: ReplaceRules,
        outcome: Sender<Result<String, String>>,
    },
    /// Publish the outcome of an attempt that was made elsewhere.
    Attempted {
        number: u64,
        outcome: Result<String, String>,
    },
    Stop,
}

/// A handle that requests reloads and rollbacks from a running server. Clones may be sent to other threads.
#[derive(Clone)]
pub struct Control {
    pub(super) sender: Sender<Message>,
    statistics: Arc<Statistics>,
    /// Announces each requested reload to the parts of the server that read other files, for example the users file.
    reloads: watch::Sender<()>,
    /// The published table that the server follows, if there is one.
    published: Arc<OnceLock<Arc<dyn PublishedTable>>>,
}

impl Control {
    /// Requests a reload: the server opens, checks, and serves the file at its path, and reads the users file again.
    /// Returns the number of this attempt without waiting for its end. The response to an Info request reports the
    /// outcome. If the server follows a published table, looks for a new generation of the table instead.
    pub fn reload(&self) -> u64 {
        self.reloads.send_replace(());
        match self.published.get() {
            Some(published) => {
                let number = self.next_attempt();
                published.request(number);
                number
            }
            None => self.request(Message::Reload),
        }
    }

    /// Serves the file at the server's path, if these rules allow it, and waits until it is served or rejected. Returns
    /// a description of the outcome.
    ///
    /// # Errors
    /// The reason why the file is not served.
    pub fn serve_file(&self, rules: ReplaceRules) -> Result<String, String> {
        let (outcome, received) = channel();
        let _ = self.sender.send(Message::Serve { rules, outcome });
        received.recv().unwrap_or_else(|_| Err("the server stops".to_owned()))
    }

    /// Ends a reload that was passed to a [`PublishedTable`], and publishes its outcome.
    pub fn end_reload(&self, attempt: u64, outcome: Result<String, String>) {
        let _ = self.sender.send(Message::Attempted { number: attempt, outcome });
    }

    /// Requests a rollback: the server checks and serves the previous generation again. Returns the number of this
    /// attempt without waiting for its end. The response to an Info request reports the outcome.
    /// The table that the rollback replaces is refused until the server serves another one from its path. A server that
    /// follows a published table refuses rollbacks, because a pin returns to an older generation.
    pub fn rollback(&self) -> u64 {
        let Some(published) = self.published.get() else { return self.request(Message::Rollback) };
        let (url, number) = (published.facts().url, self.next_attempt());
        let outcome = format!(
            "refused: this server follows {url}, and a rollback would affect only this node: `zkv pin {url} NUMBER` \
             returns all nodes to generation NUMBER"
        );
        // The result is `Ok`, so that this case is not counted as a rejected file.
        self.end_reload(number, Ok(outcome));
        number
    }

    fn next_attempt(&self) -> u64 {
        1 + self.statistics.totals.reload_requested.fetch_add(1, Ordering::Relaxed)
    }

    fn request(&self, message: impl FnOnce(u64) -> Message) -> u64 {
        let number = self.next_attempt();
        // Fails only if the server has ended.
        let _ = self.sender.send(message(number));
        number
    }

    /// Makes requested reloads look for new generations of a published table.
    pub(in crate::server) fn follow(&self, table: Arc<dyn PublishedTable>) {
        // Only the first table can be followed.
        let _ = self.published.set(table);
    }

    /// Returns what the server reports about the published table that it follows, or `None` if it follows none.
    pub(in crate::server) fn published_facts(&self) -> Option<PublishedFacts> {
        self.published.get().map(|published| published.facts())
    }

    /// Reports that lookups found damaged blocks in the served file. Returns whether the server follows a published
    /// table, which is then fetched again.
    pub(super) fn has_damaged_blocks(&self) -> bool {
        let published = self.published.get();
        published.inspect(|published| published.damaged()).is_some()
    }

    /// Returns a receiver that is notified of each requested reload.
    pub(in crate::server) fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    /// Reports to the supervisor that the served file was changed in place.
    #[cold]
    pub(in crate::server) fn file_has_changed(&self) {
        let _ = self.sender.send(Message::Changed);
    }
}

/// Both ends of the channel to the supervisor. The supervisor takes the receiver when it starts.
pub(in crate::server) struct ControlChannel {
    pub(in crate::server) control: Control,
    pub(super) receiver: Receiver<Message>,
}

impl ControlChannel {
    /// Opens a channel. `statistics` counts the requested reloads and rollbacks.
    pub(in crate::server) fn new(statistics: Arc<Statistics>) -> ControlChannel {
        let (sender, receiver) = channel();
        ControlChannel {
            control: Control { sender, statistics, reloads: watch::Sender::new(()), published: Arc::default() },
            receiver,
        }
    }
}

/// A published table that a server follows: see [`Server::follow`](crate::server::Server::follow).
pub trait PublishedTable: Send + Sync {
    /// Looks for a new generation now, without waiting. `attempt` is the number of the requested reload. When the
    /// generation is served or rejected, [`Control::end_reload`](crate::server::Control::end_reload) must be called
    /// with this number.
    fn request(&self, attempt: u64);

    /// Fetches the file that is served again, because lookups found damaged blocks in it.
    fn damaged(&self);

    /// Returns what the server reports about the table.
    fn facts(&self) -> PublishedFacts;
}

/// What a server reports about the published table that it follows.
#[derive(Clone, Debug, Default)]
pub struct PublishedFacts {
    /// The table's URL.
    pub url: String,
    /// The name of this node.
    pub node: String,
    /// The slots that this node serves, such as `0-16383`.
    pub slots: String,
    /// The number of the served generation, as its manifest states it.
    pub serving: u64,
    /// The number of the generation that is fetched and verified but not served, or 0.
    pub prepared: u64,
    /// The number of the newest generation.
    pub newest: u64,
    /// The number of the newest pin, or 0.
    pub pin: u64,
    /// The age of the generation that should be served, in seconds, or 0 if it is served.
    pub lag_s: u64,
    /// The number of seconds since the store was last read successfully, or since the server started.
    pub poll_age_s: u64,
    /// The number of seconds since the served generation was published, or 0 if none is served.
    pub serving_age_s: u64,
    /// The mean time between two polls, in seconds.
    pub poll_s: f64,
    /// The number of times that the store was read.
    pub polls: u64,
    /// The number of bytes that were fetched.
    pub fetched_bytes: u64,
    /// The number of bytes of the download in progress that are complete, and the length of its file. Zeros if there is
    /// none.
    pub fetching_bytes: (u64, u64),
    /// The number of failures of each kind.
    pub failures: Vec<(&'static str, u64)>,
    /// What is wrong if another process reports under the name of this node. Empty if none does.
    pub name_problem: String,
    /// Why the generation that should be served is not served. Empty if it is served, or if it is being fetched.
    pub error: String,
}
