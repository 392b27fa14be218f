//! Whether a mapped file is as it was.
//!
//! Whoever writes to a file or cuts it off changes its time of modification or
//! its length before a byte of it changes. So bytes that were read between two
//! looks at both are those that the file had at the first, if both are the same;
//! a page that was gone meanwhile is counted by the guard.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstat;

use super::guard::Guarded;

/// What a file looked like at some time, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

/// A mapped file that may change.
#[derive(Debug)]
pub(super) struct Watched {
    file: File,
    /// The stamp that the file had when its bytes were last believed.
    seen: AtomicU64,
}

impl Watched {
    /// Keeps the file open, to look at it.
    pub(super) fn new(file: &File, guarded: &Guarded) -> io::Result<Watched> {
        let file = file.try_clone()?;
        let seen = AtomicU64::new(stamp(&file, guarded)?.0);
        Ok(Watched { file, seen })
    }

    /// Whether the file looks as it did.
    #[inline]
    pub(super) fn is_unchanged(&self, guarded: &Guarded) -> bool {
        stamp(&self.file, guarded).is_ok_and(|stamp| stamp.0 == self.seen.load(Ordering::Acquire))
    }

    /// What the file looks like now.
    pub(super) fn stamp(&self, guarded: &Guarded) -> io::Result<Stamp> {
        stamp(&self.file, guarded)
    }

    /// From now on it is unchanged if it looks like this.
    pub(super) fn believe(&self, stamp: Stamp) {
        self.seen.store(stamp.0, Ordering::Release);
    }
}

fn stamp(file: &File, guarded: &Guarded) -> io::Result<Stamp> {
    let stat = fstat(file)?;
    // Each step can be undone, so that no change of one number alone goes unseen.
    let mix = |hash: u64, number: u64| {
        let hash = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^ (hash >> 32)
    };
    let numbers = [stat.st_size as u64, stat.st_mtime as u64, stat.st_mtime_nsec as u64, guarded.faults()];
    Ok(Stamp(numbers.into_iter().fold(0, mix)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn every_way_to_change_a_file_shows() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let guarded = Guarded::new(&[]);
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let changes: [(&str, &dyn Fn(&File)); 5] = [
            ("written to", &|file| file.write_all_at(b"8", 5000).unwrap()),
            ("written to, with the same byte", &|file| file.write_all_at(&[7], 5000).unwrap()),
            ("cut off", &|file| file.set_len(0).unwrap()),
            ("made longer", &|file| file.set_len(20_000).unwrap()),
            ("touched", &|file| file.set_modified(long_ago + std::time::Duration::from_nanos(1)).unwrap()),
        ];
        for (how, change) in changes {
            file.set_len(10_000).unwrap();
            file.set_modified(long_ago).unwrap();
            let watched = Watched::new(&file, &guarded).unwrap();
            assert!(watched.is_unchanged(&guarded));
            change(&file);
            assert!(!watched.is_unchanged(&guarded), "{how}");
            watched.believe(watched.stamp(&guarded).unwrap());
            assert!(watched.is_unchanged(&guarded));
        }
    }
}
