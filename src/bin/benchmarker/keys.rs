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
use zero_kv::protocol::native::{Request, ResponseHeader, Status};
use zero_kv::{Key, KeyKind, Store};

use crate::canned::Canned;
use crate::frames::Frames;
use crate::mix::{Op, OpMix};
use crate::random::Random;
use crate::resp;
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

/// A key of the file, and the header that Get must answer.
struct Row {
    key: u64,
    answer: ResponseHeader,
}

enum Spread {
    /// From a random place on; the rows are shuffled.
    Uniform,
    /// Draws ranks; the rows are shuffled, and a rank is a place among them.
    Zipf(WeightedAliasIndex<f64>),
    /// From where the pipeline before ended; the rows are in key order.
    Sequential,
}

/// The baked file, and its rows where one memory access reaches each.
pub(crate) struct Table {
    pub(crate) store: Store,
    rows: Vec<Row>,
    /// The `GET` of each row as it is sent, where that costs more than to copy it: a
    /// native frame does not.
    gets: Frames,
    spread: Spread,
    miss_ratio: f64,
}

impl Table {
    /// The exponent is that of [`Distribution::Zipf`]. The seed says which keys are its hot ones.
    ///
    /// # Errors
    /// If there are more rows than a distribution can be drawn from.
    pub(crate) fn new(
        store: Store,
        protocol: Protocol,
        distribution: Distribution,
        zipf_exponent: f64,
        miss_ratio: f64,
        seed: u64,
    ) -> anyhow::Result<Self> {
        if store.key_kind() != KeyKind::U64 {
            bail!("the table's keys are {}, where unsigned 64-bit numbers were expected", store.key_kind());
        }
        let row = |(key, value): (Key<'_>, &[u8])| {
            let key = key.as_u64().expect("a table has keys of one kind");
            let answer = ResponseHeader::of_value(value.len()).expect("an opened file has no value that is too long");
            Row { key, answer }
        };
        let mut rows: Vec<Row> = store.iter().map(row).collect();
        if distribution != Distribution::Sequential {
            Random::of_seed(seed).shuffle(&mut rows);
        }
        let mut gets = Frames::default();
        if protocol == Protocol::Resp {
            rows.iter().for_each(|row| gets.push_with(|bytes| resp::write_request(Op::Get, row.key, bytes)));
        }
        let spread = match distribution {
            Distribution::Zipf if !rows.is_empty() => {
                let weights = (1..=rows.len()).map(|rank| (rank as f64).powf(-zipf_exponent)).collect();
                Spread::Zipf(WeightedAliasIndex::new(weights).map_err(|error| anyhow!("--distribution zipf: {error}"))?)
            }
            Distribution::Uniform | Distribution::Zipf => Spread::Uniform,
            Distribution::Sequential => Spread::Sequential,
        };
        Ok(Table { store, rows, gets, spread, miss_ratio })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// One client's requests, drawn one pipeline after the other.
pub(crate) struct Draw {
    random: Random,
    /// The place of the next row.
    next_row: usize,
    /// How many answers were drawn before, for a server whose answers follow a pattern.
    answers_before: usize,
}

impl Draw {
    pub(crate) fn of_client(table: &Table, seed: u64, client: usize, clients: usize) -> Self {
        let next_row = (table.rows.len() as u128 * client as u128 / clients as u128) as usize;
        Draw { random: Random::of_client(seed, client), next_row, answers_before: 0 }
    }

    /// Before each pipeline.
    fn begin(&mut self, table: &Table) {
        if matches!(table.spread, Spread::Uniform) && !table.is_empty() {
            self.next_row = self.random.below(table.rows.len());
        }
    }

    /// The next rows, at most so many, which lie side by side.
    fn rows(&mut self, table: &Table, at_most: usize) -> Range<usize> {
        let first = self.next_row;
        let end = table.rows.len().min(first + at_most);
        self.next_row = if end == table.rows.len() { 0 } else { end };
        first..end
    }

    fn row(&mut self, table: &Table) -> usize {
        match &table.spread {
            Spread::Zipf(ranks) => ranks.sample(&mut self.random),
            Spread::Uniform | Spread::Sequential => self.rows(table, 1).start,
        }
    }

    /// A key that is not in the file, at a random distance from one that is: keys
    /// from all of 64 bits would nearly all end at the same few places of the index.
    fn absent(&mut self, table: &Table) -> anyhow::Result<u64> {
        for _ in 0..MISS_TRIES_MAX {
            let near = if table.is_empty() { 0 } else { table.rows[self.row(table)].key };
            let key = near ^ (self.random.next() >> self.random.below(64));
            if !table.store.contains(key)? {
                return Ok(key);
            }
        }
        bail!("no absent key was found in {MISS_TRIES_MAX} draws: pass --miss-ratio 0")
    }
}

/// One pipeline: the requests as they are sent, and the header that each answer must have.
pub(crate) struct Pipeline {
    pub(crate) requests: Requests,
    pub(crate) expected: Vec<ResponseHeader>,
}

impl Pipeline {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Pipeline { requests: protocol.no_requests(), expected: Vec::new() }
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
                self.get_rows(table, rows);
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

    fn get_rows(&mut self, table: &Table, range: Range<usize>) {
        let rows = &table.rows[range.clone()];
        match &mut self.requests {
            Requests::Native(requests) => {
                requests.extend(rows.iter().map(|row| Request::new(Op::Get.native(), row.key)));
            }
            Requests::Resp(frames) => frames.extend_from(&table.gets, range),
        }
        self.expected.extend(rows.iter().map(|row| row.answer));
    }

    fn draw_any(&mut self, table: &Table, mix: &OpMix, draw: &mut Draw) -> anyhow::Result<()> {
        let op = mix.draw(&mut draw.random);
        if table.miss_ratio > 0.0 && draw.random.unit() < table.miss_ratio {
            self.requests.push(op, draw.absent(table)?);
            self.expected.push(ResponseHeader::bare(Status::NotFound));
            return Ok(());
        }
        let row = draw.row(table);
        match &mut self.requests {
            Requests::Native(requests) => requests.push(Request::new(op.native(), table.rows[row].key)),
            Requests::Resp(frames) => frames.push_with(|bytes| resp::write_like(op, table.gets.get(row), bytes)),
        }
        self.expected.push(match op {
            Op::Get => table.rows[row].answer,
            Op::Exists => ResponseHeader::bare(Status::Ok),
        });
        Ok(())
    }
}
