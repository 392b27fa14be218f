//! Pythons with a release of redis-py.

use std::path::PathBuf;
use std::process::Command;

use super::programs::in_target_folder;
use super::trials::{Missing, missing};

/// The releases to test: each has a file that pins it, and a virtual environment that `.ci/run` makes.
pub const PINNED: Release =
    Release { pin: include_str!("../../../examples/redis/python/requirements.txt"), folder: "redis-py" };
pub const NEWEST: Release = Release { pin: include_str!("../../redis/newest-redis-py.txt"), folder: "redis-py-newest" };

pub struct Release {
    pin: &'static str,
    folder: &'static str,
}

impl Release {
    /// Finds a Python that has exactly this release of redis-py.
    pub fn python(&self) -> Result<PathBuf, Missing> {
        let version = self.pin.trim().strip_prefix("redis==").unwrap();
        let candidates = [in_target_folder(self.folder).join("bin/python"), PathBuf::from("python3")];
        let has_release = |python: &PathBuf| {
            let output = Command::new(python).args(["-c", "import redis; print(redis.__version__)"]).output();
            output.is_ok_and(|output| output.stdout.trim_ascii() == version.as_bytes())
        };
        let found = candidates.into_iter().find(has_release);
        found.ok_or_else(|| missing(self.folder, &format!("no Python has redis-py {version}")))
    }
}

/// Finds a Python that has a tested release of redis-py.
pub fn any_python() -> Result<PathBuf, Missing> {
    NEWEST.python().or_else(|_| PINNED.python())
}
