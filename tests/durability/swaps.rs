//! Faults in swaps: one system call fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::faults::{Fault, Injector, KINDS, draw_faults, kind_of, numbers};
use crate::helpers::generations::Shape;
use crate::helpers::intercepted_calls::{Call, Calls, Verdict, require_interception, spawn};
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::scenes::{Scene, inode};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::{random, report, wants_all};

const SHAPE: Shape = Shape { rows: 700, len_max_bytes: 60 };
/// The number of faults that are drawn for each kind of memory.
const FAULTS_PER_MEMORY: usize = 8;
/// The start of the path of a file in memory.
const SEALED: &str = "/memfd:";

/// Makes system calls fail if they concern the file that is about to be served.
#[derive(Default)]
struct FaultFilter {
    db: PathBuf,
    inode: u64,
    injector: Injector,
}

impl FaultFilter {
    fn verdict(&mut self, call: &Call) -> Verdict {
        let Some((kind, path)) = kind_of(call) else { return Verdict::Run };
        let concerns = match path.starts_with("/proc") {
            // The path names a descriptor of the file.
            true => is_inode(&path, self.inode),
            false => path == self.db || is_sealed(&path) || self.is_descriptor_of_file(call, kind),
        };
        if !concerns || self.injector.counts.is_empty() {
            return Verdict::Run;
        }
        self.injector.count(kind, &path).map_or(Verdict::Run, Verdict::Fail)
    }

    fn is_descriptor_of_file(&self, call: &Call, kind: usize) -> bool {
        let arg = if KINDS[kind].name == "mmap" { 4 } else { 0 };
        is_inode(&call.descriptor_link(arg), self.inode)
    }
}

fn is_inode(path: &Path, number: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.ino() == number)
}

fn is_sealed(path: &Path) -> bool {
    path.to_string_lossy().starts_with(SEALED)
}

/// A server whose swaps can be made to fail.
struct FaultyServer {
    served: Server,
    scene: Scene,
    fault_filter: Arc<Mutex<FaultFilter>>,
    /// The generation whose values are served.
    content: u64,
    /// The number of the generation that is served.
    generation: u64,
    next: u64,
}

impl FaultyServer {
    fn begin(memory: &str) -> FaultyServer {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let db = scene.path("").canonicalize().unwrap().join("storage.db");
        let fault_filter = Arc::new(Mutex::new(FaultFilter { db, ..FaultFilter::default() }));
        let decide = {
            let fault_filter = Arc::clone(&fault_filter);
            move |call: &Call| fault_filter.lock().unwrap_or_else(PoisonError::into_inner).verdict(call)
        };
        // The server opens files only when the test requests it.
        let command = scene.command(&["--no-watch", "--memory", memory]);
        let started = |command| Ok(spawn(command, &Calls::Only(&numbers()), decide)?.0);
        let mut served = Server::spawn_by(command, &scene.socket(), started);
        served.wait_for_log("ready on ");
        FaultyServer { served, scene, fault_filter, content: 1, generation: 1, next: 2 }
    }

    /// Puts the next file in place and requests a reload, during which a call may fail. Returns the outcome, and the
    /// counted calls.
    fn swap(&mut self, fault: Option<Fault>) -> (String, Injector) {
        let (content, file) = (self.next, self.scene.path("next.db"));
        self.next += 1;
        SHAPE.bake(content, &file);
        {
            let mut fault_filter = self.fault_filter.lock().unwrap();
            (fault_filter.inode, fault_filter.injector) = (inode(&file), Injector::new(fault));
        }
        std::fs::rename(&file, self.scene.db()).unwrap();
        let attempt = self.served.client().reload().unwrap();
        let outcome = self.served.outcome_of(attempt);
        if outcome == format!("generation {} is served", self.generation + 1) {
            self.content = content;
            self.generation += 1;
        }
        (outcome, std::mem::take(&mut self.fault_filter.lock().unwrap().injector))
    }

    /// Checks that every key has its value of the served generation.
    fn check_values(&self) -> Result<(), String> {
        let mut connection = PipelinedConnection::new(Protocol::Native, self.served.connect());
        let keys: Vec<u64> = (1..=SHAPE.rows + 1).collect();
        connection.ask(&keys);
        for (key, found) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
            let expected = SHAPE.value(self.content, *key).map_or(Answer::Missing, Answer::Value);
            if found != expected {
                return Err(format!("key {key} of generation {}: {found:?}", self.content));
            }
        }
        Ok(())
    }

    /// Makes a swap with a fault and checks the server. Returns whether the swap failed, or `None` if no call failed.
    fn check(&mut self, fault: Fault) -> Result<Option<bool>, String> {
        let (content, refused) = (self.content, self.served.number("refused_files"));
        let generation = self.generation;
        let (outcome, injector) = self.swap(Some(fault));
        let of = |what: &str| format!("{what}: {}: {outcome}", fault.name());
        let has_failed = self.content == content;
        if !self.served.is_alive() {
            return Err(of(&format!("the server has ended: {}", self.served.log())));
        }
        self.check_values().map_err(|what| of(&what))?;
        if self.served.log().contains("panicked") {
            return Err(of("a thread panicked"));
        }
        let number = self.served.number("refused_files");
        if number != refused + u64::from(has_failed) {
            return Err(of(&format!("{refused} files were refused before, and {number} after")));
        }
        let found = ["generation", "swaps"].map(|name| self.served.number(name));
        let expected = generation + u64::from(!has_failed);
        if found != [expected, expected - 1] {
            return Err(of(&format!("generation and swaps are {found:?}, where generation {expected} was expected")));
        }
        let system = format!("(os error {})", fault.errno.raw_os_error());
        if has_failed && !(outcome.contains("storage.db") && outcome.contains(&system)) {
            return Err(of(&format!("the reason lacks the file's name or {system:?}")));
        }
        if has_failed && self.served.logged(&system) == 0 {
            return Err(of("the reason is not logged"));
        }
        let (outcome_of_next, _) = self.swap(None);
        if self.generation != expected + 1 {
            return Err(of(&format!("the next file is not served: {outcome_of_next}")));
        }
        self.check_values().map_err(|what| of(&format!("after the next file: {what}")))?;
        Ok(injector.failed.is_some().then_some(has_failed))
    }
}

pub(crate) fn a_swap_in_which_a_system_call_fails_keeps_the_old_file_and_the_next_one_is_served() -> Result<(), Missing>
{
    require_interception()?;
    let mut random = random("swaps");
    let mut problems = Vec::new();
    for memory in ["map", "copy", "sealed"] {
        let mut server = FaultyServer::begin(memory);
        let (outcome, injector) = server.swap(None);
        assert_eq!(outcome, "generation 2 is served");
        let possible = injector.possible_faults();
        assert!(possible.len() > 5, "{memory}: few calls concern the file: {possible:?}");
        let (mut failed, mut survived, mut not_reached) = (0, 0, 0);
        for fault in if wants_all() { possible } else { draw_faults(&possible, FAULTS_PER_MEMORY, &mut random) } {
            match server.check(fault) {
                Ok(Some(true)) => failed += 1,
                Ok(Some(false)) => survived += 1,
                Ok(None) => not_reached += 1,
                Err(problem) => problems.push(format!("--memory {memory}: {problem}")),
            }
        }
        assert!(not_reached <= failed + survived, "{memory}: {not_reached} faults were not reached");
        if wants_all() {
            report(&format!(
                "--memory {memory}: {failed} swaps failed, {survived} survived, {not_reached} not reached"
            ));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}
