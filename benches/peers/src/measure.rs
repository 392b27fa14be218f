//! Measures all engines in turn at one table size: build, cold open, and lookups.
//!
//! In: engines and rows. Out: medians. Every round measures each engine once,
//! beginning with a different one. A measurement loads the engine's file into the page
//! cache, opens it, and warms it up with unmeasured lookups.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::engine::Engine;
use crate::machine::{memory_total_bytes, storage_read_bytes};
use crate::page_cache::{allocated_bytes, drop_files, read_files};
use crate::rows::{Amounts, Expected, Questions, Random, Rows, Sum};

/// Number of keys whose values are checked byte by byte before the measurement.
const CHECKED_KEYS: usize = 10_000;

/// A table size, and the parameters of its measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: Rows,
    pub(crate) amounts: Amounts,
    pub(crate) rounds: usize,
    pub(crate) build_rounds: usize,
    /// Whether to run the mixed load, which only ordered engines with a file support.
    pub(crate) mixed: bool,
}

/// The measured quantities, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    BuildSeconds,
    FileBytes,
    ColdOpenMs,
    ColdReadBytes,
    GetNs,
    BatchNs,
    MissNs,
    FloorNs,
    ScanUs,
    MixedNs,
}

/// The results of one engine, or its error.
pub(crate) struct Column {
    pub(crate) engine: Engine,
    samples: BTreeMap<Figure, Vec<f64>>,
    pub(crate) failure: Option<String>,
}

impl Column {
    fn new(engine: Engine, plan: &Plan) -> Column {
        let failure = match () {
            () if !engine.holds(&plan.rows) => Some("its file holds at most 4 GiB".to_owned()),
            () if plan.mixed && !(engine.ordered && engine.build.is_some()) => {
                Some("not part of the mixed load, which takes scans and a file".to_owned())
            }
            () => None,
        };
        Column { engine, samples: BTreeMap::new(), failure }
    }

    pub(crate) fn median(&self, figure: Figure) -> Option<f64> {
        median(self.samples.get(&figure)?)
    }

    fn add(&mut self, figure: Figure, sample: f64) {
        self.samples.entry(figure).or_default().push(sample);
    }
}

pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(match sorted.len() % 2 {
        0 => (sorted[sorted.len() / 2 - 1] + upper) / 2.0,
        _ => upper,
    })
}

/// The results of all engines at one size.
pub(crate) struct Table {
    pub(crate) plan: Plan,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    /// Measures in new folders below `folder`, and removes them.
    pub(crate) fn measure(plan: Plan, engines: &[Engine], folder: &Path, tell: &dyn Fn(&str)) -> Table {
        let columns = engines.iter().map(|engine| Column::new(engine.clone(), &plan)).collect();
        let mut table = Table { plan, columns };
        for round in 0..plan.build_rounds {
            table.turns(round, folder, tell, "build", |turn| turn.build());
        }
        for round in 0..plan.rounds {
            table.turns(round, folder, tell, "cold open", |turn| turn.open_cold());
        }
        for round in 0..plan.rounds {
            let warm_up = Questions::new(&plan.rows, plan.amounts, 2 * round as u64);
            let asked = Asked::new(&plan, 2 * round as u64 + 1);
            table.turns(round, folder, tell, "ask", |turn| {
                turn.ask(&warm_up, &asked)?;
                turn.end()
            });
        }
        for column in &table.columns {
            // The folder of the run is removed at the end in any case.
            let _ = fs::remove_dir_all(engine_folder(folder, &column.engine));
        }
        table
    }

    /// Measures every engine that has not failed once.
    fn turns(
        &mut self,
        round: usize,
        folder: &Path,
        tell: &dyn Fn(&str),
        what: &str,
        take: impl Fn(&mut Turn<'_>) -> Result<()>,
    ) {
        let count = self.columns.len();
        let plan = self.plan;
        for at in (0..count).map(|i| (i + round) % count) {
            let column = &mut self.columns[at];
            if column.failure.is_some() {
                continue;
            }
            let name = column.engine.name;
            tell(&format!("{} rows, {what}, round {}, {name}", plan.rows.count, round + 1));
            let folder = engine_folder(folder, &column.engine);
            if let Err(error) = take(&mut Turn { plan: &plan, column, folder }) {
                column.failure = Some(format!("{what}: {error:#}"));
            }
        }
    }
}

/// Measures one engine once.
struct Turn<'c> {
    plan: &'c Plan,
    column: &'c mut Column,
    folder: PathBuf,
}

impl Turn<'_> {
    fn build(&mut self) -> Result<()> {
        let Some(build) = self.column.engine.build else {
            let (seconds, table) = timed(|| (self.column.engine.open)(&self.plan.rows, &self.folder));
            self.column.add(Figure::BuildSeconds, seconds);
            return table.map(drop);
        };
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir(&self.folder)?;
        let (seconds, built) = timed(|| build(&self.plan.rows, &self.folder));
        built?;
        self.column.add(Figure::BuildSeconds, seconds);
        self.column.add(Figure::FileBytes, allocated_bytes(&self.folder)? as f64);
        // Not measured, because the file is complete. Without this step, writeback would disturb the next measurement.
        drop_files(&self.folder)
    }

    /// Opens the engine without its file in the page cache, and gets one row.
    fn open_cold(&mut self) -> Result<()> {
        if self.column.engine.build.is_none() {
            return Ok(());
        }
        drop_files(&self.folder)?;
        let rows = self.plan.rows;
        let turn = self.column.samples.get(&Figure::ColdOpenMs).map_or(0, Vec::len);
        let key = rows.key(Random::seeded(turn as u64).below(rows.count));
        let read_before_bytes = storage_read_bytes();
        let (seconds, opened) = timed(|| {
            let mut opened = (self.column.engine.open)(&rows, &self.folder)?;
            let sum = opened.gets(&[key])?;
            anyhow::Ok((opened, sum))
        });
        let read_bytes = storage_read_bytes().zip(read_before_bytes).map(|(after, before)| after - before);
        right(opened?.1, Expected::of_gets(&rows, &[key]), "the first get")?;
        self.column.add(Figure::ColdOpenMs, seconds * 1e3);
        if let Some(bytes) = read_bytes {
            self.column.add(Figure::ColdReadBytes, bytes as f64);
        }
        Ok(())
    }

    fn ask(&mut self, warm_up: &Questions, asked: &Asked) -> Result<()> {
        let engine = &self.column.engine;
        let (rows, ordered, batched) = (self.plan.rows, engine.ordered, engine.batched);
        if engine.build.is_some() {
            read_files(&self.folder)?;
        }
        let mut opened = (engine.open)(&rows, &self.folder)?;
        if ordered {
            let found = opened.scan_all(&rows)?.found_count();
            ensure!(found == rows.count, "{found} rows in a scan of all, where {} were expected", rows.count);
        }
        opened.gets(&warm_up.hits)?;
        let Questions { hits, misses, floors, scans, mixed } = &asked.questions;
        opened.check(&rows, &hits[..hits.len().min(CHECKED_KEYS)])?;

        let opened = &mut *opened;
        self.time(Figure::GetNs, hits.len(), 1e9, asked.hits, || opened.gets(hits))?;
        if batched {
            self.time(Figure::BatchNs, hits.len(), 1e9, asked.hits, || opened.batches(hits))?;
        }
        self.time(Figure::MissNs, misses.len(), 1e9, asked.misses, || opened.gets(misses))?;
        if ordered {
            self.time(Figure::FloorNs, floors.len(), 1e9, asked.floors, || opened.floors(floors))?;
            self.time(Figure::ScanUs, scans.len(), 1e6, asked.scans, || opened.scans(scans))?;
        }
        if self.plan.mixed {
            self.time(Figure::MixedNs, mixed.len(), 1e9, asked.mixed, || opened.mixed(mixed))?;
        }
        Ok(())
    }

    /// Records the time per request, scaled by `per_second`, and rejects wrong results.
    fn time(
        &mut self,
        figure: Figure,
        count: usize,
        per_second: f64,
        expected: Sum,
        ask: impl FnOnce() -> Result<Sum>,
    ) -> Result<()> {
        let (seconds, sum) = timed(ask);
        right(sum?, expected, &format!("{figure:?}"))?;
        self.column.add(figure, seconds * per_second / count as f64);
        Ok(())
    }

    /// Drops the file from the page cache if the files of all engines do not fit into it.
    fn end(&self) -> Result<()> {
        let files_bytes = self.column.median(Figure::FileBytes).unwrap_or(0.0) as u64;
        match files_bytes > memory_total_bytes()? / 16 {
            true => drop_files(&self.folder),
            false => Ok(()),
        }
    }
}

/// Requests and the expected sums of their results.
struct Asked {
    questions: Questions,
    hits: Sum,
    misses: Sum,
    floors: Sum,
    scans: Sum,
    mixed: Sum,
}

impl Asked {
    fn new(plan: &Plan, seed: u64) -> Asked {
        let questions = Questions::new(&plan.rows, plan.amounts, seed);
        Asked {
            hits: Expected::of_gets(&plan.rows, &questions.hits),
            misses: Expected::of_gets(&plan.rows, &questions.misses),
            floors: Expected::of_floors(&plan.rows, &questions.floors),
            scans: Expected::of_scans(&plan.rows, &questions.scans),
            mixed: Expected::of_mixed(&plan.rows, &questions.mixed),
            questions,
        }
    }
}

fn right(sum: Sum, expected: Sum, what: &str) -> Result<()> {
    ensure!(sum == expected, "{what}: the results add up to {sum:?}, expected {expected:?}");
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = run();
    (start.elapsed().as_secs_f64(), result)
}

fn engine_folder(folder: &Path, engine: &Engine) -> PathBuf {
    folder.join(engine.name)
}
