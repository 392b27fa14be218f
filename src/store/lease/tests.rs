use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// Enables leases in this process, and renews them on SIGIO and periodically, as a server does.
fn enable_leases() {
    static ENABLED: std::sync::Once = std::sync::Once::new();
    ENABLED.call_once(|| {
        let mut signals = signal_hook::iterator::Signals::new([libc::SIGIO]).unwrap();
        thread::spawn(move || signals.forever().for_each(|_| renew_leases()));
        take_leases();
        thread::spawn(|| {
            loop {
                renew_leases();
                thread::sleep(RENEW_LEASES_EVERY);
            }
        });
    });
}

/// Creates a file on tmpfs, which has leases. The folder for temporary files may be on a file system without leases.
fn new_file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new_in("/dev/shm").expect("Linux mounts a tmpfs at /dev/shm by default")
}

fn take_lease(path: &Path) -> Arc<Lease> {
    let lease = Lease::new(File::open(path).unwrap());
    lease.take(|| true);
    lease
}

/// Waits until a lease is trusted. On a busy machine, the deadline of the lease can pass before the lease is renewed.
fn wait_until_trusted(lease: &Lease) {
    while !lease.is_confirmed() {
        assert!(*lease.is_taken(), "the lease was released");
        thread::yield_now();
    }
}

#[test]
fn a_writer_waits_until_the_lease_is_released() {
    enable_leases();
    let file = new_file();
    let path = file.path().to_path_buf();
    let lease = take_lease(&path);
    assert!(lease.proof() == Proof::None && lease.writers() == Writers::Some);
    let path = file.into_temp_path();
    let changes: [&dyn Fn(&Path); 3] = [
        &|path| std::fs::write(path, "new").unwrap(),
        &|path| drop(File::options().append(true).open(path).unwrap()),
        &|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap(),
    ];
    for change in changes {
        let lease = take_lease(&path);
        wait_until_trusted(&lease);
        assert_eq!(lease.writers(), Writers::None);
        change(&path);
        assert!(lease.proof() == Proof::Lost && lease.writers() == Writers::None);
    }
    // Reading, renaming, and removing the file do not break the lease.
    let lease = take_lease(&path);
    std::fs::read(&path).unwrap();
    let other = path.with_extension("other");
    std::fs::rename(&path, &other).unwrap();
    std::fs::remove_file(&other).unwrap();
    wait_until_trusted(&lease);
}

#[test]
fn a_writer_with_o_nonblock_gets_eagain_until_the_lease_is_released() {
    use std::os::unix::fs::OpenOptionsExt;
    enable_leases();
    let path = new_file().into_temp_path();
    let lease = take_lease(&path);
    let open = || File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    assert_eq!(open().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    while let Err(error) = open() {
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    assert_eq!(lease.proof(), Proof::Lost);
}

#[test]
fn a_writable_mapping_counts_as_a_writer_even_if_its_descriptor_is_closed() {
    enable_leases();
    let file = new_file();
    file.as_file().set_len(4096).unwrap();
    let mapping = memmap2::MmapRaw::map_raw(file.as_file()).unwrap();
    let path = file.into_temp_path();
    let lease = take_lease(&path);
    assert!(lease.proof() == Proof::None && lease.writers() == Writers::Some);
    drop(mapping);
    assert_eq!(lease.writers(), Writers::None);
    lease.take(|| true);
    wait_until_trusted(&lease);
}

#[test]
fn a_lease_is_not_kept_on_a_file_that_has_changed() {
    enable_leases();
    let path = new_file().into_temp_path();
    let lease = Lease::new(File::open(&path).unwrap());
    lease.take(|| false);
    assert_eq!(lease.proof(), Proof::None);
    std::fs::write(&path, "no writer waits").unwrap();
    // The file was checked after the change.
    lease.take(|| true);
    wait_until_trusted(&lease);
}

#[test]
fn a_lost_lease_is_retaken_only_by_retake_and_without_a_writer() {
    enable_leases();
    let path = new_file().into_temp_path();
    let lease = take_lease(&path);
    let writer = File::options().write(true).open(&path).unwrap();
    assert_eq!(lease.proof(), Proof::Lost);
    assert_eq!(lease.retake().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(writer);
    lease.take(|| true);
    assert!(lease.proof() == Proof::Lost && !lease.is_held_or_unused());
    lease.retake().unwrap();
    assert!(lease.proof() == Proof::Unchanged && lease.is_held());
}

#[test]
fn each_change_of_a_lease_is_reported_before_the_lease_is_released() {
    enable_leases();
    let path = new_file().into_temp_path();
    let lease = Lease::new(File::open(&path).unwrap());
    let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (reports, probe) = (Arc::clone(&reported), File::open(&path).unwrap());
    lease.report(Box::new(move |state| {
        if let LeaseState::TrustedUntil(_) = state {
            return;
        }
        // The system lists the lease in `/proc/locks` until the lease is released.
        let is_leased = std::fs::read_to_string("/proc/locks").unwrap().contains(&locks_inode(&probe));
        reports.lock().unwrap().push((state, is_leased));
    }));
    lease.take(|| true);
    std::fs::write(&path, "a writer waits").unwrap();
    lease.retake().unwrap();
    drop(lease);
    // If another thread is renewing the lease, that thread drops the lease later.
    while reported.lock().unwrap().len() < 2 {
        thread::yield_now();
    }
    assert_eq!(*reported.lock().unwrap(), [(LeaseState::Lost, true), (LeaseState::Released, true)]);
}

/// Returns the part of a lease's line in /proc/locks that identifies the file.
fn locks_inode(file: &File) -> String {
    use std::os::unix::fs::MetadataExt;
    format!(":{} ", file.metadata().unwrap().ino())
}

#[test]
fn a_lease_is_not_trusted_if_a_writer_waits_while_it_is_taken() {
    enable_leases();
    let path = new_file().into_temp_path();
    let lease = Lease::new(File::open(&path).unwrap());
    let (opened, opening) = channel();
    thread::scope(|scope| {
        lease.take(|| {
            scope.spawn(|| opened.send(File::options().write(true).open(&path).unwrap()).unwrap());
            while lease.file.is_held().unwrap() {
                thread::yield_now();
            }
            true
        });
        // The writer has opened the file, so the lease was released.
        let _file = opening.recv().unwrap();
        assert_eq!(lease.proof(), Proof::Lost);
    });
}

/// In every round, a writer waits for the release of the lease while the file is read.
#[test]
fn nothing_is_written_while_a_lease_is_held() {
    enable_leases();
    let path = new_file().into_temp_path();
    let mut observed = 0;
    for round in 0.. {
        let lease = take_lease(&path);
        thread::scope(|scope| {
            // No thread releases the lease while `is_taken` is locked.
            let is_taken = lease.is_taken();
            assert!(*is_taken);
            let writer = scope.spawn(|| std::fs::write(&path, [b'x'; 100].repeat(round + 1)).unwrap());
            while lease.file.is_held().unwrap() {
                thread::yield_now();
            }
            let len_bytes = std::fs::read(&path).unwrap().len();
            // The system no longer confirms the lease, because a writer waits, so the lease is trusted only until its
            // deadline. On a busy machine, the deadline may have passed.
            if lease.proof() == Proof::Unchanged {
                assert_eq!(len_bytes, 100 * round, "bytes changed under a trusted lease");
                observed += 1;
            }
            drop(is_taken);
            writer.join().unwrap();
        });
        assert_eq!(lease.proof(), Proof::Lost);
        if observed == 50 {
            return;
        }
    }
}

#[test]
fn a_lease_that_nobody_renews_is_trusted_only_if_the_system_confirms_it() {
    let path = new_file().into_temp_path();
    enable_leases();
    // The lease is not registered, so that no other test renews it.
    let lease = Lease::unregistered(File::open(&path).unwrap());
    lease.take(|| true);
    while lease.is_confirmed() {
        thread::yield_now();
    }
    // The system confirms that the lease is still held.
    assert_eq!(lease.proof(), Proof::Unchanged);
    // The lease ends as if the system had revoked it, and no thread renews it.
    lease.file.release();
    assert_eq!(lease.proof(), Proof::Lost);
    lease.renew();
    assert!(lease.proof() == Proof::Lost && !*lease.is_taken());
}

#[test]
fn the_error_of_a_refused_lease_shows_whether_there_are_writers() {
    let writers = |number| Writers::from_refusal(&io::Error::from_raw_os_error(number));
    assert_eq!(writers(libc::EAGAIN), Writers::Some);
    assert_eq!(writers(libc::EACCES), Writers::Unknown(WritersUnknown::NotOwner));
    assert_eq!(writers(libc::EINVAL), Writers::Unknown(WritersUnknown::Unsupported));
}

mod simulated {
    //! Tests a lease on a simulated file. The holder of the lease can be suspended at every point.

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// The shortest time after which the kernel revokes a lease: one second minus two ticks of the kernel's timer, each
    /// 10 ms.
    const BREAK_NS: u64 = 980_000_000;

    struct World {
        random: SmallRng,
        now_ns: u64,
        is_leased: bool,
        /// The time at which a writer began to wait for the lease.
        waits_since_ns: Option<u64>,
        /// Counts the writes to the file.
        version: u64,
    }

    impl World {
        /// Suspends the holder of the lease for a random time, and lets the writer continue meanwhile.
        fn stop(&mut self) {
            let longest_ns = [1, 1_000_000, 600_000_000, 3_000_000_000][self.random.random_range(0..4) as usize];
            let stopped_ns = self.random.random_range(0..longest_ns);
            if self.waits_since_ns.is_none() && self.random.random_range(0..8) == 0 {
                self.waits_since_ns = Some(self.now_ns + self.random.random_range(0..stopped_ns + 1));
            }
            self.now_ns += stopped_ns;
            self.step_writer();
        }

        fn step_writer(&mut self) {
            let Some(since_ns) = self.waits_since_ns else { return };
            if !self.is_leased || self.now_ns >= since_ns + BREAK_NS {
                self.is_leased = false;
                self.waits_since_ns = None;
                self.version += 1;
            }
        }
    }

    struct Simulated(Mutex<World>);

    impl Simulated {
        fn world(&self) -> MutexGuard<'_, World> {
            self.0.lock().unwrap()
        }
    }

    impl Leasable for Simulated {
        fn now_ns(&self) -> u64 {
            let mut world = self.world();
            world.stop();
            let now_ns = world.now_ns;
            world.stop();
            now_ns
        }

        fn acquire(&self) -> io::Result<()> {
            let mut world = self.world();
            world.stop();
            if world.waits_since_ns.is_some() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            world.is_leased = true;
            world.stop();
            Ok(())
        }

        fn release(&self) {
            let mut world = self.world();
            world.is_leased = false;
            world.step_writer();
        }

        fn is_held(&self) -> io::Result<bool> {
            let mut world = self.world();
            world.stop();
            let is_held = world.is_leased && world.waits_since_ns.is_none();
            world.stop();
            Ok(is_held)
        }
    }

    #[test]
    fn no_written_byte_is_trusted_wherever_the_lease_holder_is_stopped() {
        let seed = std::env::var("ZERO_KV_SEED").ok().map_or(1, |seed| seed.parse().unwrap());
        println!("ZERO_KV_SEED={seed}");
        let random = SmallRng::seed_from_u64(seed);
        let world = World { random, now_ns: 10_000_000_000, is_leased: false, waits_since_ns: None, version: 0 };
        let lease = Lease::unregistered(Simulated(Mutex::new(world)));
        while lease.retake().is_err() {}
        let (mut version_of_lease, mut trusted, mut written) = (lease.file.world().version, 0, 0);
        for _ in 0..200_000 {
            let choice = lease.file.world().random.random_range(0..4);
            match choice {
                // The lease is retaken only after the trust in the file has ended, as in `Store::look_again`.
                0 if lease.proof() == Proof::Lost => {
                    if lease.retake().is_ok() {
                        let version = lease.file.world().version;
                        (version_of_lease, written) = (version, written + u64::from(version > version_of_lease));
                    }
                }
                1 => lease.renew(),
                _ => {
                    let copied = lease.file.world().version;
                    if lease.proof() == Proof::Unchanged {
                        assert_eq!(copied, version_of_lease, "a batch with bytes that were written later is trusted");
                        trusted += 1;
                    }
                }
            }
        }
        // If trusted batches or writes are rare, the test proves nothing.
        assert!(trusted > 1000 && written > 1000, "{trusted} batches trusted, {written} writes between leases");
    }
}
