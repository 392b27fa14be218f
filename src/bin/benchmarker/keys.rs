//! Which keys are asked for.
//!
//! In: the baked file and a seed. Out: pipelines of requests, and what is to be
//! answered. Each key is drawn when it is asked for: a pool of pipelines that
//! were drawn once would soon sit in the server's caches, and flatter it.

use anyhow::bail;
use zero_kv::Store;
use zero_kv::protocol::native::{Op, Request};

/// Draws of an absent key before giving up. Three in four land far outside a
/// small dense table; only one that holds nearly every key there is gets here.
const MISS_TRIES_MAX: u32 = 10_000;

/// The baked file, and its keys where one memory access reaches each.
pub(crate) struct Table {
    pub(crate) store: Store,
    keys: Vec<u64>,
    miss_ratio: f64,
}

impl Table {
    pub(crate) fn new(store: Store, miss_ratio: f64) -> Self {
        let keys = store.iter().map(|(key, _)| key).collect();
        Table { store, keys, miss_ratio }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn present(&self, random: &mut Random) -> u64 {
        self.keys[random.below(self.keys.len())]
    }

    /// A key that is not in the file, at a random distance from one that is: keys
    /// from all of 64 bits would nearly all end at the same few places of the index.
    fn absent(&self, random: &mut Random) -> anyhow::Result<u64> {
        for _ in 0..MISS_TRIES_MAX {
            let near = if self.is_empty() { 0 } else { self.present(random) };
            let key = near ^ (random.next() >> random.below(64));
            if !self.store.contains(key) {
                return Ok(key);
            }
        }
        bail!("no absent key was found in {MISS_TRIES_MAX} draws: pass --miss-ratio 0")
    }
}

/// One pipeline: the requests as they are sent, and whether each key is there.
#[derive(Default)]
pub(crate) struct Pipeline {
    pub(crate) requests: Vec<Request>,
    pub(crate) present: Vec<bool>,
}

impl Pipeline {
    /// Draws the keys of the next pipeline, in place of the last.
    pub(crate) fn draw(&mut self, table: &Table, op: Op, requests: usize, random: &mut Random) -> anyhow::Result<()> {
        self.requests.clear();
        self.present.clear();
        if table.miss_ratio == 0.0 {
            // Nothing here waits for the key before: their memory accesses overlap.
            self.requests.extend((0..requests).map(|_| Request::new(op, table.present(random))));
            self.present.resize(requests, true);
            return Ok(());
        }
        for _ in 0..requests {
            let present = random.unit() >= table.miss_ratio;
            let key = if present { table.present(random) } else { table.absent(random)? };
            self.requests.push(Request::new(op, key));
            self.present.push(present);
        }
        Ok(())
    }
}

/// SplitMix64: small, fast, and each seed gives a stream of its own.
pub(crate) struct Random(u64);

impl Random {
    /// The stream of one client.
    pub(crate) fn of_client(seed: u64, client: usize) -> Self {
        // Mixed twice: seeds that lie a whole number of steps apart would give
        // clients the same stream, shifted.
        Random(mix(mix(seed) ^ client as u64))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; its bias is below `end` / 2^64.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// A number from 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn clients_and_seeds_have_streams_of_their_own() {
        let first = |seed, client| Random::of_client(seed, client).next();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn draws_reach_every_place_and_no_other() {
        let mut random = Random::of_client(1, 0);
        let mut seen = [0; 10];
        for _ in 0..1_000 {
            seen[random.below(10)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|&times| times > 50), "{seen:?}");
    }
}
