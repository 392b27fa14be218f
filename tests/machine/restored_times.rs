//! Processes that write to a file in place and then restore the file's modification time, and changes of a file's names
//! and permissions, which leave its bytes as they are. Only the change time (ctime) reveals both.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;
use zero_kv::Lookup;
use zero_kv::LookupError;
use zero_kv::client::{Client, Direct};

use super::paused::LEASE_BREAK_TIME_MIN;
use super::requirements::leases;
use crate::helpers::generations::{Shape, named};
use crate::helpers::intercepted_calls::{Calls, Verdict, require_interception, spawn};
use crate::helpers::programs::program;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::scenes::{Scene, is_leased};
use crate::helpers::servers::Server;
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: 2000, len_max_bytes: 300 };
/// The key whose value is overwritten, and a key whose record is in another block.
const KEY: u64 = 7;
const OTHER_KEY: u64 = 1990;

/// Overwrites a file in place, and then restores its modification time.
fn write_and_restore_time(db: &Path, bytes: &[u8], offset_bytes: u64) {
    let file = File::options().write(true).open(db).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, offset_bytes).unwrap();
    file.set_modified(modified).unwrap();
}

/// Overwrites the value of [`KEY`].
fn overwrite_value(db: &Path) {
    let value = SHAPE.value(1, KEY).unwrap();
    let at = fs::read(db).unwrap().windows(value.len()).position(|window| window == value).unwrap();
    write_and_restore_time(db, &vec![b'#'; value.len()], at as u64);
}

/// Clients of one server: over the native protocol, over the Redis protocol, and in direct mode. A lookup returns
/// `None` if it fails.
struct Lookups {
    client: Client,
    redis: BufReader<UnixStream>,
    direct: Direct,
}

impl Lookups {
    fn new(served: &Server) -> Lookups {
        let direct = served.client().direct().unwrap();
        Lookups { client: served.client(), redis: BufReader::new(served.connect()), direct }
    }

    fn get(&mut self, key: u64) -> [Option<Vec<u8>>; 3] {
        let native = self.client.get(key).ok().map(Option::unwrap);
        [native, self.redis_get(key), self.direct.get(key).ok().map(Option::unwrap)]
    }

    fn redis_get(&mut self, key: u64) -> Option<Vec<u8>> {
        write!(self.redis.get_mut(), "GET {key}\r\n").unwrap();
        let mut line = String::new();
        self.redis.read_line(&mut line).unwrap();
        let len_bytes: usize = line.strip_prefix('$')?.trim_end().parse().unwrap();
        let mut value = vec![0; len_bytes + 2];
        self.redis.read_exact(&mut value).unwrap();
        value.truncate(len_bytes);
        Some(value)
    }

    /// Asserts that every lookup returns the value of generation 1.
    fn expect_all(&mut self, what: &str) {
        for key in 1..=SHAPE.rows {
            assert!(self.get(key).iter().all(|value| *value == SHAPE.value(1, key)), "{what}: key {key}");
        }
    }
}

/// Returns a server without a lease, so that each batch examines the file.
fn served_without_lease() -> (Scene, Server) {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let served = scene.serve(&["--no-lease"]);
    (scene, served)
}

pub(crate) fn a_value_that_is_overwritten_before_the_time_is_restored_is_an_error() {
    let (scene, served) = served_without_lease();
    let mut lookups = Lookups::new(&served);
    // Verifies every block, so that later lookups rely on the recorded verification.
    lookups.expect_all("before the write");
    overwrite_value(&scene.db());
    assert_eq!(lookups.get(KEY), [None, None, None]);
    for key in 1..=SHAPE.rows {
        let expected = SHAPE.value(1, key);
        assert!(lookups.get(key).into_iter().all(|value| value.is_none() || value == expected), "key {key}");
    }
    assert!(lookups.get(OTHER_KEY).iter().all(|value| *value == SHAPE.value(1, OTHER_KEY)), "an intact block");
}

pub(crate) fn changes_of_names_and_permissions_fail_no_lookup() {
    let (scene, served) = served_without_lease();
    let mut lookups = Lookups::new(&served);
    let snapshot = lookups.direct.snapshot();
    lookups.expect_all("before the changes");
    let mode = |mode| fs::set_permissions(scene.db(), Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    lookups.expect_all("after a change of the permissions");
    mode(0o644);
    assert!(snapshot.is_unchanged(), "a change of the permissions");
    fs::hard_link(scene.db(), scene.path("link.db")).unwrap();
    lookups.expect_all("after a link");
    fs::remove_file(scene.path("link.db")).unwrap();
    lookups.expect_all("after the link was removed");
    assert_eq!((served.logged("was changed in place"), served.number("generation")), (0, 1));

    // Replaces the file while several threads look keys up. Each lookup has the value of one generation.
    let repeated = |_| {
        let mut lookups = Lookups::new(&served);
        move || {
            for key in (1..=SHAPE.rows).step_by(7) {
                for value in lookups.get(key) {
                    let value = value.expect("no lookup fails");
                    assert_eq!(SHAPE.value(named(&value).unwrap(), key).as_ref(), Some(&value));
                }
            }
        }
    };
    while_threads_repeat(3, repeated, || {
        for generation in 2..6 {
            SHAPE.bake(generation, &scene.path("new.db"));
            fs::rename(scene.path("new.db"), scene.db()).unwrap();
            served.wait_for("generation", generation);
        }
    });
    for key in 1..=SHAPE.rows {
        assert_eq!(snapshot.get(key), Ok(SHAPE.value(1, key)), "a snapshot of a file without a name");
    }
    assert!(snapshot.is_unchanged());
}

/// Changes the names and the permissions of a file for some time, without a pause or with short ones.
fn change_metadata(db: &Path, link: &Path, pauses: &[Duration]) {
    for pause in pauses {
        let until = Instant::now() + CHANGES_MIN;
        while Instant::now() < until {
            fs::hard_link(db, link).unwrap();
            thread::sleep(*pause);
            fs::set_permissions(db, Permissions::from_mode(0o600)).unwrap();
            fs::rename(link, link.with_extension("renamed")).unwrap();
            thread::sleep(*pause);
            fs::set_permissions(db, Permissions::from_mode(0o644)).unwrap();
            fs::remove_file(link.with_extension("renamed")).unwrap();
        }
    }
}

/// For how long the metadata change with each pause.
const CHANGES_MIN: Duration = Duration::from_millis(1500);
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(2)];

pub(crate) fn changes_of_names_and_permissions_without_pause_fail_no_lookup() {
    let (scene, served) = served_without_lease();
    let looked_up = AtomicU64::new(0);
    let repeated = |thread| {
        let mut lookups = Lookups::new(&served);
        let (mut key, looked_up) = (thread as u64 * 500, &looked_up);
        move || {
            key = key % SHAPE.rows + 1;
            let expected = SHAPE.value(1, key);
            for (how, value) in ["native", "redis", "direct"].iter().zip(lookups.get(key)) {
                assert_eq!(value, expected, "{how}, key {key}");
            }
            let keys: Vec<u64> = (1..=SHAPE.rows).skip(key as usize).step_by(37).collect();
            let expected: Vec<_> = keys.iter().map(|key| SHAPE.value(1, *key)).collect();
            assert_eq!(lookups.client.get_many(&keys).unwrap(), expected);
            assert_eq!(lookups.direct.get_many(&keys).unwrap(), expected);
            let rows: Vec<_> = lookups.direct.snapshot().range(key..key + 20).unwrap().map(Result::unwrap).collect();
            assert!(rows.iter().zip(key..).all(|((_, value), key)| SHAPE.value(1, key).as_ref() == Some(value)));
            looked_up.fetch_add(1, Ordering::Relaxed);
        }
    };
    while_threads_repeat(3, repeated, || {
        change_metadata(&scene.db(), &scene.path("link.db"), &PAUSES);
        let before = looked_up.load(Ordering::Relaxed);
        eventually("lookups go on", || looked_up.load(Ordering::Relaxed) > before + 3);
    });
    assert_eq!((served.logged("was changed in place"), served.number("generation")), (0, 1));
}

/// A process overwrites a value, and restores the bytes and the modification time at once, again and again. Another one
/// changes the names of the file, so that its change time says nothing.
pub(crate) fn a_value_that_is_overwritten_and_restored_while_names_change_is_right_or_an_error() {
    let (scene, served) = served_without_lease();
    let value = SHAPE.value(1, KEY).unwrap();
    let at = fs::read(scene.db()).unwrap().windows(value.len()).position(|window| window == value).unwrap() as u64;
    let repeated = |_| {
        let mut lookups = Lookups::new(&served);
        move || {
            for value in lookups.get(KEY).into_iter().flatten() {
                assert_eq!(Some(value), SHAPE.value(1, KEY));
            }
        }
    };
    let (file, wrong) = (File::options().write(true).open(scene.db()).unwrap(), vec![b'#'; value.len()]);
    let modified = file.metadata().unwrap().modified().unwrap();
    let overwrite = |_| {
        || {
            file.write_all_at(&wrong, at).unwrap();
            file.write_all_at(&value, at).unwrap();
            file.set_modified(modified).unwrap();
        }
    };
    while_threads_repeat(3, repeated, || {
        while_threads_repeat(1, overwrite, || {
            change_metadata(&scene.db(), &scene.path("link.db"), &PAUSES[..2]);
        });
    });
}

/// While the server is suspended, the kernel breaks its lease, and a process writes to the file.
pub(crate) fn direct_clients_of_a_stopped_server_return_no_byte_that_was_written_before_the_time_was_restored()
-> Result<(), Missing> {
    leases()?;
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(3, &scene.path("other.db"));
    let other = fs::read(scene.path("other.db")).unwrap();
    let served = scene.serve(&["--no-watch"]);
    assert!(is_leased(&scene.db()));
    let [partly, wholly] = [(); 2].map(|()| served.client().direct().unwrap());
    let assert_all_served = |direct: &Direct| {
        let keys: Vec<u64> = (1..=SHAPE.rows).collect();
        let expected: Vec<_> = keys.iter().map(|key| SHAPE.value(1, *key)).collect();
        assert!(direct.get_many(&keys).unwrap() == expected);
    };
    assert_all_served(&partly);
    assert_all_served(&wholly);
    let snapshot = wholly.snapshot();
    served.signal(Signal::STOP);
    served.remove_lease(&scene.db());
    thread::sleep(LEASE_BREAK_TIME_MIN);
    overwrite_value(&scene.db());
    assert_eq!(partly.get(KEY), Err(LookupError::Damaged));
    assert_eq!(partly.get(OTHER_KEY), Ok(SHAPE.value(1, OTHER_KEY)), "an intact block");
    write_and_restore_time(&scene.db(), &other, 0);
    // Lookups may still return what they copied before, until the change time reveals every write.
    let get = |direct: &Direct, key: u64| match direct.get(key) {
        Ok(value) => {
            assert_eq!(value, SHAPE.value(1, key), "key {key}");
            false
        }
        Err(error) => error == LookupError::Damaged,
    };
    eventually("no key is found", || {
        let failed = (1..=SHAPE.rows).flat_map(|key| [get(&partly, key), get(&wholly, key)]);
        failed.filter(|failed| !failed).count() == 0
    });
    assert!(!snapshot.is_unchanged());
    served.signal(Signal::CONT);
    Ok(())
}

/// Some emulators cannot map a page twice, so lookups cannot copy pages.
pub(crate) fn a_new_file_can_be_read_where_no_page_can_be_copied() -> Result<(), Missing> {
    require_interception()?;
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    SHAPE.bake(1, &db);
    let refused = Arc::new(AtomicU64::new(0));
    // If the program starts late, the change time is old enough, and nothing is copied.
    while refused.load(Ordering::Relaxed) == 0 {
        fs::set_permissions(&db, Permissions::from_mode(0o600)).unwrap();
        let mut command = Command::new(program("zkv"));
        command.arg("--db").arg(&db).args(["get", &KEY.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let counted = Arc::clone(&refused);
        let (child, supervisor) = spawn(command, &Calls::Only(&[libc::SYS_mremap]), move |call| {
            let maps_twice = call.args[1] == 0;
            counted.fetch_add(u64::from(maps_twice), Ordering::Relaxed);
            if maps_twice { Verdict::Fail(Errno::INVAL) } else { Verdict::Run }
        })
        .unwrap();
        let output = child.wait_with_output().unwrap();
        supervisor.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, SHAPE.value(1, KEY).unwrap());
    }
    Ok(())
}
