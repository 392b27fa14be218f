//! Random requests, and the expected responses.
//!
//! In: the baked file, a protocol, a distribution, and a seed. Out: pipelines of requests, each request with the
//! expected response header. Each pipeline is drawn just before it is sent, because the rows of a small pool of
//! prepared pipelines would stay in the processor's caches and make the server look faster.
//!
//! Draws must be cheap, because the benchmarker runs on the server's machine and each access to a random row is a cache
//! miss. Therefore, the rows are shuffled once, and a pipeline takes consecutive rows of the shuffled list, starting at
//! a random row. Every row has equal probability, and consecutive requests are for unrelated keys.

use std::ops::Range;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::Distribution as _;
use rand_distr::weighted::WeightedAliasIndex;
use zero_kv::client::OwnedKey;
use zero_kv::protocol::native::{KEY_LEN_MAX_BYTES, ResponseHeader, Status};
use zero_kv::{Key, KeyKind, Lookup, LookupError, MappedStore};

use crate::canned::Canned;
use crate::encoding::Encoding;
use crate::mix::{Op, OpMix};
use crate::wire::{Protocol, Requests};

/// Maximum number of draws in the search for one absent key. The search reaches the maximum only if the table contains
/// nearly every possible key. Even in a table of all numbers below 65536, about three in four drawn keys are absent: a
/// draw randomizes the lowest 1 to 64 bits of a number from the table, and more than 16 random bits usually make a
/// number of 65536 or more.
const MISS_TRIES_MAX: u32 = 10_000;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Distribution {
    /// Equal probability for all rows
    Uniform,
    /// Probability proportional to r^-exponent for the row of rank r; ranks are assigned to rows at random
    Zipf,
    /// All keys in ascending order, starting over after the last key; clients begin at evenly spaced rows
    Sequential,
}

/// The rule that chooses the next row. Rows are in key order for `Sequential`, and shuffled otherwise.
enum RowChoice {
    /// For each pipeline, consecutive rows that begin at a random row.
    Uniform,
    /// The row at a random index. Lower indexes are more probable.
    Zipf(WeightedAliasIndex<f64>),
    /// The rows after the previous pipeline's rows.
    Sequential,
}

/// The baked file, and a request and the expected response for each row.
pub(crate) struct Table {
    pub(crate) store: MappedStore,
    /// The encoding of the responses, which depends on the op of the encoded requests.
    encoding: Encoding,
    /// An encoded request for each row.
    requests: Requests,
    /// The expected response header of each request.
    responses: Vec<ResponseHeader>,
    row_choice: RowChoice,
    miss_ratio: f64,
}

impl Table {
    /// Encodes a request for each row, and chooses the order of the rows. The seed determines this order, and therefore
    /// also the most frequently requested keys. `zipf_exponent` applies to [`Distribution::Zipf`]. The encoding
    /// determines the op of the requests.
    pub(crate) fn new(
        store: MappedStore,
        protocol: Protocol,
        distribution: Distribution,
        zipf_exponent: f64,
        miss_ratio: f64,
        seed: u64,
        encoding: Encoding,
    ) -> anyhow::Result<Self> {
        let mut rows: Vec<(OwnedKey, ResponseHeader)> = Vec::with_capacity(store.len());
        for row in store.iter() {
            let (key, value) = row?;
            let response = encoding.response_header(key.as_key(), &value)?;
            rows.push((key, response));
        }
        if distribution != Distribution::Sequential {
            rows.shuffle(&mut SmallRng::seed_from_u64(seed));
        }
        let mut requests = protocol.empty_requests(store.key_kind());
        rows.iter().for_each(|(key, _)| encoding.push_request(key.as_key(), &mut requests));
        let responses: Vec<ResponseHeader> = rows.into_iter().map(|(_, response)| response).collect();
        let row_choice = match distribution {
            Distribution::Zipf if !responses.is_empty() => {
                let weights = (1..=responses.len()).map(|rank| (rank as f64).powf(-zipf_exponent)).collect();
                RowChoice::Zipf(
                    WeightedAliasIndex::new(weights).map_err(|error| anyhow!("--distribution zipf: {error}"))?,
                )
            }
            Distribution::Uniform | Distribution::Zipf => RowChoice::Uniform,
            Distribution::Sequential => RowChoice::Sequential,
        };
        Ok(Table { store, encoding, requests, responses, row_choice, miss_ratio })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    fn rows(&self) -> usize {
        self.responses.len()
    }

    /// Returns the expected header of the response to a request for an absent key. An absent key can have a floor.
    fn absent_response(&self, key: Key<'_>) -> Result<ResponseHeader, LookupError> {
        let row = match &self.encoding {
            Encoding::Floor(encoding) => {
                self.store.floor(key)?.map(|(key, value)| encoding.response_header(key.as_key(), value.len()))
            }
            Encoding::Value | Encoding::Columns(_) => None,
        };
        Ok(row.unwrap_or(ResponseHeader::bare(Status::NotFound)))
    }

    /// Writes the bytes that must follow the header of a response to `value`, which must be empty. For a `get` request,
    /// these bytes are the value of the key; for a `floor` request, the encoded floor of the key; for a request for
    /// columns, the encoded columns. Returns false if the file has no such row.
    pub(crate) fn look_up_expected(&self, key: Key<'_>, value: &mut Vec<u8>) -> Result<bool, LookupError> {
        let encoding = match &self.encoding {
            Encoding::Floor(encoding) => encoding,
            Encoding::Value => {
                return self.store.get_with(key, |found| found.map(|found| value.extend_from_slice(found)).is_some());
            }
            Encoding::Columns(encoding) => {
                return self.store.get_with(key, |found| found.is_some_and(|row| encoding.write(row, value).is_ok()));
            }
        };
        let floor = self.store.floor(key)?;
        Ok(floor.map(|(key, found)| encoding.write(key.as_key(), &found, value)).is_some())
    }

    /// Returns the request that each connection sends first, if the op needs one.
    pub(crate) fn first_request(&self) -> Option<Vec<u8>> {
        match &self.encoding {
            Encoding::Columns(encoding) => encoding.first_request(),
            Encoding::Value | Encoding::Floor(_) => None,
        }
    }
}

pub(crate) struct KeyDraw {
    rng: SmallRng,
    /// The index of the next row.
    next_row: usize,
    /// Number of requests in earlier pipelines. This number selects the next canned response. Unused without
    /// `--ceiling`.
    requests_before: usize,
    /// The absent byte key that was drawn last. Unused if keys are numbers.
    absent: Vec<u8>,
}

impl KeyDraw {
    pub(crate) fn for_client(table: &Table, seed: u64, client: usize, clients: usize) -> Self {
        let next_row = (table.rows() as u128 * client as u128 / clients as u128) as usize;
        KeyDraw { rng: client_rng(seed, client), next_row, requests_before: 0, absent: Vec::new() }
    }

    /// Prepares for the next pipeline. With the uniform distribution, moves to a random row.
    fn begin(&mut self, table: &Table) {
        if matches!(table.row_choice, RowChoice::Uniform) && !table.is_empty() {
            self.next_row = self.rng.random_range(0..table.rows());
        }
    }

    /// Returns the indexes of at most `rows_max` consecutive rows, and moves to the row after them.
    fn next_rows(&mut self, table: &Table, rows_max: usize) -> Range<usize> {
        let first = self.next_row;
        let end = table.rows().min(first + rows_max);
        self.next_row = if end == table.rows() { 0 } else { end };
        first..end
    }

    fn next_row(&mut self, table: &Table) -> usize {
        match &table.row_choice {
            RowChoice::Zipf(ranks) => ranks.sample(&mut self.rng),
            RowChoice::Uniform | RowChoice::Sequential => self.next_rows(table, 1).start,
        }
    }

    /// Returns an absent key near a key of the table. A uniformly random key would nearly always be far from all keys
    /// of the table.
    fn absent_key(&mut self, table: &Table) -> anyhow::Result<Key<'_>> {
        for _ in 0..MISS_TRIES_MAX {
            let near = if table.is_empty() { None } else { Some(table.requests.key(self.next_row(table))) };
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
        bail!("found no absent key in {MISS_TRIES_MAX} draws: pass --miss-ratio 0")
    }

    /// Returns a number at a random distance from `near`. All orders of magnitude of the distance are equally likely.
    fn near_number(&mut self, near: u64) -> u64 {
        near ^ (self.rng.next_u64() >> self.rng.random_range(0..64u32))
    }

    /// Copies `near` into `absent`, and replaces or appends one byte.
    fn draw_near_bytes(&mut self, near: &[u8]) {
        self.absent.clear();
        self.absent.extend_from_slice(near);
        let at = self.rng.random_range(0..(near.len() + 1).min(KEY_LEN_MAX_BYTES));
        let byte = self.rng.next_u64() as u8;
        match self.absent.get_mut(at) {
            Some(changed) => *changed = byte,
            None => self.absent.push(byte),
        }
    }
}

/// The encoded requests of one pipeline, and the expected header of each response.
pub(crate) struct Pipeline {
    pub(crate) requests: Requests,
    pub(crate) expected: Vec<ResponseHeader>,
}

impl Pipeline {
    pub(crate) fn new(protocol: Protocol, keys: KeyKind) -> Self {
        Pipeline { requests: protocol.empty_requests(keys), expected: Vec::new() }
    }

    /// Draws the next pipeline, which replaces the current one. If `canned` is given, the server sends canned
    /// responses, so the expected headers do not depend on the keys.
    pub(crate) fn draw(
        &mut self,
        table: &Table,
        mix: &OpMix,
        canned: Option<&Canned>,
        requests: usize,
        draw: &mut KeyDraw,
    ) -> anyhow::Result<()> {
        self.requests.clear();
        self.expected.clear();
        draw.begin(table);
        let requests_only_rows = table.miss_ratio == 0.0 && mix.single() == Some(table.encoding.op());
        if requests_only_rows && !matches!(table.row_choice, RowChoice::Zipf(_)) {
            while self.expected.len() < requests {
                let rows = draw.next_rows(table, requests - self.expected.len());
                self.requests.extend_from(&table.requests, rows.clone());
                self.expected.extend_from_slice(&table.responses[rows]);
            }
        } else {
            for _ in 0..requests {
                self.draw_request(table, mix, draw)?;
            }
        }
        if let Some(canned) = canned {
            for expected in &mut self.expected {
                *expected = canned.header(draw.requests_before);
                draw.requests_before += 1;
            }
        }
        Ok(())
    }

    fn draw_request(&mut self, table: &Table, mix: &OpMix, draw: &mut KeyDraw) -> anyhow::Result<()> {
        let op = mix.draw(&mut draw.rng);
        if table.miss_ratio > 0.0 && draw.rng.random::<f64>() < table.miss_ratio {
            let key = draw.absent_key(table)?;
            self.requests.push(op, key);
            self.expected.push(table.absent_response(key)?);
            return Ok(());
        }
        let row = draw.next_row(table);
        self.requests.push_like(op, &table.requests, row);
        self.expected.push(match op {
            Op::Exists => ResponseHeader::bare(Status::Ok),
            _ => table.responses[row],
        });
        Ok(())
    }
}

/// Returns the random number generator of a client. Each pair of seed and client has its own sequence.
fn client_rng(seed: u64, client: usize) -> SmallRng {
    // If the seed were `seed + client`, neighboring seeds would give the same sequences to neighboring clients.
    let mixed_seed = SmallRng::seed_from_u64(seed).next_u64();
    SmallRng::seed_from_u64(mixed_seed ^ client as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zero_kv::bake::{self, Keys, Options};

    #[test]
    fn absent_keys_differ_from_a_key_by_one_byte() {
        let keys = ["a", "key one", "key two"];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let mut options = Options::default();
        options.replace = zero_kv::replace::ReplaceRules::any();
        options.keys = Keys::BYTES;
        bake::bake_csv(keys.map(|key| format!("{key},\n")).concat().as_bytes(), &path, &options).unwrap();
        let store = MappedStore::open(&path).unwrap();
        let table = Table::new(store, Protocol::Native, Distribution::Uniform, 0.0, 1.0, 1, Encoding::Value).unwrap();
        let mut draw = KeyDraw::for_client(&table, 1, 0, 1);
        let (mut longer, mut changed) = (0, 0);
        for _ in 0..1_000 {
            let absent = draw.absent_key(&table).unwrap().as_bytes().unwrap().to_vec();
            assert!(!keys.iter().any(|key| key.as_bytes() == absent));
            let differences = |key: &str| key.bytes().zip(&absent).filter(|(byte, other)| byte != *other).count();
            let is_longer = |key: &str| key.len() + 1 == absent.len() && differences(key) == 0;
            let is_changed = |key: &str| key.len() == absent.len() && differences(key) == 1;
            longer += usize::from(keys.iter().any(|key| is_longer(key)));
            changed += usize::from(keys.iter().any(|key| is_changed(key)));
        }
        assert!(longer + changed == 1_000 && longer > 100 && changed > 100, "{longer} {changed}");
    }

    #[test]
    fn different_seeds_and_clients_get_different_random_numbers() {
        let first = |seed, client| client_rng(seed, client).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        for (seed, client) in [(1, 3), (2, 2), (2, 1), (0, 3)] {
            assert_ne!(first(1, 2), first(seed, client), "{seed} {client}");
        }
    }
}
