//! `zkv diff`: compares the rows of two files.
//!
//! In: two baked files with keys of one kind. Out: a line for each key whose rows differ, and the counts. Both files
//! are read in key order at the same time, so only one row of each file is in memory.

use std::io::{self, Write};

use anyhow::bail;
use serde::Serialize;
use zero_kv::client::Row;
use zero_kv::store::{MappedRows, Unchecked};
use zero_kv::{Key, MappedStore};

use crate::args::{DiffArgs, DiffFormat};
use crate::output::{JsonKey, buffered, ignore_closed_pipe, json_value, stdout_error, write_json_line};

const NOT_TEXT: &str = "use --format text";

/// A key, and its value in each file. The value is `None` in a file that does not have the key.
struct Change<'a> {
    key: Key<'a>,
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
}

#[derive(Default, Serialize)]
struct Counts {
    only_in_a: u64,
    only_in_b: u64,
    changed: u64,
    same: u64,
}

#[derive(Serialize)]
struct JsonChange<'a> {
    change: &'static str,
    key: JsonKey<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<&'a str>,
}

/// Prints the differences, and returns whether all rows are equal.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<bool> {
    let (a, b) = (Unchecked::open(&args.a)?, Unchecked::open(&args.b)?);
    let [kind_a, kind_b] = [&a, &b].map(|file| file.layout().dimensions.key_kind);
    if kind_a != kind_b {
        bail!(
            "{} has keys that are {kind_a}, and {} has keys that are {kind_b}: pass two files with one kind of keys",
            args.a.display(),
            args.b.display()
        );
    }
    let mut output = buffered(io::stdout().lock());
    let mut counts = Counts::default();
    let written = if a.layout().digest() == b.layout().digest() {
        counts.same = a.layout().dimensions.row_count;
        Ok(())
    } else {
        let (a, b) = (a.check()?, b.check()?);
        compare(&a, &b, &mut counts, |change| match (args.summary, args.format) {
            (true, _) => Ok(()),
            (false, DiffFormat::Text) => Ok(write_text(&mut output, &change, args.values)?),
            (false, DiffFormat::Jsonl) => write_json(&mut output, &change, args.values),
        })
    };
    let written = written.and_then(|()| Ok(write_counts(&mut output, args, &counts)?));
    ignore_closed_pipe(written, (), stdout_error)?;
    Ok(counts.are_all_equal())
}

/// Compares the rows of both tables and counts the results. Calls `visit` with each row that differs.
fn compare(
    a: &MappedStore,
    b: &MappedStore,
    counts: &mut Counts,
    mut visit: impl FnMut(Change<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut rows_a, mut rows_b) = (a.iter(), b.iter());
    let (mut row_a, mut row_b) = (rows_a.next().transpose()?, rows_b.next().transpose()?);
    // The next key is the smallest one that remains in either table.
    while let Some(key) = [&row_a, &row_b].into_iter().flatten().map(|(key, _)| key.clone()).min() {
        let value_a = take_value(key.as_key(), &mut row_a, &mut rows_a)?;
        let value_b = take_value(key.as_key(), &mut row_b, &mut rows_b)?;
        let change = Change { key: key.as_key(), a: value_a.as_deref(), b: value_b.as_deref() };
        *counts.counter(&change) += 1;
        if change.a != change.b {
            visit(change)?;
        }
    }
    Ok(())
}

/// If `row` has this key, returns its value and replaces `row` with the next row.
fn take_value(key: Key<'_>, row: &mut Option<Row>, rows: &mut MappedRows<'_>) -> anyhow::Result<Option<Vec<u8>>> {
    let Some((_, value)) = row.take_if(|row| row.0.as_key() == key) else { return Ok(None) };
    *row = rows.next().transpose()?;
    Ok(Some(value))
}

impl Counts {
    fn counter(&mut self, change: &Change<'_>) -> &mut u64 {
        match (change.a, change.b) {
            (Some(a), Some(b)) if a == b => &mut self.same,
            (Some(_), None) => &mut self.only_in_a,
            (None, Some(_)) => &mut self.only_in_b,
            _ => &mut self.changed,
        }
    }

    fn are_all_equal(&self) -> bool {
        self.only_in_a + self.only_in_b + self.changed == 0
    }
}

fn write_text(output: &mut impl Write, change: &Change<'_>, values: bool) -> io::Result<()> {
    let sign = match (change.a, change.b) {
        (_, None) => '-',
        (None, _) => '+',
        _ => '~',
    };
    match change.key {
        Key::U64(key) => write!(output, "{sign} {key}")?,
        Key::Bytes(key) => write!(output, "{sign} \"{}\"", key.escape_ascii())?,
    }
    if values {
        for value in [change.a, change.b].into_iter().flatten() {
            write!(output, " \"{}\"", value.escape_ascii())?;
        }
    }
    output.write_all(b"\n")
}

fn write_json(output: &mut impl Write, change: &Change<'_>, values: bool) -> anyhow::Result<()> {
    let value = |value: Option<_>| match value {
        Some(value) if values => json_value(change.key, value, NOT_TEXT).map(Some),
        _ => Ok(None),
    };
    let line = JsonChange {
        change: match (change.a, change.b) {
            (_, None) => "only_in_a",
            (None, _) => "only_in_b",
            _ => "changed",
        },
        key: JsonKey::new(change.key, NOT_TEXT)?,
        a: value(change.a)?,
        b: value(change.b)?,
    };
    Ok(write_json_line(output, &line)?)
}

fn write_counts(output: &mut impl Write, args: &DiffArgs, counts: &Counts) -> io::Result<()> {
    match args.format {
        DiffFormat::Text => {
            let Counts { only_in_a, only_in_b, changed, same } = counts;
            writeln!(output, "{only_in_a} only in A, {only_in_b} only in B, {changed} changed, {same} equal")?;
        }
        DiffFormat::Jsonl => write_json_line(output, counts)?,
    }
    output.flush()
}
