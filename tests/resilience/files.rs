//! The served file is truncated, overwritten, deleted, or replaced under load.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use zero_kv::store::Unchecked;

use crate::helpers::generations::Shape;
use crate::helpers::mixed_load::MixedLoad;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::waiting::{configured_duration, eventually};
use crate::{report, run_concurrently};

const SHAPE: Shape = Shape { rows: 3000, len_max_bytes: 500 };

/// The server's log text for the block that [`FAULTS`] overwrites.
const DAMAGED_BLOCK: &str = "block 2 of the records is damaged";

/// The server's log text for a file that was changed and is served again.
const SERVING_AGAIN: &str = "serving again: each block is verified again on first access";

/// How a server reacts to a change of its file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reaction {
    /// Every response is an error until another file is in place.
    Errs,
    /// Responses do not change, although the server may check the file again.
    Serves,
    /// Responses are errors where the file is damaged, and unchanged elsewhere.
    ErrsInPart,
    /// The server serves the new content as the next generation.
    Adopts,
}

/// Changes the file at the first path. The second path has a file of a later generation with the same length.
type Change = fn(&Path, &Path);

fn truncate_to(db: &Path, len_bytes: impl Fn(u64) -> u64) {
    let file = File::options().write(true).open(db).unwrap();
    file.set_len(len_bytes(file.metadata().unwrap().len())).unwrap();
}

/// Overwrites bytes as `dd conv=notrunc` does.
fn overwrite(db: &Path, at: u64, len_bytes: usize) {
    let mut random = random(at);
    let bytes: Vec<u8> = (0..len_bytes).map(|_| random() as u8).collect();
    File::options().write(true).open(db).unwrap().write_all_at(&bytes, at).unwrap();
}

/// Overwrites a file as `cp` does, which truncates the file and then writes to it.
fn copy_over(db: &Path, other: &Path) {
    let bytes = fs::read(other).unwrap();
    let mut file = File::create(db).unwrap();
    bytes.chunks(64 << 10).for_each(|chunk| file.write_all(chunk).unwrap());
}

const FAULTS: [(&str, Reaction, Change); 14] = [
    ("emptied", Reaction::Errs, |db, _| truncate_to(db, |_| 0)),
    ("cut to a half", Reaction::Errs, |db, _| truncate_to(db, |len_bytes| len_bytes / 2)),
    ("cut to one byte", Reaction::Errs, |db, _| truncate_to(db, |_| 1)),
    ("emptied, and made as long as before", Reaction::Errs, |db, _| {
        let len_bytes = fs::metadata(db).unwrap().len();
        truncate_to(db, |_| 0);
        truncate_to(db, |_| len_bytes);
    }),
    ("made longer", Reaction::Serves, |db, _| truncate_to(db, |len_bytes| len_bytes + 5000)),
    ("overwritten by cp with other rows, as long", Reaction::Adopts, copy_over),
    ("overwritten without being emptied", Reaction::Adopts, |db, other| {
        let file = File::options().write(true).open(db).unwrap();
        file.write_all_at(&fs::read(other).unwrap(), 0).unwrap();
    }),
    ("a block of records overwritten", Reaction::ErrsInPart, |db, _| {
        let records = Unchecked::open(db).unwrap().layout().records;
        overwrite(db, records.offset_bytes + (2 << 12), 1 << 12);
    }),
    ("the index overwritten", Reaction::Errs, |db, _| {
        let pilots = Unchecked::open(db).unwrap().layout().pilots;
        overwrite(db, pilots.offset_bytes, pilots.len_bytes as usize);
    }),
    ("the checksums overwritten", Reaction::Errs, |db, _| {
        let sums = Unchecked::open(db).unwrap().layout().block_sums;
        overwrite(db, sums.offset_bytes, 8);
    }),
    // The server has the header in memory.
    ("the header overwritten", Reaction::Serves, |db, _| overwrite(db, 0, 256)),
    ("deleted", Reaction::Serves, |db, _| fs::remove_file(db).unwrap()),
    ("replaced by a folder", Reaction::Serves, |db, _| {
        fs::remove_file(db).unwrap();
        fs::create_dir(db).unwrap();
    }),
    ("touched", Reaction::Serves, |db, _| {
        File::options().write(true).open(db).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    }),
];

/// Returns the response for every key, requested in batches.
fn responses(served: &Server, protocol: Protocol) -> Vec<Answer> {
    let mut connection = PipelinedConnection::new(protocol, served.connect());
    let keys: Vec<u64> = (1..=SHAPE.rows).collect();
    keys.chunks(256)
        .flat_map(|keys| {
            connection.ask(keys);
            connection.answers(keys.len()).unwrap()
        })
        .collect()
}

fn serves_all_of(served: &Server, generation: u64) -> bool {
    let all = |key: u64, found: &Answer| *found == Answer::Value(SHAPE.value(generation, key).unwrap());
    (1..).zip(&responses(served, Protocol::Native)).all(|(key, found)| all(key, found))
}

/// A server whose file is changed in several ways, one after the other. Generations are baked when they are needed. All
/// have odd numbers, so that two successive files have equal lengths if their numbers have equally many digits.
struct ChangedFile {
    /// Declared before the scene, whose folder has the log that a failed test prints, because fields are dropped in
    /// order.
    served: Server,
    load: MixedLoad,
    scene: Scene,
    generation: u64,
}

impl ChangedFile {
    fn begin(options: &[&str]) -> ChangedFile {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let served = scene.serve(options);
        let load = MixedLoad::start(&served, SHAPE, 1);
        load.wait_for_right(1000);
        ChangedFile { served, load, scene, generation: 1 }
    }

    fn bake_next(&self) -> std::path::PathBuf {
        let next = self.scene.path("next.db");
        SHAPE.bake(self.generation + 2, &next);
        next
    }

    /// Changes the file, and asserts that the server reacts as expected.
    fn change_file(&mut self, what: &str, reaction: Reaction, change: Change) {
        let (next, db) = (self.bake_next(), self.scene.db());
        let before = self.served.info();
        let named_before = self.served.logged(DAMAGED_BLOCK);
        let resumed_before = self.served.logged(SERVING_AGAIN);
        if reaction == Reaction::Adopts {
            self.load.allow(self.generation + 2);
        }
        change(&db, &next);
        match reaction {
            Reaction::Errs => {
                self.load.wait_for_errors(5000);
                // If the file is as long as before, the server soon serves it again, and each block is verified again.
                eventually("Info reports the change", || {
                    self.served.info().get("state") == Some("changed")
                        || self.served.logged(SERVING_AGAIN) > resumed_before
                });
                self.served.wait_for("faults", before.number::<u64>("faults").unwrap() + 1);
                let all = responses(&self.served, Protocol::Redis);
                assert!(all.iter().all(|answer| *answer == Answer::Error), "{what}: {} responses", all.len());
            }
            Reaction::Serves => {
                // The server may first respond with errors.
                eventually("all rows are served as before", || serves_all_of(&self.served, self.generation));
                self.load.wait_for_right(5000);
            }
            Reaction::ErrsInPart => {
                let count = |kind: fn(&Answer) -> bool, served: &Server| {
                    responses(served, Protocol::Native).iter().filter(|answer| kind(answer)).count() as u64
                };
                eventually("most rows are served", || {
                    let right = count(|answer| matches!(answer, Answer::Value(_)), &self.served);
                    right + count(|answer| *answer == Answer::Error, &self.served) == SHAPE.rows
                        && right > SHAPE.rows / 2
                });
                self.load.wait_for_errors(1);
                eventually("the block is named", || self.served.logged(DAMAGED_BLOCK) == named_before + 1);
            }
            Reaction::Adopts => {
                eventually("the other rows are served", || serves_all_of(&self.served, self.generation + 2));
                self.generation += 2;
                self.load.expect_at_least(self.generation);
            }
        }
        assert!(self.served.is_alive(), "{what}");
    }

    /// Puts a good file in place, and asserts that the server serves it completely without a restart.
    fn restore_service(&mut self, what: &str) {
        let (next, db) = (self.bake_next(), self.scene.db());
        if db.is_dir() {
            fs::remove_dir(&db).unwrap();
        }
        self.load.allow(self.generation + 2);
        self.scene.put(&next);
        self.generation += 2;
        eventually(&format!("all rows are served after the file was {what}"), || {
            serves_all_of(&self.served, self.generation)
        });
        let info = self.served.info();
        assert_eq!(info.get("state"), Some("serving"), "{what}");
        self.load.expect_at_least(self.generation);
        self.load.wait_for_right(1000);
    }
}

#[test]
fn no_change_to_a_mapped_file_sends_a_wrong_byte_and_a_good_file_restores_service() {
    let _guard = run_concurrently();
    let (started, long) = (Instant::now(), configured_duration().unwrap_or_default());
    let every_way = [&["--memory", "map"][..], &["--memory", "map", "--warm", "--verify", "full"]];
    // One set of options is enough, unless the test has time.
    for options in every_way.into_iter().take(if long.is_zero() { 1 } else { 2 }) {
        let mut server = ChangedFile::begin(options);
        let mut rounds = 0;
        while rounds == 0 || started.elapsed() < long / 2 {
            for (what, reaction, change) in FAULTS {
                let changes = server.served.logged("was changed in place");
                server.change_file(what, reaction, change);
                assert!(server.served.logged("was changed in place") <= changes + 1, "{what} is logged once");
                server.restore_service(what);
            }
            rounds += 1;
        }
        let (errors, faults) = (server.served.number("errors"), server.served.number("faults"));
        assert!(errors > 0 && faults > 0);
        server.load.finish();
        report(&format!("{} faults of a mapped file: {errors} errors, no wrong answer", rounds * FAULTS.len()));
    }
}

#[test]
fn a_copy_and_a_sealed_copy_are_unaffected_by_changes_to_the_file() {
    let _guard = run_concurrently();
    for memory in ["copy", "sealed"] {
        let mut server = ChangedFile::begin(&["--memory", memory]);
        for (what, reaction, change) in FAULTS {
            // A later generation that replaces the content is served.
            server.change_file(what, if reaction == Reaction::Adopts { reaction } else { Reaction::Serves }, change);
            server.restore_service(what);
        }
        assert_eq!((server.served.number("errors"), server.served.number("faults")), (0, 0), "{memory}");
        server.load.finish();
    }
}

#[test]
fn a_file_overwritten_without_traffic_is_detected() {
    let _guard = run_concurrently();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(2, &scene.path("other.db"));
    let served = scene.serve(&["--no-watch"]);
    assert!(serves_all_of(&served, 1));
    truncate_to(&scene.db(), |len_bytes| len_bytes / 2);
    eventually("the change is logged", || served.logged("was changed in place") == 1);
    assert_eq!(served.info().get("state"), Some("changed"));
    // Even with --no-watch, a server looks for a new file after its own was changed.
    scene.put(&scene.path("other.db"));
    eventually("the other file is served", || serves_all_of(&served, 2));
}
