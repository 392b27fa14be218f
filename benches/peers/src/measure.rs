//! One table size, all engines: built, opened cold, and asked, by turns.
//!
//! In: engines and rows. Out: medians. In every round each engine has its turn,
//! another one first each time. A turn brings the engine's file into the page
//! cache, opens it, and asks questions that are not timed before those that are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::engine::Engine;
use crate::machine::{memory_total_bytes, storage_read_bytes};
use crate::page_cache::{allocated_bytes, drop_files, read_files};
use crate::rows::{Amounts, Expected, Questions, Random, Rows, Sum};

/// Keys whose values are compared byte for byte before anything is timed.
const CHECKED_KEYS: usize = 10_000;

/// A table size, and how it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: Rows,
    pub(crate) amounts: Amounts,
    pub(crate) rounds: usize,
    pub(crate) build_rounds: usize,
    /// Whether the mixed load is run, which only ordered engines with a file can.
    pub(crate) mixed: bool,
}

/// What is measured, in the order of the report.
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

/// The measurements of one engine, or what went wrong.
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

/// The measurements of all engines at one size.
pub(crate) struct Table {
    pub(crate) plan: Plan,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    /// Measures in folders of its own under `folder`, and removes them.
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
            // The whole run's folder goes at the end in any case.
            let _ = fs::remove_dir_all(engine_folder(folder, &column.engine));
        }
        table
    }

    /// One round: every engine that has not failed takes its turn.
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

/// One engine's turn.
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
        // Not in the time: it is written already, and must not disturb the next turn.
        drop_files(&self.folder)
    }

    /// Opens the engine without its file in the page cache and asks for one row.
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

    /// Notes the time of one question, in parts of a second; refuses wrong answers.
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

    /// Gives the page cache back where not all engines' files have room in it.
    fn end(&self) -> Result<()> {
        let files_bytes = self.column.median(Figure::FileBytes).unwrap_or(0.0) as u64;
        match files_bytes > memory_total_bytes()? / 16 {
            true => drop_files(&self.folder),
            false => Ok(()),
        }
    }
}

/// Questions and the sums of their answers.
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
    ensure!(sum == expected, "{what}: the answers add up to {sum:?} where {expected:?} was expected");
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
