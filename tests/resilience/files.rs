//! The served file is truncated, overwritten, deleted, or replaced under load.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use zero_kv::store::Unchecked;

use crate::helpers::generations::Shape;
use crate::helpers::mixed_load::Mixed;
use crate::helpers::pipelined_gets::{Answer, Lane, Protocol};
use crate::helpers::random::random;
use crate::helpers::scenes::{Scene, Served};
use crate::helpers::waiting::{asked_time, eventually};
use crate::{report, together};

const SHAPE: Shape = Shape { rows: 3000, len_max_bytes: 500 };

/// What the server logs about the block that [`FAULTS`] overwrites.
const DAMAGED_BLOCK: &str = "block 2 of the records is damaged";

/// What a server does about it, by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// It answers with errors until another file is in place.
    Errs,
    /// It answers as before, though it may have looked at the file again.
    Serves,
    /// It answers with errors where the file is damaged, and as before elsewhere.
    ErrsInPart,
    /// It serves what is there now, the next generation.
    Adopts,
}

/// What happens to the file: its place, and the file of the generation behind the next, which is as long.
type Happens = fn(&Path, &Path);

fn cut_to(db: &Path, len_bytes: impl Fn(u64) -> u64) {
    let file = File::options().write(true).open(db).unwrap();
    file.set_len(len_bytes(file.metadata().unwrap().len())).unwrap();
}

/// Overwrites bytes as `dd conv=notrunc` does.
fn overwrite(db: &Path, at: u64, len_bytes: usize) {
    let mut random = random(at);
    let bytes: Vec<u8> = (0..len_bytes).map(|_| random() as u8).collect();
    File::options().write(true).open(db).unwrap().write_all_at(&bytes, at).unwrap();
}

/// Overwrites a file as `cp` does: it is emptied, then written to.
fn copy_over(db: &Path, other: &Path) {
    let bytes = fs::read(other).unwrap();
    let mut file = File::create(db).unwrap();
    bytes.chunks(64 << 10).for_each(|chunk| file.write_all(chunk).unwrap());
}

const FAULTS: [(&str, Then, Happens); 14] = [
    ("emptied", Then::Errs, |db, _| cut_to(db, |_| 0)),
    ("cut to a half", Then::Errs, |db, _| cut_to(db, |len_bytes| len_bytes / 2)),
    ("cut to one byte", Then::Errs, |db, _| cut_to(db, |_| 1)),
    ("emptied, and made as long as before", Then::Errs, |db, _| {
        let len_bytes = fs::metadata(db).unwrap().len();
        cut_to(db, |_| 0);
        cut_to(db, |_| len_bytes);
    }),
    ("made longer", Then::Serves, |db, _| cut_to(db, |len_bytes| len_bytes + 5000)),
    ("overwritten by cp with other rows, as long", Then::Adopts, copy_over),
    ("overwritten without being emptied", Then::Adopts, |db, other| {
        let file = File::options().write(true).open(db).unwrap();
        file.write_all_at(&fs::read(other).unwrap(), 0).unwrap();
    }),
    ("a block of records overwritten", Then::ErrsInPart, |db, _| {
        let records = Unchecked::open(db).unwrap().layout().records;
        overwrite(db, records.offset_bytes + (2 << 14), 1 << 14);
    }),
    ("the index overwritten", Then::Errs, |db, _| {
        let pilots = Unchecked::open(db).unwrap().layout().pilots;
        overwrite(db, pilots.offset_bytes, pilots.len_bytes as usize);
    }),
    ("the checksums overwritten", Then::Errs, |db, _| {
        let sums = Unchecked::open(db).unwrap().layout().block_sums;
        overwrite(db, sums.offset_bytes, 8);
    }),
    // What it says is in memory.
    ("the header overwritten", Then::Serves, |db, _| overwrite(db, 0, 256)),
    ("deleted", Then::Serves, |db, _| fs::remove_file(db).unwrap()),
    ("replaced by a folder", Then::Serves, |db, _| {
        fs::remove_file(db).unwrap();
        fs::create_dir(db).unwrap();
    }),
    ("touched", Then::Serves, |db, _| {
        File::options().write(true).open(db).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    }),
];

/// Every key's answer, all asked for at once.
fn answers(served: &Served, protocol: Protocol) -> Vec<Answer> {
    let mut lane = Lane::new(protocol, served.connect());
    let keys: Vec<u64> = (1..=SHAPE.rows).collect();
    keys.chunks(256)
        .flat_map(|keys| {
            lane.ask(keys);
            lane.answers(keys.len()).unwrap()
        })
        .collect()
}

fn is_whole(served: &Served, generation: u64) -> bool {
    let all = |key: u64, found: &Answer| *found == Answer::Value(SHAPE.value(generation, key).unwrap());
    (1..).zip(&answers(served, Protocol::Native)).all(|(key, found)| all(key, found))
}

/// A server whose file is changed in one way after the other. Generations are baked when they are needed. All have odd
/// numbers, and so the same length.
struct Story {
    /// Dropped before the scene, whose folder has the log that a failed test prints.
    served: Served,
    load: Mixed,
    scene: Scene,
    generation: u64,
}

impl Story {
    fn begin(options: &[&str]) -> Story {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let served = scene.serve(options);
        let load = Mixed::start(&served, SHAPE, 1);
        load.wait_for_right(1000);
        Story { served, load, scene, generation: 1 }
    }

    fn bake_next(&self) -> std::path::PathBuf {
        let next = self.scene.path("next.db");
        SHAPE.bake(self.generation + 2, &next);
        next
    }

    /// Something happens to the file, and the server does about it what it should.
    fn goes_on(&mut self, what: &str, then: Then, happens: Happens) {
        let (next, db) = (self.bake_next(), self.scene.db());
        let before = self.served.info();
        let named_before = self.served.logged(DAMAGED_BLOCK);
        if then == Then::Adopts {
            self.load.allow(self.generation + 2);
        }
        happens(&db, &next);
        match then {
            Then::Errs => {
                self.load.wait_for_errors(5000);
                eventually("it says so", || self.served.info().get("state") == Some("changed"));
                self.served.wait_for("faults", before.number::<u64>("faults").unwrap() + 1);
                let all = answers(&self.served, Protocol::Redis);
                assert!(all.iter().all(|answer| *answer == Answer::Error), "{what}: {} answers", all.len());
            }
            Then::Serves => {
                // At once, or after a moment.
                eventually("all is served as before", || is_whole(&self.served, self.generation));
                self.load.wait_for_right(5000);
            }
            Then::ErrsInPart => {
                let count = |kind: fn(&Answer) -> bool, served: &Served| {
                    answers(served, Protocol::Native).iter().filter(|answer| kind(answer)).count() as u64
                };
                eventually("most is served", || {
                    let right = count(|answer| matches!(answer, Answer::Value(_)), &self.served);
                    right + count(|answer| *answer == Answer::Error, &self.served) == SHAPE.rows
                        && right > SHAPE.rows / 2
                });
                self.load.wait_for_errors(1);
                eventually("the block is named", || self.served.logged(DAMAGED_BLOCK) == named_before + 1);
            }
            Then::Adopts => {
                eventually("the other rows are served", || is_whole(&self.served, self.generation + 2));
                self.generation += 2;
                self.load.expect_at_least(self.generation);
            }
        }
        assert!(self.served.is_alive(), "{what}");
    }

    /// A good file is put in place, and all is well without a restart.
    fn is_mended(&mut self, what: &str) {
        let (next, db) = (self.bake_next(), self.scene.db());
        if db.is_dir() {
            fs::remove_dir(&db).unwrap();
        }
        self.load.allow(self.generation + 2);
        self.scene.put(&next);
        self.generation += 2;
        eventually(&format!("all is well after the file was {what}"), || is_whole(&self.served, self.generation));
        let info = self.served.info();
        assert_eq!(info.get("state"), Some("serving"), "{what}");
        self.load.expect_at_least(self.generation);
        self.load.wait_for_right(1000);
    }
}

#[test]
fn whatever_happens_to_a_mapped_file_no_wrong_byte_is_sent_and_a_good_file_mends_it() {
    let _together = together();
    let (started, long) = (Instant::now(), asked_time().unwrap_or_default());
    let every_way = [&["--memory", "map"][..], &["--memory", "map", "--warm", "--verify", "full"]];
    // One way is enough, unless there is time.
    for options in every_way.into_iter().take(if long.is_zero() { 1 } else { 2 }) {
        let mut story = Story::begin(options);
        let mut rounds = 0;
        while rounds == 0 || started.elapsed() < long / 2 {
            for (what, then, happens) in FAULTS {
                let changes = story.served.logged("was changed in place");
                story.goes_on(what, then, happens);
                assert!(story.served.logged("was changed in place") <= changes + 1, "{what} is logged once");
                story.is_mended(what);
            }
            rounds += 1;
        }
        let (errors, faults) = (story.served.number("errors"), story.served.number("faults"));
        assert!(errors > 0 && faults > 0);
        story.load.finish();
        report(&format!("{} faults of a mapped file: {errors} errors, no wrong answer", rounds * FAULTS.len()));
    }
}

#[test]
fn a_copy_and_a_sealed_copy_do_not_mind_what_happens_to_the_file() {
    let _together = together();
    for memory in ["copy", "sealed"] {
        let mut story = Story::begin(&["--memory", memory]);
        for (what, then, happens) in FAULTS {
            // What is good is served.
            story.goes_on(what, if then == Then::Adopts { then } else { Then::Serves }, happens);
            story.is_mended(what);
        }
        assert_eq!((story.served.number("errors"), story.served.number("faults")), (0, 0), "{memory}");
        story.load.finish();
    }
}

#[test]
fn a_file_that_is_overwritten_while_nobody_asks_is_noticed() {
    let _together = together();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(2, &scene.path("other.db"));
    let served = scene.serve(&["--no-watch"]);
    assert!(is_whole(&served, 1));
    cut_to(&scene.db(), |len_bytes| len_bytes / 2);
    eventually("it is logged", || served.logged("was changed in place") == 1);
    assert_eq!(served.info().get("state"), Some("changed"));
    // A server that is not to look for new files does when its own is gone.
    scene.put(&scene.path("other.db"));
    eventually("the other file is served", || is_whole(&served, 2));
}
