//! A published table that a server follows: what the server needs from it, and what the server reports about it.
//!
//! In: requests to look for a new generation. Out: facts for Info and the metrics. The code that fetches generations is
//! in `zero_kv::publish`, and the program `kv_store` connects the two, so this module needs no object store.

/// A published table that a server follows: see [`Server::follow`](crate::server::Server::follow).
pub trait PublishedTable: Send + Sync {
    /// Looks for a new generation now, without waiting. `attempt` is the number of the requested reload. When the
    /// generation is served or rejected, [`Control::end_reload`](crate::server::Control::end_reload) must be called with this
    /// number.
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
