//! The engines, with a common interface.
//!
//! In: rows and a folder. Out: an open table. The source file of each engine documents the engine's settings. This
//! module measures nothing.

#[cfg(feature = "cdb")]
mod cdb;
mod lmdb;
mod maps;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub(crate) mod zero_kv;

use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::rows::{Operation, Rows, SCAN_ROWS, SHORT_SCAN_ROWS, Sink, Sum};

/// Number of keys per batch, in engines that support batch lookups.
const BATCH_KEYS: usize = 256;

/// One engine of the comparison.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Whether the engine stores rows in key order, and therefore supports floors and scans.
    pub(crate) ordered: bool,
    /// Whether the engine supports batch lookups.
    pub(crate) batched: bool,
    /// Whether the engine supports batches of floors.
    pub(crate) batched_floors: bool,
    /// Whether offsets in the engine's file have 32 bits, which limits the file to 4 GiB.
    pub(crate) small: bool,
    /// Writes rows to files in an empty folder, and syncs the files. `None` if the engine stores rows in memory.
    pub(crate) build: Option<fn(&Rows, &Path) -> Result<()>>,
    /// Opens the built file, or fills an engine that has no file.
    pub(crate) open: fn(&Rows, &Path) -> Result<Box<dyn Opened>>,
}

impl Engine {
    /// Returns whether these rows fit into a file of this engine.
    pub(crate) fn holds(&self, rows: &Rows) -> bool {
        // A cdb has 24 bytes per row in addition to key and value.
        !self.small || rows.len_bytes() + 24 * rows.count < 1 << 32
    }
}

/// An engine that is not part of this build, and the reason.
pub(crate) struct UnavailableEngine {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// Returns all engines. For an engine that is not part of this build, returns the reason.
pub(crate) fn all() -> Vec<Result<Engine, UnavailableEngine>> {
    #[cfg(feature = "rocksdb")]
    let rocksdb = Ok(rocksdb::engine());
    #[cfg(not(feature = "rocksdb"))]
    let rocksdb = Err(UnavailableEngine::unlinked("RocksDB", "rocksdb", "librocksdb-dev"));
    #[cfg(feature = "cdb")]
    let cdb = Ok(cdb::engine());
    #[cfg(not(feature = "cdb"))]
    let cdb = Err(UnavailableEngine::unlinked("cdb", "cdb", "libcdb-dev"));
    vec![
        Ok(zero_kv::engine()),
        Ok(lmdb::engine()),
        rocksdb,
        Ok(redb::engine()),
        cdb,
        Ok(maps::std_engine()),
        Ok(maps::fast_engine()),
    ]
}

impl UnavailableEngine {
    #[cfg(not(all(feature = "rocksdb", feature = "cdb")))]
    fn unlinked(name: &'static str, feature: &str, package: &str) -> UnavailableEngine {
        UnavailableEngine { name, reason: format!("built without the feature `{feature}`, which links {package}") }
    }
}

/// The lookups that an engine supports.
trait Table {
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()>;

    /// Looks up a batch of keys, one by one if the engine has no batch lookups.
    fn get_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(*key, sink))
    }

    /// Gets the row with the largest key that is not above `key`.
    fn floor(&mut self, _key: u64, _sink: &mut impl Sink) -> Result<()> {
        bail!("its rows have no order")
    }

    /// Gets the floors of a batch of keys, one by one if the engine has no batches of floors.
    fn floor_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        keys.iter().try_for_each(|key| self.floor(*key, sink))
    }

    /// Gets at most `rows` rows in key order, beginning at the key `start`.
    fn scan(&mut self, _start: u64, _rows: u64, _sink: &mut impl Sink) -> Result<()> {
        bail!("its rows have no order")
    }
}

/// An open engine. Each method executes a whole list of requests, so the compiler can optimize the loop together with
/// the engine's lookups.
pub(crate) trait Opened {
    fn gets(&mut self, keys: &[u64]) -> Result<Sum>;
    fn batches(&mut self, keys: &[u64]) -> Result<Sum>;
    fn floors(&mut self, keys: &[u64]) -> Result<Sum>;
    fn floor_batches(&mut self, keys: &[u64]) -> Result<Sum>;
    /// Scans 100 rows from each of these start keys on.
    fn scans(&mut self, starts: &[u64]) -> Result<Sum>;
    fn mixed(&mut self, operations: &[Operation]) -> Result<Sum>;
    /// Reads all rows in key order.
    fn scan_all(&mut self, rows: &Rows) -> Result<Sum>;
    /// Checks the values of these keys byte by byte.
    fn check(&mut self, rows: &Rows, keys: &[u64]) -> Result<()>;
}

impl<T: Table> Opened for T {
    fn gets(&mut self, keys: &[u64]) -> Result<Sum> {
        let mut sum = Sum::default();
        keys.iter().try_for_each(|key| self.get(*key, &mut sum))?;
        Ok(sum)
    }

    fn batches(&mut self, keys: &[u64]) -> Result<Sum> {
        let mut sum = Sum::default();
        keys.chunks(BATCH_KEYS).try_for_each(|batch| self.get_batch(batch, &mut sum))?;
        Ok(sum)
    }

    fn floors(&mut self, keys: &[u64]) -> Result<Sum> {
        let mut sum = Sum::default();
        keys.iter().try_for_each(|key| self.floor(*key, &mut sum))?;
        Ok(sum)
    }

    fn floor_batches(&mut self, keys: &[u64]) -> Result<Sum> {
        let mut sum = Sum::default();
        keys.chunks(BATCH_KEYS).try_for_each(|batch| self.floor_batch(batch, &mut sum))?;
        Ok(sum)
    }

    fn scans(&mut self, starts: &[u64]) -> Result<Sum> {
        let mut sum = Sum::default();
        starts.iter().try_for_each(|start| self.scan(*start, SCAN_ROWS, &mut sum))?;
        Ok(sum)
    }

    fn mixed(&mut self, operations: &[Operation]) -> Result<Sum> {
        let mut sum = Sum::default();
        for operation in operations {
            match operation {
                Operation::Get(key) => self.get(*key, &mut sum)?,
                Operation::Scan(start) => self.scan(*start, SHORT_SCAN_ROWS, &mut sum)?,
            }
        }
        Ok(sum)
    }

    fn scan_all(&mut self, rows: &Rows) -> Result<Sum> {
        let mut sum = Sum::default();
        self.scan(rows.key(0), rows.count, &mut sum)?;
        Ok(sum)
    }

    fn check(&mut self, rows: &Rows, keys: &[u64]) -> Result<()> {
        let mut expected = Vec::new();
        for key in keys {
            let mut copy = Copy(None);
            self.get(*key, &mut copy)?;
            let right = copy.0.as_deref() == Some(rows.value(*key, &mut expected));
            ensure!(right, "key {key}: {:?} where {expected:?} was expected", copy.0);
        }
        Ok(())
    }
}

/// A sink that stores a copy of the last result.
struct Copy(Option<Vec<u8>>);

impl Sink for Copy {
    fn found(&mut self, value: &[u8]) {
        self.0 = Some(value.to_vec());
    }

    fn missing(&mut self) {
        self.0 = None;
    }
}
