//! Seeded random numbers.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Returns the random number generator of a client. Each pair of seed and client has its own sequence.
pub(crate) fn client_rng(seed: u64, client: usize) -> SmallRng {
    // If the seed were `seed + client`, neighboring seeds would give the same sequences to neighboring clients.
    let mixed_seed = SmallRng::seed_from_u64(seed).next_u64();
    SmallRng::seed_from_u64(mixed_seed ^ client as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_seeds_and_clients_get_different_random_numbers() {
        let first = |seed, client| client_rng(seed, client).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        for (seed, client) in [(1, 3), (2, 2), (2, 1), (0, 3)] {
            assert_ne!(first(1, 2), first(seed, client), "{seed} {client}");
        }
    }
}
