//! Measures all engines alternately at one table size: builds, cold opens, and lookups.
//!
//! In: engines and rows. Out: medians. Every round measures each engine once, and begins with a different engine.
//! Before lookups are measured, the engine's file is loaded into the page cache, the file is opened, and other lookups
//! warm the engine up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::engine::Engine;
use crate::machine::{memory_total_bytes, storage_read_bytes};
use crate::page_cache::{allocated_bytes, drop_files, read_files};
use crate::rows::{Amounts, Expected, Random, Requests, Rows, Sum};

/// Maximum number of keys whose values are checked byte by byte before the measurement.
const CHECKED_KEYS: usize = 10_000;

/// A table size, and the parameters of its measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: Rows,
    pub(crate) amounts: Amounts,
    pub(crate) rounds: usize,
    pub(crate) build_rounds: usize,
    /// Whether to run the mixed load of gets and scans. Only ordered engines with a file support this load.
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
    FloorBatchNs,
    ScanUs,
    MixedNs,
}

/// The results of one engine, or the reason why it was not measured.
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
                Some("not part of the mixed load, which requires scans and a file".to_owned())
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

/// The results of all engines at one table size.
pub(crate) struct Table {
    pub(crate) plan: Plan,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    /// Measures all engines. Their files are in new folders below `folder`, which are removed at the end.
    pub(crate) fn measure(plan: Plan, engines: &[Engine], folder: &Path, log: &dyn Fn(&str)) -> Table {
        let columns = engines.iter().map(|engine| Column::new(engine.clone(), &plan)).collect();
        let mut table = Table { plan, columns };
        for round in 0..plan.build_rounds {
            table.turns(round, folder, log, "build", |turn| turn.build());
        }
        for round in 0..plan.rounds {
            table.turns(round, folder, log, "cold open", |turn| turn.open_cold());
        }
        for round in 0..plan.rounds {
            let warm_up = Requests::new(&plan.rows, plan.amounts, 2 * round as u64);
            let checked = CheckedRequests::new(&plan, 2 * round as u64 + 1);
            table.turns(round, folder, log, "lookups", |turn| {
                turn.look_up(&warm_up, &checked)?;
                turn.drop_large_file()
            });
        }
        for column in &table.columns {
            // The folder of the run is removed at the end in any case.
            let _ = fs::remove_dir_all(engine_folder(folder, &column.engine));
        }
        table
    }

    /// Runs one round: calls `take` once for every engine that has not failed so far. Each round begins with a
    /// different engine.
    fn turns(
        &mut self,
        round: usize,
        folder: &Path,
        log: &dyn Fn(&str),
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
            log(&format!("{} rows, {what}, round {}, {name}", plan.rows.count, round + 1));
            let folder = engine_folder(folder, &column.engine);
            if let Err(error) = take(&mut Turn { plan: &plan, column, folder }) {
                column.failure = Some(format!("{what}: {error:#}"));
            }
        }
    }
}

/// The measurement of one engine in a round.
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
        // The time of this call is not measured, because the file is complete. Without the call, the kernel's writeback
        // of dirty pages would disturb the next measurement.
        drop_files(&self.folder)
    }

    /// Drops the engine's file from the page cache, opens the engine, and gets one row.
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
        check_sum(opened?.1, Expected::of_gets(&rows, &[key]), "the first get")?;
        self.column.add(Figure::ColdOpenMs, seconds * 1e3);
        if let Some(bytes) = read_bytes {
            self.column.add(Figure::ColdReadBytes, bytes as f64);
        }
        Ok(())
    }

    fn look_up(&mut self, warm_up: &Requests, checked: &CheckedRequests) -> Result<()> {
        let engine = &self.column.engine;
        let (rows, ordered, batched) = (self.plan.rows, engine.ordered, engine.batched);
        let batched_floors = engine.batched_floors;
        if engine.build.is_some() {
            read_files(&self.folder)?;
        }
        let mut opened = (engine.open)(&rows, &self.folder)?;
        if ordered {
            let found = opened.scan_all(&rows)?.found_count();
            ensure!(found == rows.count, "{found} rows in a scan of all, where {} were expected", rows.count);
        }
        opened.gets(&warm_up.hits)?;
        let Requests { hits, misses, floors, scans, mixed } = &checked.requests;
        opened.check(&rows, &hits[..hits.len().min(CHECKED_KEYS)])?;

        let opened = &mut *opened;
        self.time(Figure::GetNs, hits.len(), 1e9, checked.hits, || opened.gets(hits))?;
        if batched {
            self.time(Figure::BatchNs, hits.len(), 1e9, checked.hits, || opened.batches(hits))?;
        }
        self.time(Figure::MissNs, misses.len(), 1e9, checked.misses, || opened.gets(misses))?;
        if ordered {
            self.time(Figure::FloorNs, floors.len(), 1e9, checked.floors, || opened.floors(floors))?;
            if batched_floors {
                self.time(Figure::FloorBatchNs, floors.len(), 1e9, checked.floors, || opened.floor_batches(floors))?;
            }
            self.time(Figure::ScanUs, scans.len(), 1e6, checked.scans, || opened.scans(scans))?;
        }
        if self.plan.mixed {
            self.time(Figure::MixedNs, mixed.len(), 1e9, checked.mixed, || opened.mixed(mixed))?;
        }
        Ok(())
    }

    /// Measures `run`, and records its time per request. The unit of this time is 1 / `per_second` seconds. Returns an
    /// error if a result is wrong.
    fn time(
        &mut self,
        figure: Figure,
        count: usize,
        per_second: f64,
        expected: Sum,
        run: impl FnOnce() -> Result<Sum>,
    ) -> Result<()> {
        let (seconds, sum) = timed(run);
        check_sum(sum?, expected, &format!("{figure:?}"))?;
        self.column.add(figure, seconds * per_second / count as f64);
        Ok(())
    }

    /// Drops the engine's file from the page cache if the file is large. The page cache may be too small for the large
    /// files of all engines.
    fn drop_large_file(&self) -> Result<()> {
        let files_bytes = self.column.median(Figure::FileBytes).unwrap_or(0.0) as u64;
        match files_bytes > memory_total_bytes()? / 16 {
            true => drop_files(&self.folder),
            false => Ok(()),
        }
    }
}

/// The requests of a round, and the expected sums of their results.
struct CheckedRequests {
    requests: Requests,
    hits: Sum,
    misses: Sum,
    floors: Sum,
    scans: Sum,
    mixed: Sum,
}

impl CheckedRequests {
    fn new(plan: &Plan, seed: u64) -> CheckedRequests {
        let requests = Requests::new(&plan.rows, plan.amounts, seed);
        CheckedRequests {
            hits: Expected::of_gets(&plan.rows, &requests.hits),
            misses: Expected::of_gets(&plan.rows, &requests.misses),
            floors: Expected::of_floors(&plan.rows, &requests.floors),
            scans: Expected::of_scans(&plan.rows, &requests.scans),
            mixed: Expected::of_mixed(&plan.rows, &requests.mixed),
            requests,
        }
    }
}

fn check_sum(sum: Sum, expected: Sum, what: &str) -> Result<()> {
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
