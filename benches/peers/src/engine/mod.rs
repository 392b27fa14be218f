//! The engines, each behind the same few calls.
//!
//! In: rows and a folder. Out: a table that answers. Each engine's file says how
//! it is opened. Nothing here measures.

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

/// Keys that engines with a call for many keys get at once.
const BATCH_KEYS: usize = 256;

/// One engine of the comparison.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Whether it keeps its rows in the order of keys, and so has floors and scans.
    pub(crate) ordered: bool,
    /// Whether it has a call for many keys.
    pub(crate) batched: bool,
    /// Whether its offsets are 32 bits wide.
    pub(crate) small: bool,
    /// Puts rows into an empty folder, for good: synced to the disk. `None` if it holds them in memory.
    pub(crate) build: Option<fn(&Rows, &Path) -> Result<()>>,
    /// Opens what was built; one that has no file is filled.
    pub(crate) open: fn(&Rows, &Path) -> Result<Box<dyn Opened>>,
}

impl Engine {
    /// Whether these rows fit into a file of this engine.
    pub(crate) fn holds(&self, rows: &Rows) -> bool {
        // A cdb takes 24 bytes a row beside key and value.
        !self.small || rows.len_bytes() + 24 * rows.count < 1 << 32
    }
}

/// An engine that is not part of this build.
pub(crate) struct LeftOut {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// All engines, or why not.
pub(crate) fn all() -> Vec<Result<Engine, LeftOut>> {
    #[cfg(feature = "rocksdb")]
    let rocksdb = Ok(rocksdb::engine());
    #[cfg(not(feature = "rocksdb"))]
    let rocksdb = Err(LeftOut::unlinked("RocksDB", "rocksdb", "librocksdb-dev"));
    #[cfg(feature = "cdb")]
    let cdb = Ok(cdb::engine());
    #[cfg(not(feature = "cdb"))]
    let cdb = Err(LeftOut::unlinked("cdb", "cdb", "libcdb-dev"));
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

impl LeftOut {
    #[cfg(not(all(feature = "rocksdb", feature = "cdb")))]
    fn unlinked(name: &'static str, feature: &str, package: &str) -> LeftOut {
        LeftOut { name, reason: format!("built without the feature `{feature}`, which links {package}") }
    }
}

/// What an engine does: its own few lines for each question.
trait Table {
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()>;

    /// One call for many keys, where there is one.
    fn get_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(*key, sink))
    }

    /// The row with the largest key that is not above this one.
    fn floor(&mut self, _key: u64, _sink: &mut impl Sink) -> Result<()> {
        bail!("its rows have no order")
    }

    /// So many rows in key order from a key on, or as many as there are.
    fn scan(&mut self, _start: u64, _rows: u64, _sink: &mut impl Sink) -> Result<()> {
        bail!("its rows have no order")
    }
}

/// An open engine. A whole list of questions is one call, so that the loop around
/// an engine's calls is compiled with them.
pub(crate) trait Opened {
    fn gets(&mut self, keys: &[u64]) -> Result<Sum>;
    fn batches(&mut self, keys: &[u64]) -> Result<Sum>;
    fn floors(&mut self, keys: &[u64]) -> Result<Sum>;
    /// From these keys on.
    fn scans(&mut self, starts: &[u64]) -> Result<Sum>;
    fn mixed(&mut self, operations: &[Operation]) -> Result<Sum>;
    /// Reads all rows in key order.
    fn scan_all(&mut self, rows: &Rows) -> Result<Sum>;
    /// Compares answers byte for byte.
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

/// The last answer.
struct Copy(Option<Vec<u8>>);

impl Sink for Copy {
    fn found(&mut self, value: &[u8]) {
        self.0 = Some(value.to_vec());
    }

    fn missing(&mut self) {
        self.0 = None;
    }
}
