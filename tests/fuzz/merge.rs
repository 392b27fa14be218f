//! Properties of merged tables, and of rows that are baked into a base: the output is the file that a bake of the
//! resulting rows gives.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use zero_kv::Lookup;
use zero_kv::bake::{self, BakeError, Duplicates, Input, MEMORY_MIN_BYTES, Options, Report, RowFault};
use zero_kv::slots::SlotRange;
use zero_kv::{Key, Store};

use super::rows::{Numbers, Rows};
use super::source::Source;

const MARKER: &[u8] = b"deleted";

/// The inputs of a merge: tables, or rows of text. Some rows of text remove their key.
struct Case {
    numbers: Numbers,
    base: Option<Rows>,
    /// The tables in the given order. Each row of text is a separate element.
    tables: Vec<Rows>,
    is_text: bool,
    duplicates: Duplicates,
    slots: Option<SlotRange>,
}

/// The expected result.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    rows: Rows,
    duplicates_dropped: u64,
    base_replaced: u64,
    base_removed: u64,
    absent_removed: u64,
}

/// Merges what the bytes describe, in its own folder.
pub fn check(folder: &Path, data: &[u8]) {
    let mut source = Source::new(data);
    let (threads, memory_bytes) = (1 + source.below(3), MEMORY_MIN_BYTES << (4 * source.below(2)));
    let is_in_place = source.one_in(4);
    let mut options = Options::default();
    options.replace = zero_kv::replace::ReplaceRules::any();
    (options.threads, options.memory_bytes) = (NonZero::new(threads), Some(memory_bytes));
    options.compare_rows = source.below(2) == 1;
    let case = Case::draw(&mut source);
    (options.keys, options.duplicates, options.slots) = (case.numbers.keys(), case.duplicates, case.slots);

    fs::read_dir(folder).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    let named = |i: usize| folder.join(format!("{i}.db"));
    if let Some(base) = &case.base {
        case.numbers.bake(base, &folder.join("base.db"));
        options.base = Some(folder.join("base.db"));
    }
    // The output may be one of the inputs.
    let output = match (is_in_place, case.is_text) {
        (true, true) if case.base.is_some() => folder.join("base.db"),
        (true, false) => named(0),
        _ => folder.join("new.db"),
    };
    let baked = if case.is_text {
        case.bake(&mut options, &output)
    } else {
        let tables: Vec<PathBuf> = (0..case.tables.len()).map(named).collect();
        case.tables.iter().zip(&tables).for_each(|(rows, table)| drop(case.numbers.bake(rows, table)));
        bake::merge(&tables, &output, &options)
    };
    let files = case.base.iter().count() + if case.is_text { 0 } else { case.tables.len() };
    let new = usize::from(baked.is_ok() && output.ends_with("new.db"));
    assert_eq!(fs::read_dir(folder).unwrap().count(), files + new, "nothing is left behind");
    match (case.outcome(), baked) {
        (Some(outcome), Ok(report)) => case.check(&outcome, &report, &output, folder),
        (_, Err(BakeError::TooManyTables { tables, tables_max })) => {
            assert!(!case.is_text && tables == case.tables.len() && tables > tables_max);
        }
        (_, Err(BakeError::Row { line, fault: RowFault::Endless { len_max_bytes }, .. })) => {
            let row = case.numbers.csv(&case.tables[case.row_on(line)]);
            assert!(case.is_text && row.len() > len_max_bytes, "a row of {} bytes", row.len());
        }
        (None, Err(error)) => case.check_refusal(&error, folder),
        (None, Ok(_)) => panic!("a duplicate was accepted"),
        (Some(_), Err(error)) => panic!("{error}"),
    }
}

impl Case {
    fn draw(source: &mut Source<'_>) -> Case {
        let numbers = Numbers(source.one_in(2));
        let duplicates = [Duplicates::Last, Duplicates::First, Duplicates::Error][source.below(3)];
        let slots = source.one_in(2).then(|| source.slots());
        let is_text = source.one_in(2);
        let count = 1 + source.below(if is_text { 40 } else { 4 });
        let rows = |source: &mut Source<'_>| {
            let count = source.below(24);
            numbers.draw_rows(source, count)
        };
        let base = source.one_in(2).then(|| rows(source));
        let tables = (0..count).map(|_| if is_text { numbers.draw_rows(source, 1) } else { rows(source) }).collect();
        let mut case = Case { numbers, base, tables, is_text, duplicates, slots };
        if is_text {
            case.tables.iter_mut().flat_map(Rows::values_mut).for_each(|value| match value[..] {
                [] if source.one_in(2) => *value = MARKER.to_vec(),
                _ => {}
            });
        }
        case
    }

    fn bake(&self, options: &mut Options, output: &Path) -> Result<Report, BakeError> {
        options.delete_marker = Some(MARKER.to_vec());
        let text = self.numbers.csv(self.tables.iter().flatten());
        bake::bake(vec![Input::reader("rows", &text[..])], output, &*options)
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.slots.is_none_or(|slots| slots.has_key(self.numbers.key(key)))
    }

    /// Returns `None` if there is a duplicate that is an error.
    fn outcome(&self) -> Option<Outcome> {
        let mut outcome = Outcome::default();
        let mut kept = Rows::new();
        for (key, value) in self.tables.iter().flatten().filter(|(key, _)| self.is_wanted(key)) {
            let is_again = kept.contains_key(key);
            outcome.duplicates_dropped += u64::from(is_again);
            match (is_again, self.duplicates) {
                (true, Duplicates::Error) => return None,
                (true, Duplicates::First) => {}
                _ => drop(kept.insert(key.clone(), value.clone())),
            }
        }
        outcome.rows = self.base.clone().unwrap_or_default();
        outcome.rows.retain(|key, _| self.is_wanted(key));
        for (key, value) in kept {
            let is_deleted = self.is_text && value == MARKER;
            let before = match is_deleted {
                true => outcome.rows.remove(&key),
                false => outcome.rows.insert(key, value),
            };
            match (is_deleted, before) {
                (true, Some(_)) => outcome.base_removed += 1,
                (true, None) => outcome.absent_removed += 1,
                (false, Some(_)) => outcome.base_replaced += 1,
                (false, None) => {}
            }
        }
        Some(outcome)
    }

    fn check(&self, outcome: &Outcome, report: &Report, output: &Path, folder: &Path) {
        let store = Store::open(output).unwrap();
        let rows: Rows = self.numbers.rows_of(&store).into_iter().collect();
        let reported = Outcome {
            rows,
            duplicates_dropped: report.duplicates_dropped,
            base_replaced: report.base_replaced,
            base_removed: report.base_removed,
            absent_removed: report.absent_removed,
        };
        assert_eq!(&reported, outcome);
        assert_eq!((store.len(), report.rows), (outcome.rows.len(), outcome.rows.len() as u64));
        let plain = folder.join("plain.db");
        self.numbers.bake(&outcome.rows, &plain);
        assert!(fs::read(output).unwrap() == fs::read(plain).unwrap(), "the bytes differ from those of a plain bake");
    }

    /// Returns the number of the row that begins at a line. A row can have several lines, because values contain line
    /// ends.
    fn row_on(&self, line: u64) -> usize {
        let lines_of = |rows: &Rows| self.numbers.csv(rows).iter().filter(|byte| **byte == b'\n').count() as u64;
        let starts = self.tables.iter().scan(1, |next, rows| Some(std::mem::replace(next, *next + lines_of(rows))));
        starts.take_while(|start| *start != line).count()
    }

    /// Checks that a table or line before the reported row has its key.
    fn check_refusal(&self, error: &BakeError, folder: &Path) {
        let (table, row, fault) = match error {
            BakeError::Row { line, fault, .. } if self.is_text => (self.row_on(*line), 0, fault),
            BakeError::TableRow { path, row, fault } => {
                let table = (0..self.tables.len()).find(|i| *path == folder.join(format!("{i}.db")));
                (table.expect("one of the tables"), *row as usize, fault)
            }
            error => panic!("{error}"),
        };
        assert!(matches!(fault, RowFault::Duplicate { .. }), "{error}");
        let (key, _) = self.tables[table].iter().nth(row).expect("a row of the table");
        assert!(self.tables[..table].iter().any(|before| before.contains_key(key)), "{error}");
        assert!(self.is_wanted(key), "{error}: {:?}", Key::from(key));
    }
}
