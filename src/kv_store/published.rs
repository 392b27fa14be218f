//! Serves a published table: options, and the thread that follows the table.
//!
//! In: the URL of a table, and a folder. Out: the file that the server opens, and calls that make it serve new
//! generations.

use std::path::PathBuf;
use std::time::Duration;

use zero_kv::cli::args::parse_url;
use zero_kv::cli::values::{BareUnit, DURATION_MAX, duration, parse_name, parse_rate};
use zero_kv::slots::SlotRange;

#[derive(Clone, Debug, clap::Args)]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only a build with object stores reads them"))]
pub(crate) struct PublishedArgs {
    /// Follow the table published at this URL, such as s3://bucket/users
    ///
    /// The server serves the newest generation (`zkv publish`) instead of --db. A table in a folder has a URL such as
    /// file:///srv/users. Credentials are read from the environment variables of the store, such as AWS_ACCESS_KEY_ID.
    #[arg(
        long,
        value_name = "URL",
        requires = "cache",
        conflicts_with_all = ["db", "positional"],
        value_parser = parse_url,
    )]
    pub(crate) from: Option<String>,
    /// Keep fetched generations in this folder
    ///
    /// A server that starts again serves from the folder without waiting for the store.
    #[arg(long, value_name = "FOLDER", requires = "from")]
    cache: Option<PathBuf>,
    /// Serve only the rows whose keys have these slots [default: all]
    ///
    /// The slots are those of Redis Cluster (0 to 16383). Other rows are not fetched. With --db, the file has only rows
    /// of these slots.
    #[arg(long, value_name = "FIRST-LAST", requires = "node-of")]
    pub(crate) slots: Option<SlotRange>,
    /// Look for a new generation this often
    ///
    /// Each wait is random, from half of this time to one and a half of it.
    #[arg(
        long,
        value_name = "TIME",
        requires = "from",
        default_value = "5s",
        value_parser = duration(BareUnit::Seconds, POLL_MIN..=DURATION_MAX),
    )]
    pub(crate) poll: Duration,
    /// Fetch at most this much per second, such as 50MB [default: no limit]
    #[arg(long, value_name = "RATE", requires = "from", value_parser = parse_rate)]
    fetch_bandwidth: Option<u64>,
    /// Keep this many generations in the folder, for rollbacks
    ///
    /// A rollback to one of them needs no download.
    #[arg(
        long,
        value_name = "N",
        requires = "from",
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    keep: u16,
    /// Use this name for the server [default: the name of the machine]
    ///
    /// The name is used in reports to the store and in the topology of a cluster.
    #[arg(long, value_name = "NAME", requires = "node-of", value_parser = parse_name)]
    pub(crate) node: Option<String>,
    /// Report that the server is in this zone, such as a data center
    ///
    /// With zones, a rollout can proceed zone by zone.
    #[arg(long, value_name = "ZONE", requires = "from", value_parser = parse_zone)]
    zone: Option<String>,
}

/// Parses the name of a zone. An empty text, as an environment variable may have it, is no zone.
fn parse_zone(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Ok(String::new()) } else { parse_name(text) }
}

/// The minimum time between two polls.
const POLL_MIN: Duration = Duration::from_millis(10);

#[cfg(feature = "object-store")]
pub(crate) use following::Following;

#[cfg(feature = "object-store")]
mod following {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use anyhow::{Context, anyhow};
    use tokio::sync::oneshot;
    use tracing::{error, info, warn};
    use zero_kv::cluster::{SlotSet, Topology};
    use zero_kv::publish::{
        Change, ClusterMember, FailureKind, FollowControl, FollowOptions, Follower, Manifest, Polled, PublishError,
    };
    use zero_kv::replace::ReplaceRules;
    use zero_kv::server::{
        ClusterNode, Config, Control, Opened, PublishedFacts, PublishedTable, Server, ServerError, lower_priority,
    };
    use zero_kv::store::MappedStore;
    use zero_kv::unpoisoned;

    use super::PublishedArgs;

    const PANIC_WAIT: Duration = Duration::from_secs(10);
    /// The number of different failures that are remembered, so that they are not logged again.
    const FAILURES_MAX: usize = 8;

    pub(crate) struct Following {
        url: String,
        node: String,
        poll: Duration,
        follower: FollowControl,
        attempts: Arc<Mutex<Vec<Attempt>>>,
        /// Passes the handle of the running server to the thread.
        server: Sender<Control>,
        opened: oneshot::Receiver<Result<Opened, ServerError>>,
    }

    impl Following {
        /// Starts the thread, which opens the first generation that it has or fetches. Changes `config`, so that the
        /// server serves only files that the thread has verified.
        pub(crate) fn start(args: PublishedArgs, config: &mut Config) -> anyhow::Result<Following> {
            let (url, cache) = args.from.zip(args.cache).ok_or_else(|| anyhow!("--from needs --cache"))?;
            let node = args.node.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
            let mut options = FollowOptions::new(&cache, &node);
            options.poll = args.poll;
            options.zone = args.zone.unwrap_or_default();
            options.slots = args.slots.unwrap_or(options.slots);
            let slots = SlotSet::from_iter([options.slots]);
            options.bandwidth_bytes_per_s = args.fetch_bandwidth;
            options.keep = args.keep.into();
            options.allow = vec![Change::Schema];
            // A new node has served nothing that the server could compare, so manifests are compared.
            options.shrink_max_percent = config.replace.shrink_max_percent;
            options.allow.extend(config.replace.shrink_max_percent.is_none().then_some(Change::Shrink));
            options.allow.extend(config.replace.allow_empty.then_some(Change::Empty));
            options.allow.extend(config.replace.allow_key_type_change.then_some(Change::KeyType));
            let mut follower = Follower::open(&url, options)?;
            let cluster = config.cluster.clone();
            if let Some(node) = &cluster {
                follower.join(Box::new(Member(Arc::clone(node))));
            }
            config.watch = false;

            let (server, control) = channel();
            let (send_opened, opened) = oneshot::channel();
            let attempts = Arc::default();
            let following = Following {
                url,
                node,
                poll: args.poll,
                follower: follower.control(),
                attempts: Arc::clone(&attempts),
                server,
                opened,
            };
            let serving = Serving {
                slots,
                cluster,
                config: config.clone(),
                opened: Some(send_opened),
                receiver: control,
                control: None,
                serving: 0,
                serving_slots: SlotSet::NONE,
                attempts,
            };
            let name = "published".to_owned();
            thread::Builder::new()
                .name(name)
                .spawn(move || run(follower, serving))
                .context("a thread cannot be started")?;
            Ok(following)
        }

        pub(crate) async fn opened(&mut self) -> anyhow::Result<Opened> {
            let ended = |_| anyhow!("{}: the thread that follows the table has ended", self.url);
            Ok((&mut self.opened).await.map_err(ended)??)
        }

        pub(crate) fn connect(self, server: &mut Server) {
            // Fails only if the thread has ended.
            let _ = self.server.send(server.control());
            server.follow(Arc::new(self));
        }
    }

    impl Drop for Following {
        fn drop(&mut self) {
            self.follower.stop();
        }
    }

    impl PublishedTable for Following {
        fn request(&self, attempt: u64) {
            let polls_before = self.follower.facts().polls;
            unpoisoned(&self.attempts).push(Attempt { number: attempt, polls_before });
            self.follower.poll();
        }

        fn damaged(&self) {
            self.follower.damaged();
        }

        fn facts(&self) -> PublishedFacts {
            let facts = self.follower.facts();
            PublishedFacts {
                url: self.url.clone(),
                node: self.node.clone(),
                slots: facts.slots,
                serving: facts.status.serving,
                prepared: facts.status.prepared,
                newest: facts.status.newest,
                pin: facts.status.pin,
                lag_s: facts.status.lag_s,
                poll_age_s: facts.poll_age_s,
                serving_age_s: facts.serving_age_s,
                poll_s: self.poll.as_secs_f64(),
                polls: facts.polls,
                fetched_bytes: facts.fetched_bytes,
                fetching_bytes: facts.fetching.unwrap_or_default(),
                failures: FailureKind::ALL.map(FailureKind::name).into_iter().zip(facts.failures).collect(),
                name_problem: facts.status.name_problem().unwrap_or_default(),
                error: facts.status.error,
            }
        }
    }

    struct Member(Arc<ClusterNode>);

    impl ClusterMember for Member {
        fn apply(&mut self, topology: &Topology) -> Result<(), String> {
            self.0.apply(topology.clone()).map(drop).map_err(|error| error.to_string())
        }

        fn set_file_slots(&mut self, slots: &SlotSet) {
            self.0.set_file_slots(slots.clone());
        }

        fn confirm(&mut self, slots: &SlotSet) {
            self.0.confirm(slots.clone());
        }

        fn served_slots(&self) -> SlotSet {
            self.0.served_slots()
        }
    }

    struct Serving {
        /// The slots of the node, if it is not part of a cluster.
        slots: SlotSet,
        cluster: Option<Arc<ClusterNode>>,
        config: Config,
        /// Receives the first generation, which the main thread serves.
        opened: Option<oneshot::Sender<Result<Opened, ServerError>>>,
        receiver: Receiver<Control>,
        control: Option<Control>,
        /// The number of the served generation, and the slots of its file.
        serving: u64,
        serving_slots: SlotSet,
        /// The reloads that were requested and have not ended.
        attempts: Arc<Mutex<Vec<Attempt>>>,
    }

    struct Attempt {
        number: u64,
        /// The number of polls that had begun when the reload was requested. They may have read the store too early.
        polls_before: u64,
    }

    impl Serving {
        /// Serves the file at a path. The error says why it cannot be served.
        fn serve(&mut self, path: &Path, manifest: &Manifest) -> Result<(), String> {
            let slots = self.file_slots();
            let table = MappedStore::open(path).map_err(|error| error.to_string())?;
            manifest.check_canaries(&table, &slots)?;
            drop(table);
            let outcome = match self.opened.take() {
                Some(sender) => match Opened::new(path, &self.config) {
                    Ok(opened) => sender.send(Ok(opened)).map_err(|_| "the server stops".to_owned()),
                    Err(error) => {
                        self.opened = Some(sender);
                        Err(error.to_string())
                    }
                },
                None => {
                    // The number of rows of other slots is no reason to reject them.
                    let is_rollback = manifest.number < self.serving || slots != self.serving_slots;
                    let rules = if is_rollback { ReplaceRules::any() } else { self.rules(manifest) };
                    self.control()?.serve_file(rules).map(drop)
                }
            };
            outcome.inspect(|()| {
                (self.serving, self.serving_slots) = (manifest.number, slots);
            })
        }

        fn file_slots(&self) -> SlotSet {
            self.cluster.as_ref().map_or_else(|| self.slots.clone(), |node| (*node.file_slots()).clone())
        }

        /// Returns the server's rules without the rules that the publisher of the generation has lifted.
        fn rules(&self, manifest: &Manifest) -> ReplaceRules {
            let mut rules = self.config.replace.clone();
            for change in manifest.allowed.iter().filter_map(|name| Change::from_name(name)) {
                match change {
                    Change::Empty => rules.allow_empty = true,
                    Change::Shrink => rules.shrink_max_percent = None,
                    Change::KeyType => rules.allow_key_type_change = true,
                    // The server has no rule for columns.
                    _ => {}
                }
            }
            rules
        }

        /// Returns the handle of the server, which is available soon after the first generation was opened.
        fn control(&mut self) -> Result<&Control, String> {
            if self.control.is_none() {
                self.control = Some(self.receiver.recv().map_err(|_| "the server stops".to_owned())?);
            }
            self.control.as_ref().ok_or_else(|| "the server stops".to_owned())
        }

        /// Ends the reloads that were requested before the poll with this number and outcome.
        fn end_reloads(&mut self, poll: u64, outcome: &Result<String, String>) {
            let ended: Vec<Attempt> =
                unpoisoned(&self.attempts).extract_if(.., |attempt| attempt.polls_before < poll).collect();
            for attempt in ended {
                // Only a running server passes reloads to this thread, so its handle is available.
                let Ok(control) = self.control() else { return };
                control.end_reload(attempt.number, outcome.clone());
            }
        }
    }

    fn run(mut follower: Follower, serving: Serving) {
        // Otherwise, lookups would wait while a generation is written and verified.
        lower_priority();
        let control = follower.control();
        let serving = Arc::new(Mutex::new(serving));
        let served = Arc::clone(&serving);
        follower.serve_with(move |path, manifest| unpoisoned(&served).serve(path, manifest));
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return error!("the published table cannot be followed: {error}"),
        };
        if let Some(manifest) = follower.serve_from_cache() {
            info!(
                published = manifest.number,
                "serving published generation {} from the cache, without the store", manifest.number
            );
        } else {
            let problem = control.facts().status.error;
            if !problem.is_empty() {
                warn!("{problem}");
            }
            info!("the cache has no complete generation: waiting for the store");
        }
        follower.notice_with(|notice| warn!("{notice}"));
        let mut log = PollLog::default();
        while !control.is_stopped() {
            let polled = |result: &Result<Polled, PublishError>| {
                let facts = control.facts();
                let outcome = log.log(result, facts.status.serving != 0);
                unpoisoned(&serving).end_reloads(facts.polls, &outcome);
            };
            let run = AssertUnwindSafe(|| runtime.block_on(follower.run(polled)));
            if catch_unwind(run).is_err() {
                error!(
                    "the thread that follows the published table panicked: it continues in {} s",
                    PANIC_WAIT.as_secs()
                );
                thread::sleep(PANIC_WAIT);
            }
        }
    }

    /// Logs the results of polls, but repeated failures only once, also if they alternate.
    #[derive(Default)]
    struct PollLog {
        last_failures: Vec<String>,
    }

    impl PollLog {
        /// Logs a result. Returns the outcome for requested reloads.
        fn log(&mut self, result: &Result<Polled, PublishError>, is_serving: bool) -> Result<String, String> {
            let text = match result {
                Ok(Polled::Served(number)) => {
                    info!(published = number, "serving published generation {number}");
                    format!("published generation {number} is served")
                }
                Ok(Polled::Current(number)) => format!("published generation {number} is already served"),
                Ok(Polled::Holding(number)) => {
                    format!("published generation {number} is prepared, and waits for the rollout")
                }
                Ok(Polled::Waiting(number)) => {
                    return Err(format!("published generation {number} failed, and is retried later"));
                }
                Ok(Polled::Unassigned) => "the topology assigns no slots to this node".to_owned(),
                Ok(Polled::Empty) => "the published table has no generation".to_owned(),
                Err(PublishError::Canceled) => return Err("the server stops".to_owned()),
                Err(error) => {
                    let text = error.to_string();
                    if !self.last_failures.contains(&text) {
                        let effect = if is_serving { "the served generation stays" } else { "the server waits" };
                        warn!("{text}: {effect}");
                        self.last_failures.truncate(FAILURES_MAX - 1);
                        self.last_failures.insert(0, text.clone());
                    }
                    return Err(text);
                }
            };
            self.last_failures.clear();
            Ok(text)
        }
    }
}
