//! Random numbers that depend only on a seed, so that a failure can be repeated.

use std::time::SystemTime;

/// A SplitMix64 generator with this state.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Returns the seed in `ZERO_KV_SEED`, or another one for each run, and prints it.
pub fn seed(what: &str) -> u64 {
    let seed = match std::env::var("ZERO_KV_SEED") {
        Ok(seed) => seed.parse().expect("ZERO_KV_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    println!("{what}: ZERO_KV_SEED={seed}");
    seed
}

/// Returns a function that generates the numbers of [`Random`] with this seed.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random(seed);
    move || random.next()
}
