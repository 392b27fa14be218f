//! Divides the rows of a table into shards.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::format::OwnedKey;
use crate::format::key::{Key, KeyKind};

/// One of several shards into which rows are divided, by key hash or by key range.
///
/// If rows are divided by hash, the hash is XXH3-64 with seed 0. A byte key is hashed as it is, and a number as its 8
/// little-endian bytes. Shards are numbered from 1. A row belongs to shard `1 + ((hash * count) >> 64)`, computed with
/// 128 bits.
///
/// If rows are divided by range, the bounds ascend. Shard 1 has the keys below the first bound. Shard 2 has the keys
/// from the first bound up to, but not including, the second bound. The last shard has the keys from the last bound on.
///
/// # Example
/// ```
/// use zero_kv::bake::Shard;
///
/// let halves = [Shard::by_hash(1, 2)?, Shard::by_hash(2, 2)?];
/// assert_eq!(halves.iter().filter(|half| half.has(&7.into())).count(), 1);
/// # Ok::<(), zero_kv::bake::ShardFault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    count: u32,
    /// The lower bound of each shard except shard 1. The list is empty if rows are divided by hash.
    bounds: Vec<OwnedKey>,
}

/// The reason why a shard is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardFault {
    /// The shard's number is not between 1 and the number of shards.
    Number {
        /// The given number of the shard.
        number: u32,
        /// The number of shards.
        count: u32,
    },
    /// The bounds do not ascend.
    Order {
        /// The number, counted from 1, of the first bound that is not greater than the bound before it.
        bound: usize,
    },
    /// Some bounds are numbers, and other bounds are bytes.
    Kinds,
    /// The number of bounds is not one less than the number of shards.
    Count {
        /// The number of bounds given.
        bounds: usize,
        /// The number of shards.
        count: u32,
    },
}

impl fmt::Display for ShardFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardFault::Number { number, count } => {
                write!(f, "shard {number} of {count}, where 1 to {} was expected", (*count).max(1))
            }
            ShardFault::Order { bound } => {
                write!(f, "bound {bound} is not greater than the previous bound: give bounds in ascending order")
            }
            ShardFault::Kinds => f.write_str("some bounds are numbers and others are bytes: give bounds of one kind"),
            ShardFault::Count { bounds, count } => {
                write!(f, "{bounds} bounds for {count} shards, where {} were expected", count.saturating_sub(1))
            }
        }
    }
}

impl std::error::Error for ShardFault {}

impl Shard {
    /// Returns shard `number` of `count` shards by key hash. Numbers start at 1.
    pub fn by_hash(number: u32, count: u32) -> Result<Shard, ShardFault> {
        if !(1..=count).contains(&number) {
            return Err(ShardFault::Number { number, count });
        }
        Ok(Shard { number, count, bounds: Vec::new() })
    }

    /// Returns shard `number` of `count` shards by key range. Numbers start at 1. `bounds` has the lower bound of each
    /// shard except shard 1.
    pub fn by_range(number: u32, count: u32, bounds: &[Key<'_>]) -> Result<Shard, ShardFault> {
        let shard = Shard::by_hash(number, count)?;
        if bounds.len() + 1 != count as usize {
            return Err(ShardFault::Count { bounds: bounds.len(), count });
        }
        if bounds.windows(2).any(|pair| pair[0].kind() != pair[1].kind()) {
            return Err(ShardFault::Kinds);
        }
        if let Some(before) = bounds.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(ShardFault::Order { bound: before + 2 });
        }
        Ok(Shard { bounds: bounds.iter().map(|bound| OwnedKey::from(*bound)).collect(), ..shard })
    }

    /// Returns the kind of the bounds, if there are any.
    pub(super) fn bounds_kind(&self) -> Option<KeyKind> {
        self.bounds.first().map(|bound| bound.as_key().kind())
    }

    /// Returns whether a row with this key belongs to the shard.
    pub fn has(&self, key: &Key<'_>) -> bool {
        let index = if self.bounds.is_empty() {
            let hash = match key {
                Key::U64(number) => xxh3_64(&number.to_le_bytes()),
                Key::Bytes(bytes) => xxh3_64(bytes),
            };
            ((u128::from(hash) * u128::from(self.count)) >> 64) as usize
        } else {
            self.bounds.partition_point(|bound| bound.as_key() <= *key)
        };
        index + 1 == self.number as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_belongs_to_one_shard() {
        let by_hash: Vec<_> = (1..=5).map(|number| Shard::by_hash(number, 5).unwrap()).collect();
        let bounds = [Key::U64(10), Key::U64(1000)];
        let by_range: Vec<_> = (1..=3).map(|number| Shard::by_range(number, 3, &bounds).unwrap()).collect();
        for shards in [&by_hash, &by_range] {
            for key in (0..2000).chain([u64::MAX]) {
                assert_eq!(shards.iter().filter(|shard| shard.has(&Key::U64(key))).count(), 1, "key {key}");
            }
        }
        for (key, shard) in [(0, 0), (9, 0), (10, 1), (999, 1), (1000, 2), (u64::MAX, 2)] {
            assert!(by_range[shard].has(&Key::U64(key)), "key {key}");
        }
    }

    /// Checks the example keys in OPERATIONS.md, with which other programs test their own implementations.
    #[test]
    fn keys_belong_to_the_shards_that_the_document_lists() {
        let document = include_str!("../../docs/OPERATIONS.md");
        let keys = [
            ("the number 42", Key::U64(42)),
            ("the number 128512", Key::U64(128_512)),
            ("the bytes `abc`", Key::from("abc")),
            ("the bytes `user:42`", Key::from("user:42")),
        ];
        for (name, key) in keys {
            let row = document.lines().find_map(|line| line.strip_prefix(&format!("| {name} | `"))).expect(name);
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            assert_eq!(cells.len(), 4, "{row}");
            for (count, number) in [4, 10, 16].into_iter().zip(&cells[1..]) {
                let number = number.parse().expect("the number of a shard");
                assert!(Shard::by_hash(number, count).unwrap().has(&key), "{name}: shard {number} of {count}");
            }
        }
    }

    #[test]
    fn an_invalid_shard_is_rejected() {
        assert!(Shard::by_hash(0, 2).is_err());
        assert!(Shard::by_hash(3, 2).is_err());
        assert!(Shard::by_hash(1, 0).is_err());
        assert_eq!(Shard::by_range(1, 2, &[]), Err(ShardFault::Count { bounds: 0, count: 2 }));
        let bounds = [Key::U64(5), Key::U64(5)];
        assert_eq!(Shard::by_range(1, 3, &bounds), Err(ShardFault::Order { bound: 2 }));
        assert_eq!(Shard::by_range(1, 3, &[Key::U64(5), Key::from("6")]), Err(ShardFault::Kinds));
    }
}
