//! `HashMap`, filled from the rows. It has no file, so every process needs its own copy.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use anyhow::Result;
use rustc_hash::FxBuildHasher;

use super::{Engine, Opened, Table};
use crate::machine::{locked_version, rust_version};
use crate::rows::{Rows, Sink};

pub(super) fn std_engine() -> Engine {
    engine("HashMap", rust_version(), |rows, _| fill::<RandomState>(rows))
}

pub(super) fn fast_engine() -> Engine {
    engine("HashMap (rustc-hash)", locked_version("rustc-hash"), |rows, _| fill::<FxBuildHasher>(rows))
}

fn engine(name: &'static str, version: String, open: fn(&Rows, &Path) -> Result<Box<dyn Opened>>) -> Engine {
    Engine { name, version, ordered: false, batched: false, batched_floors: false, small: false, build: None, open }
}

fn fill<S: BuildHasher + Default + 'static>(rows: &Rows) -> Result<Box<dyn Opened>> {
    let mut map: HashMap<u64, Box<[u8]>, S> = HashMap::with_capacity_and_hasher(rows.count as usize, S::default());
    rows.each(|key, value| {
        map.insert(key, value.into());
        Ok(())
    })?;
    Ok(Box::new(map))
}

impl<S: BuildHasher> Table for HashMap<u64, Box<[u8]>, S> {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(HashMap::get(self, &key).map(|value| &**value));
        Ok(())
    }
}
