//! Properties of the documents of a published table, in a store and in the folder of a node: whatever they state, every
//! operation succeeds or fails with one short line, and what it accepts is within the limits.
//!
//! A case changes the values of some documents, and corrects their checksums. Then a publisher, an operator, and a node
//! read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use twox_hash::XxHash3_128;
use zero_kv::Lookup;
use zero_kv::bake::{Cancel, Options, bake_csv};
use zero_kv::cluster::{SlotSet, Topology, moved_slots, plan, without_failed};
use zero_kv::publish::{
    ClusterMember, CommitOptions, Entry, FollowOptions, Follower, GarbageRules, Manifest, Pin, Publication,
    PublishError, ShardFile,
};
use zero_kv::slots::SlotRange;
use zero_kv::store::MappedStore;

use super::json::{Json, SCALARS};
use super::source::Source;

/// The maximum number of bytes of the message of an error.
const MESSAGE_LEN_MAX_BYTES: usize = 4000;

/// A table with its store and the folder of a node, which each case copies.
pub struct Table {
    originals: PathBuf,
    /// The documents, relative to the folder.
    documents: Vec<(PathBuf, Json)>,
    /// Whether each document has a checksum.
    sealed: Vec<bool>,
    case: PathBuf,
    _folder: TempDir,
}

const TOPOLOGY: &str = r#"{"format":1,"number":1,"nodes":[
    {"id":"a","host":"127.0.0.1","port":7001,"role":"primary","slots":["0-8191"],"zone":"east"},
    {"id":"b","host":"127.0.0.1","port":7002,"role":"primary","slots":["8192-16383"],"health":"fail"},
    {"id":"c","host":"127.0.0.1","port":7003,"role":"replica","primary":"b"}]}"#;

impl Table {
    /// Publishes two generations, and follows them with a node.
    pub fn publish() -> Table {
        // Nodes sync their files, which is fast in memory.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let (originals, case) = (folder.path().join("originals"), folder.path().join("case"));
        let publication = Publication::create(&url(&originals)).unwrap();
        for generation in 1..=2 {
            let db = folder.path().join("table.db");
            bake_csv(format!("1,{generation}\n7,seven\n").as_bytes(), &db, &Options::default()).unwrap();
            let entry = publication.upload(&ShardFile::whole(&db), &Cancel::default()).unwrap();
            let digest = format!("{:032x}", XxHash3_128::oneshot(b"seven"));
            let canaries = ["7", "8"].map(|key| zero_kv::publish::Canary {
                key: key.to_owned(),
                digest: if key == "7" { digest.clone() } else { "absent".to_owned() },
            });
            let options =
                CommitOptions { canaries: canaries.into(), note: "note".to_owned(), ..CommitOptions::default() };
            publication.commit(vec![entry], &options).unwrap();
        }
        publication.create_topology(&Topology::parse(TOPOLOGY.as_bytes()).unwrap()).unwrap();
        publication.create_policy(Some(1 << 40), None).unwrap();
        publication.create_pin(&Pin::new(Some(1))).unwrap();
        follow(&originals).unwrap();
        let status = r#"{"node":"b","serving":1,"digest":"","prepared":2,"newest":2,"pin":1,"lag_s":5,"error":"canceled",
            "failed":0,"slots":[{"first_slot":0,"last_slot":16383}],"topology":1,"updated":"2026-11-28T16:00:00Z","tool":"x"}"#;
        fs::create_dir_all(originals.join("store/users/status")).unwrap();
        fs::write(originals.join("store/users/status/b.json"), seal(status)).unwrap();
        let mut pin = Pin::new(Some(2));
        (pin.nodes, pin.others, pin.hold) = (vec!["a".to_owned()], Some(1), true);
        publication.create_pin(&pin).unwrap();
        publication.decide(2, zero_kv::publish::Decision::Activate).unwrap();
        // A download that was interrupted.
        let entry = publication.manifest(Some(2)).unwrap().entries[0].clone();
        let state = format!(
            r#"{{"object_url":"{}/{}","complete":{{"ranges":[{{"start":0,"end":9}}]}}}}"#,
            url(&case),
            entry.object
        );
        let state_path = originals.join(format!("cache/data/{}-0-8191.zkv.0-16383.shard.partial.json", entry.digest));
        fs::write(&state_path, state).unwrap();
        fs::write(state_path.with_extension(""), b"a part").unwrap();

        let mut paths = Vec::new();
        find_documents(&originals, &originals, &mut paths);
        let parsed = paths.into_iter().map(|path| {
            let bytes = fs::read(originals.join(&path)).unwrap();
            (path, Json::parse(&bytes))
        });
        let (mut documents, mut sealed) = (Vec::new(), Vec::new());
        for (path, json) in parsed {
            let body = match json {
                Json::Object(fields) if fields.iter().any(|(key, _)| key == "xxh3_128") => {
                    sealed.push(true);
                    fields.into_iter().find(|(key, _)| key == "body").expect("documents have a body").1
                }
                json => {
                    sealed.push(false);
                    json
                }
            };
            documents.push((path, body));
        }
        Table { originals, documents, sealed, case, _folder: folder }
    }

    /// Returns the number of values in all documents.
    pub fn value_count(&self) -> usize {
        self.documents.iter().map(|(_, body)| body.value_count()).sum()
    }

    /// Returns the number of texts that can take the place of a value.
    pub fn scalar_count(&self) -> usize {
        SCALARS.len()
    }

    /// Checks the table with one value of one document set to a text.
    pub fn check_scalar(&self, value: usize, scalar: usize) {
        let mut left = value;
        for (number, (_, body)) in self.documents.iter().enumerate() {
            if left < body.value_count() {
                let mut body = body.clone();
                *body.value(left) = Json::Text(SCALARS[scalar].to_owned());
                return self.check(&[(number, body.text())], &mut Source::new(&[]));
            }
            left -= body.value_count();
        }
    }

    /// Copies the table, replaces documents, and reads everything.
    fn check(&self, changes: &[(usize, String)], source: &mut Source) {
        let _ = fs::remove_dir_all(&self.case);
        copy(&self.originals, &self.case);
        for (number, body) in changes {
            let mut json = match self.sealed[*number] {
                true => seal(body),
                false => body.clone().into_bytes(),
            };
            match source.below(16) {
                15 => json.extend_from_slice(b"{}"),
                14 => json.truncate(json.len() / 2),
                13 => json.splice(..0, *b"\xef\xbb\xbf").for_each(drop),
                _ => {}
            }
            fs::write(self.case.join(&self.documents[*number].0), json).unwrap();
        }
        read_as_operator(&self.case);
        let _ = follow(&self.case);
    }
}

/// Reads a table whose documents are changed in ways that the bytes describe.
pub fn check(table: &Table, data: &[u8]) {
    let mut source = Source::new(data);
    let mut changes: Vec<(usize, String)> = Vec::new();
    for _ in 0..1 + source.below(3) {
        let number = source.below(table.documents.len());
        let mut body = table.documents[number].1.clone();
        (0..1 + source.below(4)).for_each(|_| body.forge(&mut source));
        changes.push((number, body.text()));
    }
    table.check(&changes, &mut source);
}

fn url(folder: &Path) -> String {
    format!("file://{}/store/users", folder.display())
}

fn seal(body: &str) -> Vec<u8> {
    format!("{{\"body\":{body},\"xxh3_128\":\"{:032x}\"}}\n", XxHash3_128::oneshot(body.as_bytes())).into_bytes()
}

/// Finds the documents in a folder, in the order of their names.
fn find_documents(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => find_documents(root, &path, found),
            false if path.extension().is_some_and(|extension| extension == "json") => {
                found.push(path.strip_prefix(root).unwrap().to_path_buf());
            }
            false => {}
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, target) = (entry.unwrap().path(), to.to_path_buf());
        let target = target.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy(&entry, &target),
            // Tables are replaced and not changed. A reader of a new table waits until its times are settled.
            false if entry.extension().is_some_and(|extension| extension == "zkv") => {
                fs::hard_link(&entry, &target).unwrap();
            }
            false => drop(fs::copy(&entry, &target).unwrap()),
        }
    }
}

/// Returns the result, after a check of the error's message.
fn checked<T>(result: Result<T, PublishError>) -> Option<T> {
    result.map_err(|error| assert_is_short_line(&error.to_string())).ok()
}

fn assert_is_short_line(message: &str) {
    assert!(message.len() < MESSAGE_LEN_MAX_BYTES, "{} bytes: {message:.200}", message.len());
    assert!(!message.chars().any(char::is_control), "{message:?}");
}

/// Runs the operations of publishers and operators.
fn read_as_operator(case: &Path) {
    let publication = Publication::open(&url(case)).unwrap();
    for number in [None, Some(1), Some(2)] {
        if let Some(manifest) = checked(publication.manifest(number)) {
            assert_is_within_limits(&manifest);
        }
    }
    for listed in checked(publication.generations(10)).unwrap_or_default() {
        assert_is_within_limits(&listed.manifest);
        assert!(!format!("{listed:?}").is_empty());
    }
    if let Some((_, pin)) = checked(publication.pin()).flatten() {
        let generations = ["a", "", "b"].map(|node| pin.generation_for(Some(node)));
        assert!(generations.into_iter().chain([pin.generation_for(None)]).flatten().all(|number| number < 1 << 53));
        if let Some(number) = checked(publication.create_pin(&pin)) {
            assert_eq!(checked(publication.pin_with_number(number)).flatten(), Some(pin));
        }
    }
    checked(publication.decision(2));
    checked(publication.policy());
    for status in checked(publication.statuses()).unwrap_or_default() {
        assert_is_short_line(&status.error);
        assert!(status.slots.iter().all(|range| range.is_valid()), "{status:?}");
        assert!([status.serving, status.prepared, status.newest, status.pin].iter().all(|number| *number < 1 << 53));
    }
    publication.take_warnings().iter().for_each(|message| assert_is_short_line(message));
    if let Some(topology) = checked(publication.topology(None)).flatten() {
        use_topology(&topology);
    }
    checked(publication.collect_garbage(&GarbageRules { keep: u64::MAX, age_min: Default::default(), delete: false }));
    if let Some(manifest) = checked(publication.manifest(None)) {
        let pulled = case.join("pulled.db");
        if checked(publication.pull(&manifest, &pulled, None, &Cancel::default())).is_some() {
            let store = MappedStore::open(&pulled).unwrap();
            assert_eq!(store.len() as u64, manifest.rows());
            let _ = manifest.check_canaries(&store, &SlotSet::ALL);
        }
    }
}

fn assert_is_within_limits(manifest: &Manifest) {
    let sum = |of: fn(&Entry) -> u64| manifest.entries.iter().map(|entry| u128::from(of(entry))).sum::<u128>();
    assert_eq!(u128::from(manifest.rows()), sum(|entry| entry.rows));
    assert_eq!(u128::from(manifest.bytes()), sum(|entry| entry.bytes));
    assert!(manifest.number < 1 << 53 && manifest.parent < 1 << 53);
    assert!(manifest.digest().len() == 32 && manifest.digest().is_ascii());
    for entry in &manifest.entries {
        assert!(entry.slots.is_valid() && entry.bytes <= 1 << 45 && entry.rows <= 1 << 32, "{entry:?}");
        assert!(entry.object.starts_with("data/") && !entry.object.contains("..") && entry.object.len() <= 512);
        assert_eq!(Entry::from_json(&entry.to_json()).unwrap(), *entry);
    }
}

/// Runs what nodes, clients, and operators do with a topology.
fn use_topology(topology: &Topology) {
    let owners = topology.owners().unwrap();
    assert!(owners.iter().all(|owner| usize::from(*owner) < topology.nodes.len()));
    let mut served = SlotSet::NONE;
    for node in &topology.nodes {
        served.insert_all(&topology.slots_of(&node.id));
        let _ = (topology.replicas_of(&node.id).count(), topology.position(&node.id), node.health.name());
    }
    assert_eq!(served, SlotSet::ALL);
    assert_eq!(Topology::parse(topology.to_json().as_bytes()).as_ref(), Ok(topology));
    let failed = topology.nodes.iter().map(|node| node.id.clone()).take(1).collect();
    for next in [without_failed(topology, &failed), plan(Some(topology), &topology.nodes, 0).ok()].into_iter().flatten()
    {
        assert_eq!(next.number, topology.number + 1);
        let _ = moved_slots(topology, &next);
    }
}

/// A node of a cluster that serves nothing.
struct Member;

impl ClusterMember for Member {
    fn apply(&mut self, topology: &Topology) -> Result<(), String> {
        use_topology(topology);
        Ok(())
    }

    fn set_file_slots(&mut self, slots: &SlotSet) {
        assert!(slots.ranges().into_iter().all(SlotRange::is_valid));
    }

    fn confirm(&mut self, slots: &SlotSet) {
        assert!(slots.ranges().into_iter().all(SlotRange::is_valid));
    }

    fn served_slots(&self) -> SlotSet {
        SlotSet::NONE
    }
}

/// Runs a node that is named `a`.
fn follow(case: &Path) -> Result<(), PublishError> {
    let mut options = FollowOptions::new(case.join("cache"), "a");
    options.poll = Duration::from_millis(10);
    let mut follower = Follower::open(&url(case), options)?;
    follower.join(Box::new(Member));
    follower.serve_with(|path, manifest| {
        assert_is_within_limits(manifest);
        let store = MappedStore::open(path).map_err(|error| error.to_string())?;
        store.get(7).map_err(|error| error.to_string())?;
        Ok(())
    });
    follower.serve_from_cache();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (control, mut polls) = (follower.control(), 0);
    runtime.block_on(follower.run(|polled| {
        if let Err(error) = polled {
            let line = error.to_string();
            assert_is_short_line(&line);
            // Files are served on other threads.
            assert!(!line.contains("panicked"), "{line}");
        }
        polls += 1;
        match polls {
            1 => control.poll(),
            _ => control.stop(),
        }
    }));
    assert_is_short_line(&follower.control().facts().status.error);
    Ok(())
}
