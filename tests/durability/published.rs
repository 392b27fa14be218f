//! A server that follows a published table: it is killed, or a system call fails, while it fetches a generation and
//! swaps to it.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::faults::{Fault, Injector, KINDS, draw_faults, kind_of, numbers, resolved};
use crate::helpers::generations::named;
use crate::helpers::intercepted_calls::{Call, Calls, Verdict, require_interception, spawn};
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::published::{Published, SHAPE, wait_until_served};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;
use crate::{random, report, wants_all};

const NODE: &str = "a";
/// The number of generations that a node keeps by default.
const KEPT: u64 = 3;
/// The number of faults that are drawn.
const FAULTS: usize = 12;
/// The kinds of calls before which a server is killed: those that change files, make changes durable, or map files.
const KILLING: &[&str] = &["write", "ftruncate", "fsync", "linkat", "renameat", "rename", "unlinkat", "unlink", "mmap"];

/// What happens at calls that concern the cache.
#[derive(Default)]
enum Plan {
    #[default]
    Nothing,
    /// Kills the process before the first call that is not in `done`, and stores the name of this call.
    Kill {
        process: Pid,
        done: Vec<String>,
        counts: HashMap<String, usize>,
        at: Option<String>,
    },
    Fail(Injector),
}

#[derive(Default)]
struct Interceptor {
    cache: PathBuf,
    plan: Plan,
}

impl Interceptor {
    fn verdict(&mut self, call: &Call) -> Verdict {
        let Some((kind, path)) = kind_of(call) else { return Verdict::Run };
        let path = resolved(path);
        if !path.starts_with(&self.cache) {
            return Verdict::Run;
        }
        match &mut self.plan {
            Plan::Kill { process, done, counts, at } if at.is_none() && KILLING.contains(&KINDS[kind].name) => {
                let name = format!("{} of {}", KINDS[kind].name, place_of(&path, &self.cache));
                let count = counts.entry(name.clone()).or_default();
                *count += 1;
                let name = format!("{name}, call {count}");
                if done.contains(&name) {
                    return Verdict::Run;
                }
                *at = Some(name);
                kill_process(*process, Signal::KILL).unwrap();
                // The call has no effect, even if the thread gets this verdict before the signal.
                Verdict::Fail(Errno::IO)
            }
            Plan::Fail(injector) => injector.count(kind, &path).map_or(Verdict::Run, Verdict::Fail),
            _ => Verdict::Run,
        }
    }
}

/// Returns the path of a file in the cache, with `*` for digests, numbers of generations, and unnamed files, so that it is
/// the same in each swap.
fn place_of(path: &Path, cache: &Path) -> String {
    let path = path.strip_prefix(cache).unwrap_or(path).display().to_string();
    let is_unique = |part: &str| part.len() >= 20 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // For example, `data/#123 (deleted)` is an unnamed file.
    let path = path.split_once('#').map_or(path.clone(), |(folder, _)| format!("{folder}*"));
    let parts = path.split_inclusive(['/', '.']).map(|part| match part.strip_suffix(['/', '.']) {
        Some(name) if is_unique(name) => part.replace(name, "*"),
        _ => part.to_owned(),
    });
    parts.collect()
}

/// A table, and a node whose calls are intercepted. The node polls only on request.
struct Scene {
    published: Published,
    interceptor: Arc<Mutex<Interceptor>>,
}

impl Scene {
    fn new() -> Scene {
        let published = Published::new();
        let cache = published.folder.path().canonicalize().unwrap().join(published.cache(NODE).file_name().unwrap());
        let interceptor = Interceptor { cache, plan: Plan::Nothing };
        Scene { published, interceptor: Arc::new(Mutex::new(interceptor)) }
    }

    fn start(&self) -> Server {
        let interceptor = Arc::clone(&self.interceptor);
        let decide = move |call: &Call| interceptor.lock().unwrap_or_else(PoisonError::into_inner).verdict(call);
        let mut command = self.published.node_command(NODE, self.published.publication.url());
        command.args(["--poll", "1h"]);
        let started = |command| Ok(spawn(command, &Calls::Only(&numbers()), decide)?.0);
        let mut node = Server::spawn_by(command, &self.published.socket(NODE), started);
        node.wait_for_log("ready on ");
        node.wait_for("published_polls", 1);
        node
    }

    fn plan(&self, plan: Plan) -> Plan {
        std::mem::replace(&mut self.interceptor.lock().unwrap().plan, plan)
    }
}

/// Looks all keys up until the connection ends. All values of a batch must come from one of two generations.
fn look_up_until_disconnected(node: &Server, generations: [u64; 2]) -> JoinHandle<()> {
    let mut connection = PipelinedConnection::new(Protocol::Native, node.connect());
    let keys: Vec<u64> = (1..=SHAPE.rows).collect();
    thread::spawn(move || {
        loop {
            match connection.get_all(&keys) {
                Ok(answers) => assert!(generations.contains(&generation_of(&keys, answers))),
                Err(error) => {
                    let ends = [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                    return assert!(ends.contains(&error.kind()), "{error}");
                }
            }
        }
    })
}

/// Returns the generation that all values come from.
fn generation_of(keys: &[u64], answers: Vec<Answer>) -> u64 {
    let mut generation = None;
    for (key, answer) in keys.iter().zip(answers) {
        let Answer::Value(value) = answer else { panic!("key {key}: {answer:?}") };
        let found = *generation.get_or_insert_with(|| named(&value).unwrap());
        assert_eq!(SHAPE.value(found, *key), Some(value), "key {key} of generation {found}");
    }
    generation.unwrap()
}

/// Kills a node before the first of its calls that is not in `done`, while it swaps from a generation to the next one.
/// Returns the name of the call, or `None` if the swap ended without such a call.
fn kill_in_swap(scene: &Scene, done: &[String], newest: &mut u64) -> Option<String> {
    let published = &scene.published;
    let mut node = scene.start();
    let old = *newest;
    wait_until_served(&node, old);
    // The first poll, which also writes to the cache, has ended then.
    node.outcome_of(node.client().reload().unwrap());
    *newest += 1;
    published.publish(*newest);
    let load = look_up_until_disconnected(&node, [old, *newest]);
    scene.plan(Plan::Kill { process: node.pid(), done: done.to_vec(), counts: HashMap::new(), at: None });
    node.client().reload().unwrap();
    let served = "serving published generation";
    while node.is_alive() && node.logged(&format!("{served} {}", *newest)) == 0 {
        thread::yield_now();
    }
    let Plan::Kill { at, .. } = scene.plan(Plan::Nothing) else { unreachable!("the plan is to kill") };
    node.kill();
    load.join().expect("a client received a wrong response");
    // The node that starts again may find a newer generation than the one that it fetched.
    if done.len() % 2 == 1 {
        *newest += 1;
        published.publish(*newest);
    }
    let node = published.node(NODE);
    let from_cache = |number| node.logged(&format!("{served} {number} from the cache"));
    // The server can be ready before this thread logs what it has opened.
    eventually("the node logs that it serves from the cache", || from_cache(old) + from_cache(old + 1) > 0);
    assert_eq!(from_cache(old) + from_cache(old + 1), 1, "killed at {at:?}: {}", node.log());
    let load = MixedLoad::start_between(&node, SHAPE, old..=*newest);
    wait_until_served(&node, *newest);
    load.expect_at_least(*newest);
    load.wait_for_right(100);
    assert_eq!(load.finish(), 0, "killed at {at:?}");
    published.wait_until_tidy(NODE);
    at
}

pub(crate) fn a_node_killed_at_any_call_of_a_swap_serves_the_old_or_the_new_generation_and_converges()
-> Result<(), Missing> {
    require_interception()?;
    let scene = Scene::new();
    scene.published.publish(1);
    let mut newest = 1;
    let mut killed = Vec::new();
    while let Some(name) = kill_in_swap(&scene, &killed, &mut newest) {
        killed.push(name);
    }
    for expected in ["renameat of serving.db", "linkat of .zero-kv.*", "write of data/*"] {
        assert!(killed.iter().any(|name| name.contains(expected)), "no kill at {expected}: {killed:?}");
    }
    if wants_all() {
        report(&format!("a node was killed at {} calls: {killed:?}", killed.len()));
    }
    Ok(())
}

/// Lets a node swap to the next generation, during which a call may fail. Returns the counted calls.
fn swap(scene: &Scene, node: &Server, newest: &mut u64, fault: Option<Fault>) -> Injector {
    *newest += 1;
    scene.published.publish(*newest);
    scene.plan(Plan::Fail(Injector::new(fault)));
    node.outcome_of(node.client().reload().unwrap());
    let Plan::Fail(injector) = scene.plan(Plan::Nothing) else { unreachable!("the plan is to fail") };
    injector
}

/// Checks the node after a swap with a fault: it serves one generation, reports this one, and converges on request.
fn check_after_fault(scene: &Scene, node: &mut Server, newest: u64) -> Result<(), String> {
    if !node.is_alive() || node.log().contains("panicked") {
        return Err(format!("the server ended or panicked: {}", node.log()));
    }
    let keys: Vec<u64> = (1..=SHAPE.rows).collect();
    let served = || {
        let mut connection = PipelinedConnection::new(Protocol::Native, node.connect());
        generation_of(&keys, connection.get_all(&keys).unwrap())
    };
    let (found, reported) = (served(), node.number("published_generation"));
    if found != reported || ![newest - 1, newest].contains(&found) {
        return Err(format!("generation {found} is served, {reported} is reported, and {newest} is the newest"));
    }
    let outcome = node.outcome_of(node.client().reload().unwrap());
    let (found, info) = (served(), node.info());
    let facts = ["published_generation", "published_error"].map(|name| info.get(name).unwrap_or_default());
    if found != newest || facts != [newest.to_string().as_str(), ""] {
        return Err(format!("after the fault, generation {found} is served, {facts:?}: {outcome}"));
    }
    let recorded = std::fs::read_to_string(scene.published.cache(NODE).join("serving.json")).unwrap();
    if !recorded.contains(&format!("\"generation\":{newest},")) {
        return Err(format!("generation {newest} is served, and the cache has {recorded}"));
    }
    let (kept, garbage) = scene.published.kept_and_garbage(NODE);
    let expected = KEPT.min(newest);
    if kept.len() as u64 != expected || !garbage.is_empty() {
        return Err(format!("the cache keeps {kept:?}, expected {expected} generations, and has garbage: {garbage:?}"));
    }
    Ok(())
}

pub(crate) fn a_node_in_which_a_system_call_fails_keeps_a_complete_generation_and_converges() -> Result<(), Missing> {
    require_interception()?;
    let mut random = random("published");
    let scene = Scene::new();
    scene.published.publish(1);
    let (mut node, mut newest) = (scene.start(), 1);
    wait_until_served(&node, 1);
    let possible = swap(&scene, &node, &mut newest, None).possible_faults();
    wait_until_served(&node, 2);
    assert!(possible.len() > 50, "few calls concern the cache: {possible:?}");
    let mut problems = Vec::new();
    for fault in if wants_all() { possible } else { draw_faults(&possible, FAULTS, &mut random) } {
        let injector = swap(&scene, &node, &mut newest, Some(fault));
        if let Err(problem) = check_after_fault(&scene, &mut node, newest) {
            problems.push(format!("{} of {:?}: {problem}", fault.name(), injector.failed.unwrap_or_default()));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

pub(crate) fn a_node_that_cannot_serve_a_cached_generation_when_it_starts_keeps_the_file() -> Result<(), Missing> {
    require_interception()?;
    let scene = Scene::new();
    let mut newest = 1;
    scene.published.publish(newest);
    let node = scene.start();
    while newest < KEPT {
        swap(&scene, &node, &mut newest, None);
    }
    drop(node);
    for name in ["linkat", "renameat", "mmap"] {
        let kind = KINDS.iter().position(|kind| kind.name == name).unwrap();
        let fault = Fault { kind, ordinal: 0, errno: KINDS[kind].errors[0] };
        // The file that is served needs no new link if it has one.
        fs::remove_file(scene.published.cache(NODE).join("serving.db")).unwrap();
        scene.plan(Plan::Fail(Injector::new(Some(fault))));
        let node = scene.start();
        let Plan::Fail(injector) = scene.plan(Plan::Nothing) else { unreachable!("the plan is to fail") };
        assert!(injector.failed.is_some(), "no {name} failed");
        wait_until_served(&node, newest);
        assert_eq!(node.number("published_fetched_bytes"), 0, "after {name} failed: {}", node.log());
        assert_eq!(scene.published.kept_and_garbage(NODE).0.len() as u64, newest, "after {name} failed");
    }
    Ok(())
}
