//! The check that a file has rows of the slots that a node of a cluster expects in it.
//!
//! In: a table, and the expected slots. Out: whether the table clearly lacks the rows of some of these slots, for which
//! clients would get nil instead of existing rows. `docs/decisions/file-slots.md` has the reasons for the rule.

use crate::Lookup;
use crate::cluster::SlotSet;
use crate::format::key::Key;
use crate::slots::{SlotRange, hash_tag, slot_of};
use crate::store::{Pace, Store};

/// The maximum number of rows that are sampled: enough to find a gap of a fifth of the slots.
const SAMPLE_ROWS: u64 = 64;
/// A file is rejected if the slots of its rows would have such a gap with less than this probability.
const PROBABILITY_MIN: f64 = 1e-6;

/// What the sampled rows of a table show about its slots.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The rows agree with the expected slots, or do not show anything.
    Plausible,
    /// No sampled row has an expected slot, but this can be a coincidence, because the rows are few or similar.
    NoExpected(Sampled),
    /// The table clearly lacks the rows of these slots, some of which are expected.
    Lacking(SlotRange, Sampled),
}

/// The sampled rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampled {
    pub(super) rows: usize,
    /// The lowest and the highest slot of the rows.
    pub(super) slots: SlotRange,
}

/// Compares the slots of a table's rows with the slots whose rows the table should have. Rows of other slots are no
/// mistake: a file may have more rows than its node serves. Ignores damaged rows, which other checks find. Stops early
/// if `pace` cancels the work.
pub(super) fn check(store: &Store, expected: &SlotSet, pace: &Pace) -> Finding {
    let rows = sample(store.len() as u64);
    store.begin_reads_of_rows(&rows);
    let rows = rows.iter().take_while(|_| pace.goes_on()).filter_map(|row| store.row(*row).ok().flatten());
    let (key_type, mut text) = (store.key_type(), Vec::new());
    let sampled = rows.map(|(key, _)| {
        text.clear();
        key_type.write(key, &mut text);
        (slot_of(Key::Bytes(&text)), fingerprint(&text))
    });
    let sampled: Vec<_> = sampled.collect();
    judge(&sampled, expected)
}

/// Returns the numbers of the sampled rows: all rows of a small table. Equal steps could select only numbers with the
/// same last digits, whose slots are similar.
fn sample(row_count: u64) -> Vec<usize> {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let scattered = |number: u64| (u128::from(number.wrapping_mul(GOLDEN_RATIO)) * u128::from(row_count)) >> u64::BITS;
    match row_count <= SAMPLE_ROWS {
        true => (0..row_count as usize).collect(),
        false => (0..SAMPLE_ROWS).map(|number| scattered(number) as usize).collect(),
    }
}

/// Returns a hash of the bytes of a key's written form that its slot depends on. Like the slot, each bit of the hash is
/// the sum (XOR) of some bits of the text.
fn fingerprint(text: &[u8]) -> u64 {
    hash_tag(text).iter().fold(0_u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte))
}

/// Returns the number of bits in which the fingerprints differ independently of each other: the rank of their
/// differences.
fn independent_bits(fingerprints: impl IntoIterator<Item = u64>) -> usize {
    let mut fingerprints = fingerprints.into_iter();
    let first = fingerprints.next().unwrap_or_default();
    let mut basis: Vec<u64> = Vec::new();
    for fingerprint in fingerprints {
        let rest = basis.iter().fold(fingerprint ^ first, |rest, element| rest.min(rest ^ element));
        if rest != 0 {
            basis.push(rest);
        }
    }
    basis.len()
}

/// Decides by the slots and the fingerprints of the sampled rows.
fn judge(sample: &[(u16, u64)], expected: &SlotSet) -> Finding {
    let mut found = SlotSet::NONE;
    sample.iter().for_each(|(slot, _)| found.insert(*slot));
    let mut all = found.clone();
    all.insert_all(expected);
    let (Some(slots), Some(whole)) = (hull(&found), hull(&all)) else { return Finding::Plausible };
    let sampled = Sampled { rows: sample.len(), slots };
    let mut gaps: SlotSet = [whole].into_iter().collect();
    gaps.remove_all(&found);
    let is_expected = |gap: &SlotRange| expected.overlaps(&[*gap].into_iter().collect());
    let longest = gaps.ranges().into_iter().filter(is_expected).max_by_key(|gap| gap.slot_count());
    // The slots of similar keys, such as `user:1` to `user:9`, do not differ independently of each other: they cannot
    // differ in more ways than their keys. Two rows may have set the ends of the range.
    let evidence = found.len().min(independent_bits(sample.iter().map(|(_, fingerprint)| *fingerprint)));
    match longest {
        Some(gap) => {
            let share = f64::from(gap.slot_count()) / f64::from(whole.slot_count());
            match (1.0 - share).powi(evidence.saturating_sub(2) as i32) < PROBABILITY_MIN {
                true => Finding::Lacking(gap, sampled),
                false if !found.overlaps(expected) => Finding::NoExpected(sampled),
                false => Finding::Plausible,
            }
        }
        None => Finding::Plausible,
    }
}

/// Returns the shortest range that has all slots of a set.
fn hull(slots: &SlotSet) -> Option<SlotRange> {
    let ranges = slots.ranges();
    let (first, last) = ranges.first().zip(ranges.last())?;
    Some(SlotRange { first_slot: first.first_slot, last_slot: last.last_slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn choice<T: Copy>(&mut self, choices: &[T]) -> T {
            choices[self.below(choices.len() as u64) as usize]
        }
    }

    /// Returns what is found in a table whose rows have these keys.
    fn found(row_count: u64, key: impl Fn(u64) -> String, expected: &SlotSet) -> Finding {
        let sampled = sample(row_count).into_iter().map(|row| {
            let text = key(row as u64);
            let key = Key::Bytes(text.as_bytes());
            (slot_of(key), fingerprint(text.as_bytes()))
        });
        judge(&sampled.collect::<Vec<_>>(), expected)
    }

    fn set(range: SlotRange) -> SlotSet {
        [range].into_iter().collect()
    }

    /// The keys of a table are usually similar: numbers in equal steps, texts around a number, or tags of few tenants.
    #[test]
    fn a_table_with_all_rows_is_never_rejected() {
        let seed = 0x5EED;
        let mut random = Random(seed);
        for round in 0..2000 {
            let (rows, width) =
                (10_u64.pow(1 + random.below(6) as u32) / (1 + random.below(9)), random.below(9) as usize);
            let step = random.choice(&[1, 1, 2, 7, 10, 16, 60, 100, 1000, 1024, 3600, 10_000, 86_400, 1_000_000]);
            let start = random.choice(&[0, 1, 1000, 123_456_789, 1_700_000_000_000]);
            let prefix = random.choice(&["", "user:", "k", "item-"]);
            let suffix: String = (0..random.below(10)).map(|_| random.choice(b"abcdefgh:-_xyz") as char).collect();
            let tenants = 1 + random.below(100);
            let count = random.choice(&[1_u16, 2, 3, 4, 5, 8, 16, 50]);
            let expected = set(random.choice(&SlotRange::ALL.divide(count)));
            for (kind, found) in [
                ("numbers", found(rows, |row| (start + row * step).to_string(), &expected)),
                ("texts", found(rows, |row| format!("{prefix}{row:0width$}{suffix}"), &expected)),
                ("tags", found(rows, |row| format!("{row}{{{prefix}{:0width$}{suffix}}}", row % tenants), &expected)),
            ] {
                assert!(
                    !matches!(found, Finding::Lacking(..)),
                    "seed {seed}, round {round}, {kind}: {found:?}, {expected}, {rows} rows, {step} {start} {prefix:?} \
                     {suffix:?} {width} {tenants}"
                );
            }
        }
    }

    #[test]
    fn files_of_other_slots_are_rejected_if_their_keys_differ_enough() {
        let seed = 0x5EED;
        let mut random = Random(seed);
        for count in [2_u16, 3, 7, 16, 100] {
            let shards = SlotRange::ALL.divide(count);
            for shard in [0, 1, usize::from(count) - 1] {
                let mut keys: Vec<u64> = Vec::new();
                while keys.len() < 500 {
                    let key = random.below(1 << 31) << 31 | random.below(1 << 31);
                    keys.extend(Some(key).filter(|key| shards[shard].has_key((*key).into())));
                }
                let finding = |expected: &SlotSet| found(500, |row| keys[row as usize].to_string(), expected);
                for (other, slots) in shards.iter().enumerate() {
                    match (other == shard, finding(&set(*slots))) {
                        (true, Finding::Plausible) => {}
                        (false, Finding::Lacking(gap, sampled)) => {
                            assert!(gap.overlaps(*slots) && shards[shard].contains(sampled.slots), "{count} {shard}");
                            assert_eq!(sampled.rows, 64);
                        }
                        (_, found) => panic!("seed {seed}: shard {shard} as {other} of {count}: {found:?}"),
                    }
                }
                assert!(
                    matches!(finding(&SlotSet::ALL), Finding::Lacking(..)),
                    "seed {seed}: shard {shard} of {count}"
                );
            }
        }
    }

    #[test]
    fn few_rows_of_other_slots_are_reported_and_not_rejected() {
        let expected = set(SlotRange { first_slot: 0, last_slot: 8191 });
        // The slot of 1 is 9842, and that of 4 is 14039.
        let key = |row: u64| ["1", "4"][row as usize].to_owned();
        let slots = SlotRange { first_slot: 9842, last_slot: 14039 };
        assert_eq!(found(2, key, &expected), Finding::NoExpected(Sampled { rows: 2, slots }));
        assert_eq!(found(2, key, &set(slots)), Finding::Plausible);
        assert_eq!(found(0, key, &expected), Finding::Plausible);
        assert_eq!(found(2, key, &SlotSet::NONE), Finding::Plausible);
    }
}
