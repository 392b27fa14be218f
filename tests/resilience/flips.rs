//! Single flipped bits anywhere in a file.
//!
//! A file with a flipped bit is rejected, or each lookup returns the right result or reports damage.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::bake::Keys;
use zero_kv::client::{Client, ClientError, OwnedKey};
use zero_kv::store::{OpenOptions, Verify};
use zero_kv::{Key, LookupError, Store};

use crate::helpers::random::random;
use crate::helpers::rows::{bake_text, csv_row, write_new};
use crate::helpers::scenes::Scene;
use crate::helpers::waiting::{configured_duration, eventually};
use crate::{report, run_concurrently};

const FLIPS: usize = 1000;

/// Rows in key order, and keys that are in no row.
struct Rows {
    rows: Vec<(OwnedKey, Vec<u8>)>,
    absent: Vec<OwnedKey>,
}

fn numbers() -> Rows {
    let key = |i: u64| OwnedKey::U64(i * i * 977 + 5);
    Rows {
        rows: (0..400).map(|i| (key(i), value(i))).collect(),
        absent: (0..400).step_by(9).map(|i| OwnedKey::U64(i * i * 977 + 6)).collect(),
    }
}

fn bytes() -> Rows {
    let key =
        |i: u64, end: &str| OwnedKey::Bytes(format!("user/{i:03}/{}{end}", "x".repeat(i as usize % 30)).into_bytes());
    Rows {
        rows: (0..400).map(|i| (key(i, ""), value(i))).collect(),
        absent: (0..400).step_by(9).map(|i| key(i, "y")).collect(),
    }
}

fn value(i: u64) -> Vec<u8> {
    (0..i * 53 % 300).map(|at| b'a' + ((at + i) % 26) as u8).collect()
}

impl Rows {
    fn bake(&self, output: &Path) {
        let text = self.rows.iter().flat_map(|(key, value)| match key {
            OwnedKey::U64(key) => csv_row(key, value),
            OwnedKey::Bytes(key) => csv_row(key, value),
        });
        let keys = if matches!(self.rows[0].0, OwnedKey::U64(_)) { Keys::U64 } else { Keys::BYTES };
        bake_text(output, keys, text.collect::<Vec<u8>>());
    }

    /// Makes every kind of lookup. Returns how many results were right, and how many reported damage.
    fn check_lookups(
        &self,
        lookups: &mut impl Lookups,
        random: &mut impl FnMut() -> u64,
        step: usize,
    ) -> (usize, usize) {
        let mut counts = (0, 0);
        let mut is_right = |is_right: Option<bool>, what: &str, key: &OwnedKey| match is_right {
            Some(is_right) => {
                assert!(is_right, "{what} of {key:?} is wrong");
                counts.0 += 1;
            }
            None => counts.1 += 1,
        };
        let start = random() as usize % step;
        for (row, (key, value)) in self.rows.iter().enumerate().skip(start).step_by(step) {
            is_right(lookups.get(key.into()).map(|found| found.as_ref() == Some(value)), "the value", key);
            is_right(lookups.contains(key.into()), "the presence", key);
            for below in [true, false] {
                let found = lookups.neighbor(key.into(), below);
                let found = found.map(|found| found.is_some_and(|(of, found)| of == *key && found == *value));
                is_right(found, "the neighbor", key);
            }
            let end = (row + 1 + random() as usize % 50).min(self.rows.len() - 1);
            let (last, _) = &self.rows[end];
            is_right(lookups.count(key.into(), last.into()).map(|count| count == end - row), "the count", key);
            if row % 7 == 0 {
                let found = lookups.range(key.into(), last.into()).map(|found| found == self.rows[row..end]);
                is_right(found, "the range", key);
            }
        }
        for key in self.absent.iter().skip(random() as usize % step.min(40)).step_by(step) {
            is_right(lookups.get(key.into()).map(|found| found.is_none()), "the absence", key);
            is_right(lookups.contains(key.into()).map(|found| !found), "the absence", key);
            let (below, above) = self.rows.split_at(self.rows.partition_point(|(of, _)| of < key));
            let floor = lookups.neighbor(key.into(), true);
            is_right(floor.map(|found| found.as_ref() == below.last()), "the floor", key);
            let ceiling = lookups.neighbor(key.into(), false);
            is_right(ceiling.map(|found| found.as_ref() == above.first()), "the ceiling", key);
        }
        counts
    }
}

type Row = (OwnedKey, Vec<u8>);

/// A store or a client to look keys up in. `None` reports that the file is damaged.
trait Lookups {
    fn get(&mut self, key: Key<'_>) -> Option<Option<Vec<u8>>>;
    fn contains(&mut self, key: Key<'_>) -> Option<bool>;
    fn neighbor(&mut self, key: Key<'_>, below: bool) -> Option<Option<Row>>;
    fn count(&mut self, start: Key<'_>, end: Key<'_>) -> Option<usize>;
    fn range(&mut self, start: Key<'_>, end: Key<'_>) -> Option<Vec<Row>>;
}

fn unless_damaged<T>(answer: Result<T, LookupError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(LookupError::Damaged) => None,
        Err(error) => panic!("{error}"),
    }
}

fn owned((key, value): (Key<'_>, &[u8])) -> Row {
    (key.into(), value.to_vec())
}

impl Lookups for &Store {
    fn get(&mut self, key: Key<'_>) -> Option<Option<Vec<u8>>> {
        let one = unless_damaged(Lookup::get(*self, key).map(|value| value.map(<[u8]>::to_vec)));
        let mut many = None;
        let found = unless_damaged(self.get_many_with(&[key, key], |_, value| many = Some(value.map(<[u8]>::to_vec))))
            .and(many);
        assert_eq!(one, found, "one by one, and together");
        one
    }

    fn contains(&mut self, key: Key<'_>) -> Option<bool> {
        unless_damaged(Lookup::contains(*self, key))
    }

    fn neighbor(&mut self, key: Key<'_>, below: bool) -> Option<Option<Row>> {
        unless_damaged(if below { self.floor(key) } else { self.ceiling(key) }).map(|row| row.map(owned))
    }

    fn count(&mut self, start: Key<'_>, end: Key<'_>) -> Option<usize> {
        unless_damaged(Store::count(self, start..end))
    }

    fn range(&mut self, start: Key<'_>, end: Key<'_>) -> Option<Vec<Row>> {
        let rows = unless_damaged(Store::range(self, start..end))?;
        let found: Vec<Row> = unless_damaged(rows.clone().map(|row| row.map(owned)).collect())?;
        let mut backward: Vec<Row> = unless_damaged(rows.rev().map(|row| row.map(owned)).collect())?;
        backward.reverse();
        assert!(backward == found, "forward and backward");
        Some(found)
    }
}

fn unless_server_error<T>(answer: Result<T, ClientError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(ClientError::Server { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

impl Lookups for Client {
    fn get(&mut self, key: Key<'_>) -> Option<Option<Vec<u8>>> {
        unless_server_error(Client::get(self, key))
    }

    fn contains(&mut self, key: Key<'_>) -> Option<bool> {
        unless_server_error(Client::contains(self, key))
    }

    fn neighbor(&mut self, key: Key<'_>, below: bool) -> Option<Option<Row>> {
        unless_server_error(if below { self.floor(key) } else { self.ceiling(key) })
    }

    fn count(&mut self, start: Key<'_>, end: Key<'_>) -> Option<usize> {
        unless_server_error(Client::count(self, start..end)).map(|count| count as usize)
    }

    fn range(&mut self, start: Key<'_>, end: Key<'_>) -> Option<Vec<Row>> {
        let page = unless_server_error(self.first_page(start..end, 0))?;
        Some(page.iter().map(owned).collect())
    }
}

#[test]
fn each_of_2000_bit_flips_is_rejected_or_every_result_is_right_or_an_error() {
    let _guard = run_concurrently();
    let scene = Scene::new();
    let seed = 0xF11B;
    let mut random = random(seed);
    let (mut refused, mut damaged_files, mut right, mut damaged) = (0, 0, 0, 0);
    for rows in [numbers(), bytes()] {
        rows.bake(&scene.db());
        let whole = fs::read(scene.db()).unwrap();
        for number in 0..FLIPS {
            let bit = random() as usize % (whole.len() * 8);
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            write_new(&scene.db(), &flipped);
            let options = OpenOptions { verify: Verify::Touch, ..OpenOptions::default() };
            let Ok(store) = Store::open_with(scene.db(), &options) else {
                refused += 1;
                continue;
            };
            // Makes every lookup in some files, and some lookups in every file.
            let (found_right, found_damaged) =
                rows.check_lookups(&mut &store, &mut random, if number % 20 == 0 { 1 } else { 17 });
            // A check of every block finds the damage.
            let blocks = store.block_counts().0;
            let damaged_blocks = (0..blocks).filter(|block| store.verify_block(*block) == Some(false)).count();
            assert_eq!(damaged_blocks, 1, "bit {bit} of seed {seed}");
            (right, damaged, damaged_files) = (right + found_right, damaged + found_damaged, damaged_files + 1);
        }
    }
    assert_eq!(refused + damaged_files, 2 * FLIPS);
    assert!(refused > FLIPS / 20 && damaged_files > FLIPS && damaged > FLIPS);
    report(&format!(
        "{} flipped bits: {refused} files refused, {damaged_files} opened: {right} answers right, {damaged} errors, none wrong",
        2 * FLIPS
    ));
}

#[test]
fn a_server_sends_no_byte_of_a_block_with_a_flipped_bit() {
    let _guard = run_concurrently();
    let mut random = random(0x5E7);
    let flips = if configured_duration().is_some() { 300 } else { 12 };
    for rows in [numbers(), bytes()] {
        let scene = Scene::new();
        rows.bake(&scene.db());
        let whole = fs::read(scene.db()).unwrap();
        let served = scene.serve(&[]);
        let mut client = served.client();
        let mut damaged = 0;
        for flip in 1..=flips {
            let bit = random() as usize % (whole.len() * 8);
            let flipped = whole[bit / 8] ^ (1 << (bit % 8));
            let write = |byte: u8| {
                let file = File::options().write(true).open(scene.db()).unwrap();
                file.write_all_at(&[byte], bit as u64 / 8).unwrap();
            };
            let changes_before = served.logged("was changed in place");
            write(flipped);
            // Makes lookups immediately, and again after the server has rejected the file.
            rows.check_lookups(&mut client, &mut random, 9);
            eventually("the server detects the change", || served.logged("was changed in place") > changes_before);
            eventually("the changed file is rejected", || served.number("refused_files") == flip as u64);
            damaged += rows.check_lookups(&mut client, &mut random, 3).1;
            write(whole[bit / 8]);
            eventually("all rows are served again", || {
                let (right, damaged) = rows.check_lookups(&mut client, &mut random, 9);
                right > 0 && damaged == 0 && served.info().get("state") == Some("serving")
            });
        }
        assert!(damaged > flips, "{damaged} errors");
        assert_eq!(served.number("swaps"), flips as u64);
    }
}
