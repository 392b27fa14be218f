//! Which keys are asked for, and what is to be answered.
//!
//! In: the baked file, a protocol, a distribution and a seed. Out: pipelines of requests, each
//! with the header that its answer must have. Each pipeline is drawn when it is sent:
//! a pool that was drawn once would soon sit in the server's caches, and flatter it.
//!
//! A draw must cost little, since it takes from the machine that the server runs on. A
//! row at a random place costs a wait for memory. So the rows are shuffled, and a
//! pipeline is as many as it needs from a random place on: each request is for any
//! row with the same probability, and its neighbours are anywhere in the file.

use std::ops::Range;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use rand_distr::Distribution as _;
use rand_distr::weighted::WeightedAliasIndex;
use zero_kv::client::OwnedKey;
use zero_kv::protocol::native::{KEY_LEN_MAX_BYTES, ResponseHeader, Status};
use zero_kv::{Key, KeyKind, MappedStore};

use crate::canned::Canned;
use crate::mix::{Op, OpMix};
use crate::random::Random;
use crate::wire::{Protocol, Requests};

/// Draws of an absent key before giving up. Three in four land far outside a
/// small dense table; only one that holds nearly every key there is gets here.
const MISS_TRIES_MAX: u32 = 10_000;

/// How requests are spread over the rows.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Distribution {
    /// Every row as often as any other
    Uniform,
    /// The row of rank r in proportion to r^-exponent; ranks are dealt out at random
    Zipf,
    /// Each client in key order, from a place of its own, round and round
    Sequential,
}

enum Spread {
    /// From a random place on; the rows are shuffled.
    Uniform,
    /// Draws ranks; the rows are shuffled, and a rank is a place among them.
    Zipf(WeightedAliasIndex<f64>),
    /// From where the pipeline before ended; the rows are in key order.
    Sequential,
}

/// The baked file, and its rows as the load needs them.
pub(crate) struct Table {
    pub(crate) store: MappedStore,
    /// The Get of each row as it is sent.
    gets: Requests,
    /// The header that each of them must be answered with.
    answers: Vec<ResponseHeader>,
    spread: Spread,
    miss_ratio: f64,
}

impl Table {
    /// The exponent is that of [`Distribution::Zipf`]. The seed says which keys are its hot ones.
    ///
    /// # Errors
    /// If there are more rows than a distribution can be drawn from.
    pub(crate) fn new(
        store: MappedStore,
        protocol: Protocol,
        distribution: Distribution,
        zipf_exponent: f64,
        miss_ratio: f64,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut rows: Vec<(OwnedKey, ResponseHeader)> = Vec::with_capacity(store.len());
        for row in store.iter() {
            let (key, value) = row?;
            let answer = ResponseHeader::of_value(value.len()).expect("an opened file has no value that is too long");
            rows.push((key, answer));
        }
        if distribution != Distribution::Sequential {
            Random::of_seed(seed).shuffle(&mut rows);
        }
        let mut gets = protocol.no_requests(store.key_kind());
        rows.iter().for_each(|(key, _)| gets.push(Op::Get, key.as_key()));
        let answers: Vec<ResponseHeader> = rows.into_iter().map(|(_, answer)| answer).collect();
        let spread = match distribution {
            Distribution::Zipf if !answers.is_empty() => {
                let weights = (1..=answers.len()).map(|rank| (rank as f64).powf(-zipf_exponent)).collect();
                Spread::Zipf(WeightedAliasIndex::new(weights).map_err(|error| anyhow!("--distribution zipf: {error}"))?)
            }
            Distribution::Uniform | Distribution::Zipf => Spread::Uniform,
            Distribution::Sequential => Spread::Sequential,
        };
        Ok(Table { store, gets, answers, spread, miss_ratio })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    fn rows(&self) -> usize {
        self.answers.len()
    }
}

/// One client's requests, drawn one pipeline after the other.
pub(crate) struct Draw {
    random: Random,
    /// The place of the next row.
    next_row: usize,
    /// How many answers were drawn before, for a server whose answers follow a pattern.
    answers_before: usize,
    /// The last absent key that was drawn, if it is bytes.
    absent: Vec<u8>,
}

impl Draw {
    pub(crate) fn of_client(table: &Table, seed: u64, client: usize, clients: usize) -> Self {
        let next_row = (table.rows() as u128 * client as u128 / clients as u128) as usize;
        Draw { random: Random::of_client(seed, client), next_row, answers_before: 0, absent: Vec::new() }
    }

    /// Before each pipeline.
    fn begin(&mut self, table: &Table) {
        if matches!(table.spread, Spread::Uniform) && !table.is_empty() {
            self.next_row = self.random.below(table.rows());
        }
    }

    /// The next rows, at most so many, which lie side by side.
    fn rows(&mut self, table: &Table, at_most: usize) -> Range<usize> {
        let first = self.next_row;
        let end = table.rows().min(first + at_most);
        self.next_row = if end == table.rows() { 0 } else { end };
        first..end
    }

    fn row(&mut self, table: &Table) -> usize {
        match &table.spread {
            Spread::Zipf(ranks) => ranks.sample(&mut self.random),
            Spread::Uniform | Spread::Sequential => self.rows(table, 1).start,
        }
    }

    /// A key that is not in the file, near one that is: keys from all of 64 bits
    /// would nearly all end at the same few places of the index.
    fn absent(&mut self, table: &Table) -> anyhow::Result<Key<'_>> {
        for _ in 0..MISS_TRIES_MAX {
            let near = if table.is_empty() { None } else { Some(table.gets.key(self.row(table))) };
            match table.store.key_kind() {
                KeyKind::U64 => {
                    let key = self.near_number(near.and_then(|near| near.as_u64()).unwrap_or_default());
                    if !table.store.contains(key)? {
                        return Ok(Key::U64(key));
                    }
                }
                KeyKind::Bytes => {
                    self.draw_near_bytes(near.and_then(|near| near.as_bytes()).unwrap_or_default());
                    if !table.store.contains(&self.absent)? {
                        return Ok(Key::Bytes(&self.absent));
                    }
                }
            }
        }
        bail!("no absent key was found in {MISS_TRIES_MAX} draws: pass --miss-ratio 0")
    }

    /// A number at a random distance.
    fn near_number(&mut self, near: u64) -> u64 {
        near ^ (self.random.next() >> self.random.below(64))
    }

    /// The same bytes but for one, which is another or comes behind them.
    fn draw_near_bytes(&mut self, near: &[u8]) {
        self.absent.clear();
        self.absent.extend_from_slice(near);
        let at = self.random.below((near.len() + 1).min(KEY_LEN_MAX_BYTES));
        let byte = self.random.next() as u8;
        match self.absent.get_mut(at) {
            Some(changed) => *changed = byte,
            None => self.absent.push(byte),
        }
    }
}

/// One pipeline: the requests as they are sent, and the header that each answer must have.
pub(crate) struct Pipeline {
    pub(crate) requests: Requests,
    pub(crate) expected: Vec<ResponseHeader>,
}

impl Pipeline {
    pub(crate) fn new(protocol: Protocol, keys: KeyKind) -> Self {
        Pipeline { requests: protocol.no_requests(keys), expected: Vec::new() }
    }

    /// Draws the next pipeline, in place of the last. A server that looks nothing
    /// up answers what `canned` says, whatever is asked.
    pub(crate) fn draw(
        &mut self,
        table: &Table,
        mix: &OpMix,
        canned: Option<&Canned>,
        requests: usize,
        draw: &mut Draw,
    ) -> anyhow::Result<()> {
        self.requests.clear();
        self.expected.clear();
        draw.begin(table);
        let asks_for_rows_only = table.miss_ratio == 0.0 && mix.single() == Some(Op::Get);
        if asks_for_rows_only && !matches!(table.spread, Spread::Zipf(_)) {
            while self.expected.len() < requests {
                let rows = draw.rows(table, requests - self.expected.len());
                self.requests.extend_from(&table.gets, rows.clone());
                self.expected.extend_from_slice(&table.answers[rows]);
            }
        } else {
            for _ in 0..requests {
                self.draw_any(table, mix, draw)?;
            }
        }
        if let Some(canned) = canned {
            for expected in &mut self.expected {
                *expected = canned.header(draw.answers_before);
                draw.answers_before += 1;
            }
        }
        Ok(())
    }

    fn draw_any(&mut self, table: &Table, mix: &OpMix, draw: &mut Draw) -> anyhow::Result<()> {
        let op = mix.draw(&mut draw.random);
        if table.miss_ratio > 0.0 && draw.random.unit() < table.miss_ratio {
            self.requests.push(op, draw.absent(table)?);
            self.expected.push(ResponseHeader::bare(Status::NotFound));
            return Ok(());
        }
        let row = draw.row(table);
        self.requests.push_like(op, &table.gets, row);
        self.expected.push(match op {
            Op::Get => table.answers[row],
            Op::Exists => ResponseHeader::bare(Status::Ok),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zero_kv::bake::{self, Keys, Options};

    #[test]
    fn absent_bytes_are_a_byte_away_from_a_key() {
        let keys = ["a", "key one", "key two"];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let mut options = Options::default();
        options.replace = zero_kv::replace::ReplaceRules::any();
        options.keys = Keys::Bytes;
        bake::bake_csv(keys.map(|key| format!("{key},\n")).concat().as_bytes(), &path, &options, &mut |_| ()).unwrap();
        let store = MappedStore::open(&path).unwrap();
        let table = Table::new(store, Protocol::Native, Distribution::Uniform, 0.0, 1.0, 1).unwrap();
        let mut draw = Draw::of_client(&table, 1, 0, 1);
        let (mut longer, mut changed) = (0, 0);
        for _ in 0..1_000 {
            let absent = draw.absent(&table).unwrap().as_bytes().unwrap().to_vec();
            assert!(!keys.iter().any(|key| key.as_bytes() == absent));
            let differences = |key: &str| key.bytes().zip(&absent).filter(|(byte, other)| byte != *other).count();
            let is_longer = |key: &str| key.len() + 1 == absent.len() && differences(key) == 0;
            let is_changed = |key: &str| key.len() == absent.len() && differences(key) == 1;
            longer += usize::from(keys.iter().any(|key| is_longer(key)));
            changed += usize::from(keys.iter().any(|key| is_changed(key)));
        }
        assert!(longer + changed == 1_000 && longer > 100 && changed > 100, "{longer} {changed}");
    }
}
