//! New files under load and on request, rollbacks, and files that are rejected.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::process::{Signal, geteuid};

use super::load::{ConnectionCounts, Load, PIPELINE_KEYS, Sample};
use crate::helpers::frames::{answer, expect, request};
use crate::helpers::generations::Shape;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::scenes::{Scene, inode, settle};
use crate::helpers::servers::{Server, failure_message};
use crate::helpers::shared_program::SharedProgram;
use crate::helpers::waiting::{PATIENCE, configured_duration, eventually};
use crate::{report, run_alone, run_concurrently};

const RELOAD: u32 = 7;
const ROLLBACK: u32 = 8;
/// A user other than root, whose permissions the kernel checks.
const NOBODY: u32 = 65534;

/// A folder with files of generations 1 to `count`, of which the first is in place.
struct Generations {
    scene: Scene,
    shape: Shape,
}

impl Generations {
    fn new(shape: Shape) -> Generations {
        let generations = Generations { scene: Scene::new(), shape };
        shape.bake(1, &generations.scene.db());
        generations
    }

    fn bake(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.shape.bake(number, &self.baked(number));
        }
    }

    fn baked(&self, number: u64) -> PathBuf {
        self.scene.path(&format!("{number}.db"))
    }

    /// Puts a baked file in place by renaming.
    fn put(&self, number: u64) {
        std::fs::rename(self.baked(number), self.scene.db()).unwrap();
    }

    /// Asserts that every key has its value of a generation.
    #[track_caller]
    fn assert_served(&self, served: &Server, generation: u64) {
        let mut connection = PipelinedConnection::new(Protocol::Native, served.connect());
        let keys: Vec<u64> = (1..=self.shape.rows + 2).collect();
        for keys in keys.chunks(PIPELINE_KEYS) {
            connection.ask(keys);
            for (key, found) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
                let expected = self.shape.value(generation, *key).map_or(Answer::Missing, Answer::Value);
                assert_eq!(found, expected, "key {key} of generation {generation}");
            }
        }
    }
}

/// Returns generation, swaps, rollbacks, and rejected files.
fn counts(served: &Server) -> [u64; 4] {
    ["generation", "swaps", "rollbacks", "refused_files"].map(|name| served.number(name))
}

fn p99_us(samples: &[Sample], phase: u32) -> u32 {
    let mut latencies_us: Vec<u32> =
        samples.iter().filter(|sample| sample.phase == phase).map(|sample| sample.latency_us).collect();
    latencies_us.sort_unstable();
    latencies_us[(latencies_us.len() - 1) * 99 / 100]
}

fn median(mut numbers: Vec<u32>) -> u32 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Swaps happen in odd phases of the load, and not in even phases.
#[test]
fn swaps_under_saturation_lose_no_response_and_mix_no_generations() {
    let _guard = run_alone();
    let long = configured_duration();
    let (connections, swaps_per_phase, pipelines_per_swap) = if long.is_some() { (98, 20, 1000) } else { (18, 3, 150) };
    let threads = 2;
    let connection_counts = ConnectionCounts { native: connections / threads - 2, redis: 2, slow: 1 };
    let generations = Generations::new(Shape { rows: 10_000, len_max_bytes: 100 });
    let served = generations.scene.serve(&[]);
    let load = Load::start(&served, generations.shape, threads, connection_counts);
    load.wait_for_pipelines(4 * pipelines_per_swap);

    let (started, mut phase, mut generation, mut swap_count) = (Instant::now(), 0, 1, 0);
    while phase < 6 || long.is_some_and(|long| started.elapsed() < long || swap_count < 200) {
        generations.bake(generation + 1..generation + 1 + swaps_per_phase);
        load.wait_for_pipelines(pipelines_per_swap);
        phase += 2;
        load.enter(phase);
        load.wait_for_pipelines(swaps_per_phase * pipelines_per_swap);
        load.enter(phase + 1);
        for _ in 0..swaps_per_phase {
            generation += 1;
            generations.put(generation);
            served.wait_for("generation", generation);
            load.expect_at_least(generation);
            let current = [inode(&generations.scene.db())];
            eventually("only the new file is mapped", || served.mapped_tables() == current);
            load.wait_for_pipelines(pipelines_per_swap);
            swap_count += 1;
        }
        load.enter(0);
    }
    let info = served.info();
    let number = |name| info.number::<u64>(name).unwrap();
    assert_eq!((number("swaps"), number("refused_files"), number("faults")), (swap_count, 0, 0));
    assert_eq!((number("generation"), number("errors")), (generation, 0));
    let pipelines = load.pipelines();
    let samples = load.finish();
    generations.assert_served(&served, generation);

    let phases =
        |odd: u32| (2..phase + 2).filter(|phase| phase % 2 == odd).map(|phase| p99_us(&samples, phase)).collect();
    let (without_us, with_us) = (median(phases(0)), median(phases(1)));
    report(&format!(
        "{swap_count} swaps, {pipelines} pipelines of {PIPELINE_KEYS} over {} connections: p99 {without_us} us without \
         swaps, {with_us} us with",
        threads * (connection_counts.native + connection_counts.redis + connection_counts.slow),
    ));
    // A few swaps do not suffice for a percentile.
    assert!(long.is_none() || with_us <= 2 * without_us, "p99 {with_us} us where it is {without_us} us without swaps");
}

/// The client always has pending responses, so none of its batches is the last.
#[test]
fn a_client_that_always_has_pending_responses_gets_new_generations() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 3000 });
    generations.bake(2..3);
    let served = generations.scene.serve(&[]);
    let key = 80;
    let answers = [1, 2].map(|generation| answer(0, &generations.shape.value(generation, key).unwrap()));
    assert_eq!(answers[0].len(), answers[1].len());
    let stream = served.connect();
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), stream);
    let asking = std::thread::spawn(move || {
        let requests = request(0, key).repeat(PIPELINE_KEYS);
        loop {
            if let Err(error) = writer.write_all(&requests) {
                return error.kind();
            }
        }
    });
    let mut found = vec![0; answers[0].len()];
    for at in 0.. {
        std::io::Read::read_exact(&mut reader, &mut found).unwrap();
        match at {
            20_000 => generations.put(2),
            _ if found == answers[1] => break,
            _ => assert!(found == answers[0], "answer {at}"),
        }
        assert!(at < 1_000_000, "the generation is served, and this client does not get it");
    }
    reader.shutdown(std::net::Shutdown::Both).unwrap();
    // The server accepts requests until the connection is shut down.
    assert!(matches!(asking.join().unwrap(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
}

#[test]
fn memory_returns_to_one_generation_after_each_swap() {
    let _guard = run_concurrently();
    let shape = Shape { rows: 8_000, len_max_bytes: 4000 };
    let generations = Generations::new(shape);
    for memory in ["map", "copy", "sealed"] {
        shape.bake(1, &generations.scene.db());
        generations.bake(2..6);
        let served = generations.scene.serve(&["--memory", memory, "--warm"]);
        let load = Load::start(&served, shape, 1, ConnectionCounts { native: 4, redis: 1, slow: 1 });
        let file_len_bytes = served.number("file_len_bytes");
        assert!(file_len_bytes > 12 << 20, "{file_len_bytes} bytes are too few to be measured");
        load.wait_for_pipelines(20);
        let before_bytes = served.resident_bytes();
        assert!(before_bytes > file_len_bytes);
        for generation in 2..6 {
            generations.put(generation);
            served.wait_for("generation", generation);
            load.expect_at_least(generation);
            eventually("the memory of the previous generation is released", || {
                served.resident_bytes() < before_bytes + file_len_bytes / 2 && served.mapped_tables().len() <= 1
            });
            load.wait_for_pipelines(20);
        }
        load.finish();
        generations.assert_served(&served, 5);
    }
}

#[test]
fn a_new_file_is_served_when_put_in_place_or_on_request() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
    generations.bake(2..6);
    let served = generations.scene.serve(&[]);
    generations.assert_served(&served, 1);
    generations.put(2);
    served.wait_for("generation", 2);
    generations.assert_served(&served, 2);
    served.expect_logged("serving generation 2", 1);
    drop(served);

    let served = generations.scene.serve(&["--no-watch"]);
    let mut client = served.client();
    generations.assert_served(&served, 2);
    generations.put(3);
    // A server that watches the path checks it every second.
    served.wait_for("uptime_s", served.number("uptime_s") + 3);
    generations.assert_served(&served, 2);
    served.signal(Signal::HUP);
    served.wait_for("generation", 2);
    generations.assert_served(&served, 3);
    generations.put(4);
    let attempt = client.reload().unwrap();
    assert_eq!(served.outcome_of(attempt), "generation 3 is served");
    generations.assert_served(&served, 4);
    let attempt = client.reload().unwrap();
    assert!(served.outcome_of(attempt).ends_with("already served by generation 3"));
    let info = served.info();
    assert_eq!((info.number::<u64>("swaps"), info.number::<u64>("refused_files")), (Some(2), Some(0)));
    assert_eq!((info.generation(), info.rows()), (Some(3), Some(301)));
    assert!(info.digest().is_some());
}

/// Returns the paths of the tables that rollbacks have saved in a folder.
fn saved_tables(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().contains(".instead-of-")).collect()
}

#[test]
fn a_rollback_is_reported_and_cannot_be_repeated() {
    let _guard = run_concurrently();
    for memory in ["map", "copy", "sealed"] {
        let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
        generations.bake(2..4);
        let served = generations.scene.serve(&["--memory", memory]);
        let mut client = served.client();
        let attempt = client.rollback().unwrap();
        assert!(served.outcome_of(attempt).contains("no earlier generation"));
        generations.assert_served(&served, 1);
        assert_eq!(counts(&served), [1, 0, 0, 0]);

        generations.put(2);
        served.wait_for("generation", 2);
        let replaced = served.info().digest().unwrap();
        let attempt = client.rollback().unwrap();
        let outcome = served.outcome_of(attempt);
        assert!(outcome.starts_with("generation 3 is served: the previous table; "), "{outcome}");
        assert!(outcome.contains(&format!("table {replaced:032x} was replaced by a rollback")), "{outcome}");
        generations.assert_served(&served, 1);
        let info = served.info();
        assert_eq!(info.get("rolled_back"), Some("yes"));
        let refused = info.get("file_refused").unwrap();
        assert!(refused.contains("stays refused: put another table there by rename"), "{refused}");

        let attempt = client.rollback().unwrap();
        let outcome = served.outcome_of(attempt);
        assert!(outcome.starts_with("refused: generation 3 already serves the previous table"), "{outcome}");
        generations.assert_served(&served, 1);
        assert_eq!(counts(&served), [3, 2, 1, 0]);

        // A table that is put in place after a rollback is served.
        generations.put(3);
        served.wait_for("generation", 4);
        generations.assert_served(&served, 3);
        let info = served.info();
        assert_eq!((info.get("rolled_back"), info.get("file_refused")), (Some("no"), Some("")));
        eventually("the saved table is removed", || saved_tables(&generations.scene.path("")).is_empty());
        assert_eq!(counts(&served), [4, 3, 1, 0]);
    }
}

#[test]
fn a_table_stays_refused_after_a_rollback_until_another_one_is_put_in_its_place() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
    generations.bake(2..4);
    let db = generations.scene.db();
    let mut served = generations.scene.serve(&[]);
    generations.put(2);
    served.wait_for("generation", 2);
    let attempt = served.client().rollback().unwrap();
    served.outcome_of(attempt);
    let saved = saved_tables(&generations.scene.path(""));
    assert_eq!(saved.len(), 1);
    assert_eq!(std::fs::metadata(&saved[0]).unwrap().permissions().mode() & 0o777, 0o600);

    // The same table in a newer file.
    std::fs::copy(&db, generations.scene.path("same")).unwrap();
    settle(&generations.scene.path("same"));
    std::fs::rename(generations.scene.path("same"), &db).unwrap();
    served.wait_for("refused_files", 1);
    let attempt = served.client().reload().unwrap();
    let outcome = served.outcome_of(attempt);
    assert!(outcome.starts_with("refused: ") && outcome.contains("was replaced by a rollback"), "{outcome}");
    generations.assert_served(&served, 1);

    for memory in ["map", "copy"] {
        served.kill();
        served = generations.scene.serve(&["--memory", memory]);
        generations.assert_served(&served, 1);
        served.expect_logged("was replaced by a rollback: serving", 1);
        served.wait_for("refused_files", 1);
        let info = served.info();
        assert_eq!(info.get("rolled_back"), Some("yes"));
        assert!(info.get("file_refused").unwrap().contains("stays refused"), "{info:?}");
        let attempt = served.client().rollback().unwrap();
        assert!(served.outcome_of(attempt).starts_with("refused: generation 1 already serves the previous table"));
    }

    // Without the saved table, a reload serves the file at the path again.
    std::fs::remove_file(&saved[0]).unwrap();
    let attempt = served.client().reload().unwrap();
    assert_eq!(served.outcome_of(attempt), "generation 2 is served");
    generations.assert_served(&served, 2);
    assert_eq!(served.info().get("rolled_back"), Some("no"));
    // The table before it is still known.
    let attempt = served.client().rollback().unwrap();
    assert!(served.outcome_of(attempt).starts_with("generation 3 is served"));
    generations.assert_served(&served, 1);
    assert_eq!(saved_tables(&generations.scene.path("")), saved);
}

#[test]
fn a_rollback_that_cannot_be_saved_says_what_a_restart_would_serve() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
    generations.bake(2..4);
    let folder = generations.scene.path("saved");
    let wrong = failure_message(generations.scene.command(&["--rollback-folder", folder.to_str().unwrap()]), 1);
    assert!(wrong.contains("--rollback-folder") && wrong.contains("is not a folder"), "{wrong}");
    std::fs::create_dir(&folder).unwrap();
    let served = generations.scene.serve(&["--rollback-folder", folder.to_str().unwrap()]);
    std::fs::remove_dir(&folder).unwrap();
    generations.put(2);
    served.wait_for("generation", 2);
    let attempt = served.client().rollback().unwrap();
    let outcome = served.outcome_of(attempt);
    assert!(outcome.contains("a restart would serve this one again"), "{outcome}");
    assert!(outcome.contains("No such file or directory"), "{outcome}");
    generations.assert_served(&served, 1);
    let attempt = served.client().reload().unwrap();
    assert!(served.outcome_of(attempt).contains("stays refused"), "the running server does not forget");
    generations.assert_served(&served, 1);
    generations.put(3);
    served.wait_for("generation", 4);
    generations.assert_served(&served, 3);
}

#[test]
fn a_rollback_saves_its_table_in_the_configured_folder_and_a_damaged_copy_is_not_served() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
    generations.bake(2..3);
    let folder = generations.scene.path("saved");
    std::fs::create_dir(&folder).unwrap();
    let options = ["--rollback-folder", folder.to_str().unwrap()];
    let mut served = generations.scene.serve(&options);
    generations.put(2);
    served.wait_for("generation", 2);
    let attempt = served.client().rollback().unwrap();
    served.outcome_of(attempt);
    assert!(saved_tables(&generations.scene.path("")).is_empty());
    let saved = saved_tables(&folder);
    assert_eq!(saved.len(), 1);
    served.kill();
    let mut served = generations.scene.serve(&options);
    generations.assert_served(&served, 1);
    served.kill();
    std::fs::write(&saved[0], "damaged").unwrap();
    settle(&saved[0]);
    let message = failure_message(generations.scene.command(&options), 1);
    assert!(message.contains(saved[0].to_str().unwrap()), "{message}");
}

#[test]
fn a_table_with_the_same_rows_does_not_become_the_previous_one() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 300, len_max_bytes: 50 });
    generations.bake(2..3);
    let served = generations.scene.serve(&[]);
    generations.put(2);
    served.wait_for("generation", 2);
    generations.bake(2..3);
    generations.put(2);
    served.wait_for("generation", 3);
    let attempt = served.client().rollback().unwrap();
    assert!(served.outcome_of(attempt).starts_with("generation 4 is served"));
    generations.assert_served(&served, 1);
}

#[test]
fn a_tcp_client_may_not_reload_or_roll_back() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 3, len_max_bytes: 5 });
    generations.bake(2..3);
    let served = generations.scene.serve(&["--no-watch", "--tcp", "127.0.0.1:0"]);
    generations.put(2);
    let address = served.info().get("tcp").unwrap().to_owned();
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    for op in [RELOAD, ROLLBACK] {
        tcp.write_all(&request(op, 0)).unwrap();
        expect(&mut tcp, &answer(2, b""));
    }
    assert_eq!((served.number("reload_requested"), served.number("generation")), (0, 1));
    assert_eq!(counts(&served), [1, 0, 0, 0]);
    let attempt = served.client().reload().unwrap();
    assert_eq!(served.outcome_of(attempt), "generation 2 is served");
    generations.assert_served(&served, 2);
}

/// A file that the server must reject: its name, the function that puts it in place, and the log message.
type Bad = (&'static str, Box<dyn Fn(&Scene)>, &'static str);

/// Puts bytes in place by renaming.
fn put_bytes(scene: &Scene, bytes: &[u8]) {
    std::fs::write(scene.path("bad"), bytes).unwrap();
    settle(&scene.path("bad"));
    std::fs::rename(scene.path("bad"), scene.db()).unwrap();
}

/// Derives every kind of bad file from a good one, except files that fail their canaries.
fn bad_files(good: Vec<u8>) -> Vec<Bad> {
    let put = |change: fn(&mut Vec<u8>)| -> Box<dyn Fn(&Scene)> {
        let mut bytes = good.clone();
        change(&mut bytes);
        Box::new(move |scene| put_bytes(scene, &bytes))
    };
    let remove = |scene: &Scene| {
        let _ = std::fs::remove_file(scene.db());
    };
    vec![
        ("a flipped bit in the index", put(|bytes| *bytes.iter_mut().rev().nth(300).unwrap() ^= 4), "damaged"),
        ("a flipped bit in the header", put(|bytes| bytes[100] ^= 1), "damaged"),
        ("half of it", put(|bytes| bytes.truncate(bytes.len() / 2)), "truncated"),
        ("nothing in it", put(Vec::clear), "0 bytes"),
        ("another version", put(|bytes| bytes[8] = 77), "version"),
        ("text", put(|bytes| *bytes = b"key,value\n".repeat(1000)), "not a baked file"),
        (
            "a folder",
            Box::new(move |scene| {
                remove(scene);
                std::fs::create_dir(scene.db()).unwrap();
            }),
            "not a regular file",
        ),
        (
            "a pipe",
            Box::new(move |scene| {
                std::fs::remove_dir(scene.db()).unwrap();
                let pipe = std::process::Command::new("mkfifo").arg(scene.db()).status().unwrap();
                assert!(pipe.success());
            }),
            "not a regular file",
        ),
    ]
}

#[test]
fn a_bad_file_is_rejected_with_its_reason_and_the_old_one_stays_served() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 3000, len_max_bytes: 50 });
    generations.bake(2..4);
    let scene = &generations.scene;
    let served = scene.serve(&[]);
    let load = Load::start(&served, generations.shape, 1, ConnectionCounts { native: 3, redis: 1, slow: 0 });
    let mut refused = 0;
    for (what, put, reason) in bad_files(std::fs::read(generations.baked(2)).unwrap()) {
        put(scene);
        refused += 1;
        served.wait_for("refused_files", refused);
        served.expect_logged("refused: ", refused as usize);
        let log = served.log();
        let line = log.lines().rfind(|line| line.contains("refused: ")).unwrap();
        assert!(line.contains(reason) && line.contains("generation 1 is still served"), "{what}: {line}");
        load.wait_for_pipelines(10);
        // The server does not try the file again by itself.
        assert_eq!(served.number("refused_files"), refused, "{what}");
    }
    std::fs::remove_file(scene.db()).unwrap();
    let attempt = served.client().reload().unwrap();
    assert!(served.outcome_of(attempt).contains("No such file"));
    assert_eq!((served.number("generation"), served.number("swaps")), (1, 0));
    served.expect_logged("refused: ", refused as usize + 1);
    load.wait_for_pipelines(10);
    generations.put(3);
    served.wait_for("generation", 2);
    load.expect_at_least(3);
    load.wait_for_pipelines(10);
    load.finish();
    generations.assert_served(&served, 3);
    assert_eq!(counts(&served), [2, 1, 0, refused + 1]);
}

#[test]
fn a_file_that_does_not_match_the_canaries_is_rejected() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 100, len_max_bytes: 50 });
    generations.bake(2..4);
    let canary = |generation| {
        let digest = zero_kv::server::value_digest(&generations.shape.value(generation, 7).unwrap());
        format!("7,{digest:032x}\n102,absent\n")
    };
    let canaries = generations.scene.path("canaries");
    std::fs::write(&canaries, canary(1)).unwrap();
    let served = generations.scene.serve(&["--canary", "canaries"]);
    generations.put(2);
    served.wait_for("refused_files", 1);
    served.expect_logged("canary 7: ", 1);
    generations.assert_served(&served, 1);
    assert_eq!(counts(&served), [1, 0, 0, 1]);
    // The server reads the canaries at each check.
    std::fs::write(&canaries, canary(3)).unwrap();
    generations.put(3);
    served.wait_for("generation", 2);
    generations.assert_served(&served, 3);
    assert_eq!(counts(&served), [2, 1, 0, 1]);
}

#[test]
fn an_unreadable_file_is_rejected_until_it_is_readable() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 100, len_max_bytes: 50 });
    generations.bake(2..3);
    let mode = |path: PathBuf, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let program = SharedProgram::copy(env!("CARGO_BIN_EXE_kv_store"));
    let mut command = Command::new(program.path());
    command.args(generations.scene.command(&[]).get_args()).env("RUST_LOG", "info");
    if geteuid().is_root() {
        // Root can read every file, so the server runs as another user.
        command.uid(NOBODY);
        mode(generations.scene.path(""), 0o777);
    }
    let served = generations.scene.run(command);
    mode(generations.baked(2), 0);
    generations.put(2);
    served.wait_for("refused_files", 1);
    served.expect_logged("Permission denied", 1);
    generations.assert_served(&served, 1);
    assert_eq!(counts(&served), [1, 0, 0, 1]);
    mode(generations.scene.db(), 0o644);
    served.wait_for("generation", 2);
    generations.assert_served(&served, 2);
    assert_eq!(counts(&served), [2, 1, 0, 1]);
}

#[test]
fn a_switched_link_is_a_new_file() {
    let _guard = run_concurrently();
    let generations = Generations::new(Shape { rows: 100, len_max_bytes: 50 });
    generations.bake(2..5);
    let scene = &generations.scene;
    let switch = |target: &str, link: &str| {
        symlink(target, scene.path("link.new")).unwrap();
        std::fs::rename(scene.path("link.new"), scene.path(link)).unwrap();
    };
    // Renames files as a person would.
    std::fs::rename(scene.db(), generations.baked(1)).unwrap();
    switch("1.db", "storage.db");
    let served = scene.serve(&[]);
    switch("2.db", "storage.db");
    served.wait_for("generation", 2);
    generations.assert_served(&served, 2);
    assert_eq!(counts(&served), [2, 1, 0, 0]);
    drop(served);

    // Switches links as Kubernetes does: the file is a link into a folder that is itself a link.
    for number in [3, 4] {
        let folder = scene.path(&format!("..{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::rename(generations.baked(number), folder.join("storage.db")).unwrap();
    }
    switch("..3", "..data");
    switch("..data/storage.db", "storage.db");
    let served = scene.serve(&[]);
    generations.assert_served(&served, 3);
    switch("..4", "..data");
    served.wait_for("generation", 2);
    std::fs::remove_dir_all(scene.path("..3")).unwrap();
    generations.assert_served(&served, 4);
    assert_eq!(counts(&served), [2, 1, 0, 0]);
}
