//! Simulates publishers and operators that create documents at the same time, in a store with faults, on a virtual
//! clock.
//!
//! The commands run the real code above [`ObjectStore`]. Requests are late, fail, and arrive twice; responses are lost;
//! a request arrives after its client has given up; reads and listings see earlier states. A seed determines all of
//! this.
//!
//! - Every command that succeeds is true in the store: the document has its bytes, under the number that it returned.
//! - No two commands get the same number, and no number is missing.
//! - Every command ends.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::Topology;
use crate::publish::change::Change;
use crate::publish::document::{Series, encode};
use crate::publish::error::PublishError;
use crate::publish::location::Location;
use crate::publish::manifest::{Entry, Manifest};
use crate::publish::pin::{Decision, Pin};
use crate::publish::publication::{CommitOptions, Publication};
use crate::publish::transfer::seed_random;
use crate::sync::unpoisoned;

/// The number of publishers and operators, and of the commands of each.
const ACTORS: usize = 5;
const COMMANDS: usize = 5;
/// The time in which a command ends: five attempts with requests that take seconds, repeated for each competitor.
const COMMAND_MAX: Duration = Duration::from_secs(1200);
/// The maximum time that a request takes, and the maximum age of what a stale read sees.
const REQUEST_MS_MAX: u64 = 3000;
const STALE_MS_MAX: u64 = 2000;

/// A store with faults.
#[derive(Clone)]
struct FaultyStore(Arc<Mutex<State>>);

struct State {
    random: SmallRng,
    objects: BTreeMap<String, (Instant, Bytes)>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").finish_non_exhaustive()
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

fn fault(problem: &str) -> Error {
    Error::Generic { store: "simulated", source: problem.into() }
}

fn not_found(path: String) -> Error {
    Error::NotFound { path, source: "it does not exist".into() }
}

impl FaultyStore {
    fn new(seed: u64) -> FaultyStore {
        let random = SmallRng::seed_from_u64(seed);
        FaultyStore(Arc::new(Mutex::new(State { random, objects: BTreeMap::new() })))
    }

    fn below(&self, end: u64) -> u64 {
        unpoisoned(&self.0).random.random_range(0..end)
    }

    async fn pass(&self) {
        let ms = match self.below(20) {
            0 => self.below(REQUEST_MS_MAX),
            _ => self.below(50),
        };
        sleep(Duration::from_millis(ms)).await;
    }

    fn create(&self, path: &str, bytes: &Bytes) -> Result<()> {
        let mut state = unpoisoned(&self.0);
        if state.objects.contains_key(path) {
            return Err(Error::AlreadyExists { path: path.to_owned(), source: "it exists".into() });
        }
        state.objects.insert(path.to_owned(), (Instant::now(), bytes.clone()));
        Ok(())
    }

    fn bytes(&self, path: &str) -> Option<Bytes> {
        unpoisoned(&self.0).objects.get(path).map(|(_, bytes)| bytes.clone())
    }

    /// Returns the objects that a read sees.
    fn seen(&self) -> BTreeMap<String, Bytes> {
        let stale_ms = if self.below(6) == 0 { self.below(STALE_MS_MAX) } else { 0 };
        let state = unpoisoned(&self.0);
        let is_seen = |created: &Instant| stale_ms == 0 || created.elapsed() >= Duration::from_millis(stale_ms);
        let seen = state.objects.iter().filter(|(_, (created, _))| is_seen(created));
        seen.map(|(path, (_, bytes))| (path.clone(), bytes.clone())).collect()
    }
}

fn meta(path: &Path, bytes: &Bytes) -> ObjectMeta {
    ObjectMeta {
        location: path.clone(),
        last_modified: Default::default(),
        size: bytes.len() as u64,
        e_tag: None,
        version: None,
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        assert_eq!(options.mode, PutMode::Create, "commands overwrite nothing");
        let (path, bytes) = (location.to_string(), Bytes::from(payload));
        self.pass().await;
        let created = match self.below(12) {
            0 => Err(fault("the request was lost")),
            1 => self.create(&path, &bytes).and(Err(fault("the response was lost"))),
            // The client's library has repeated the request, and found its own object.
            2 => self.create(&path, &bytes).and_then(|()| self.create(&path, &bytes)),
            3 => {
                let (store, ms) = (self.clone(), self.below(REQUEST_MS_MAX));
                tokio::spawn(async move {
                    sleep(Duration::from_millis(ms)).await;
                    let _ = store.create(&path, &bytes);
                });
                Err(fault("the request timed out, and arrives later"))
            }
            _ => self.create(&path, &bytes),
        };
        self.pass().await;
        created.map(|()| PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(fault("documents are short"))
    }

    async fn get_opts(&self, location: &Path, _: GetOptions) -> Result<GetResult> {
        self.pass().await;
        let found = self.seen().remove(location.as_ref());
        self.pass().await;
        // The client's library repeats requests, so few reads fail.
        if self.below(200) == 0 {
            return Err(fault("the read failed"));
        }
        let bytes = found.ok_or_else(|| not_found(location.to_string()))?;
        let (meta, range): (_, Range<u64>) = (meta(location, &bytes), 0..bytes.len() as u64);
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        unreachable!("commands delete nothing")
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let listed = async move {
            store.pass().await;
            let is_failing = store.below(200) == 0;
            let seen = store.seen().into_iter().map(|(path, bytes)| (Path::from(path), bytes));
            let seen: Vec<_> = seen
                .filter(|(path, _)| path.prefix_matches(&prefix))
                .map(|(path, bytes)| Ok(meta(&path, &bytes)))
                .collect();
            stream::iter(if is_failing { vec![Err(fault("the listing failed"))] } else { seen })
        };
        stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("commands list whole folders")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: object_store::CopyOptions) -> Result<()> {
        unreachable!("commands copy nothing")
    }
}

/// A document that a command has reported to be in the store.
struct Reported {
    object: String,
    bytes: Vec<u8>,
}

struct Actor {
    name: usize,
    store: FaultyStore,
    publication: Publication,
}

impl Actor {
    fn new(name: usize, store: &FaultyStore) -> Actor {
        let mut location = Location::parse("file:///store/users").unwrap();
        // It is not a folder, but a store that can lose requests.
        (location.store, location.folder) = (Arc::new(store.clone()), None);
        Actor { name, store: store.clone(), publication: Publication::new(location).unwrap() }
    }

    /// Runs a random command. Returns the documents that it has reported.
    async fn run(&self, command: usize) -> std::result::Result<Reported, PublishError> {
        let location = &self.publication.location;
        let note = format!("actor {} command {command}", self.name);
        match self.store.below(5) {
            0 | 1 => {
                let mut options = CommitOptions { allow: Change::ALL.to_vec(), ..CommitOptions::default() };
                if self.store.below(3) == 0 {
                    options.parent = Some(location.highest(Series::Manifests, 0).await?);
                }
                let committed = self.publication.commit_manifest(manifest(location, note), &options).await?;
                assert!(options.parent.is_none_or(|parent| committed.parent == parent), "the parent is another one");
                assert_eq!(committed.parent + 1, committed.number);
                Ok(Reported { object: Series::Manifests.object(committed.number), bytes: encode(&committed) })
            }
            2 => {
                let newest = location.highest(Series::Manifests, 0).await?;
                let pin = Pin { created: note, ..Pin::new(Some(newest)) };
                let number = pin.create(location, self.publication.last_used(Series::Pins).await?).await?;
                let object = Series::Pins.object(number);
                let bytes = self.store.bytes(location.path(&object).as_ref()).expect("the pin is in the store");
                let read: Pin = crate::publish::document::decode(&bytes).unwrap();
                assert_eq!(read, pin, "pin {number} is another one");
                Ok(Reported { object, bytes: bytes.to_vec() })
            }
            3 => {
                let decision = if self.store.below(2) == 0 { Decision::Activate } else { Decision::Abort };
                let pin = location.highest(Series::Pins, 0).await?;
                let decided = decision.create(location, pin).await?;
                Ok(Reported { object: Series::Decisions.object(pin), bytes: encode(&decided) })
            }
            _ => {
                let number = location.highest(Series::Topologies, 0).await? + 1;
                let json = format!(
                    r#"{{"format": 1, "number": {number}, "nodes": [{{"id": "a{}-{command}", "host": "h", "port": 1,
                        "role": "primary", "slots": ["0-16383"]}}]}}"#,
                    self.name
                );
                let topology = Topology::parse(json.as_bytes()).unwrap();
                self.publication.create_topology_async(&topology).await?;
                Ok(Reported { object: Series::Topologies.object(number), bytes: encode(&topology) })
            }
        }
    }
}

fn manifest(location: &Location, note: String) -> Manifest {
    let entry = r#"{"first_slot": 0, "last_slot": 16383, "object": "data/job/x", "bytes": 1, "rows": 7,
        "digest": "00000000000000000000000000000007", "key_kind": "u64"}"#;
    Manifest { note, ..Manifest::new(location, "job", vec![Entry::from_json(entry).unwrap()]) }
}

/// Runs one command at a time. Returns the documents that the successful ones have reported.
async fn run_commands(actor: &Actor) -> Vec<Reported> {
    let mut reported = Vec::new();
    for command in 0..COMMANDS {
        sleep(Duration::from_millis(actor.store.below(2000))).await;
        let result = timeout(COMMAND_MAX, actor.run(command)).await.expect("a command does not end");
        if let Ok(document) = result {
            let path = actor.publication.location.path(&document.object);
            let found = actor.store.bytes(path.as_ref());
            assert!(found.is_some_and(|found| found == document.bytes), "{} is another one", document.object);
            reported.push(document);
        }
    }
    reported
}

/// Simulates a schedule. Returns the number of commands that succeeded.
async fn simulate(seed: u64) -> usize {
    let store = FaultyStore::new(seed);
    let actors: Vec<Actor> = (0..ACTORS).map(|name| Actor::new(name, &store)).collect();
    // Pins and decisions name generations that exist.
    let location = &actors[0].publication.location;
    let first = Manifest { number: 1, ..manifest(location, String::new()) };
    store.create(location.path(&Series::Manifests.object(1)).as_ref(), &encode(&first).into()).unwrap();
    sleep(Duration::from_millis(STALE_MS_MAX)).await;
    let reported = futures_util::future::join_all(actors.iter().map(run_commands)).await;
    let reported: Vec<Reported> = reported.into_iter().flatten().collect();
    // All requests have arrived.
    sleep(Duration::from_millis(2 * REQUEST_MS_MAX)).await;
    for document in &reported {
        let found = store.bytes(location.path(&document.object).as_ref());
        assert!(found.is_some_and(|found| found == document.bytes), "{} has changed", document.object);
    }
    for series in [Series::Manifests, Series::Pins, Series::Topologies] {
        let of_series = |number: u64| store.bytes(location.path(&series.object(number)).as_ref()).is_some();
        let count = (1..).take_while(|number| of_series(*number)).count() as u64;
        assert!((count + 1..count + 50).all(|number| !of_series(number)), "document {count} is followed by a gap");
    }
    // Each number was reported once, except decisions, which are final.
    let mut objects: Vec<&String> = reported.iter().map(|document| &document.object).collect();
    objects.retain(|object| !object.starts_with("decisions/"));
    let all = objects.len();
    objects.sort();
    objects.dedup();
    assert_eq!(objects.len(), all, "two commands report one number");
    reported.len()
}

#[test]
fn every_command_that_succeeds_is_true_in_the_store() {
    let (first, schedules) = super::schedules(2000);
    let mut succeeded = 0;
    for seed in first..first + schedules {
        let simulated = std::panic::catch_unwind(|| {
            seed_random(Some(seed));
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(simulate(seed))
        });
        seed_random(None);
        succeeded += simulated.unwrap_or_else(|_| super::replay(seed));
    }
    // With few successes, the test would prove nothing.
    assert!(succeeded as u64 > 8 * schedules, "{succeeded} commands succeeded in {schedules} schedules");
}
