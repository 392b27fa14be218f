//! Lookups of keys and rows.
//!
//! In: a lookup and a table. Out: the result on standard output, and whether all keys were found (for a range, whether
//! any row was found). If an error is an [`io::Error`](std::io::Error), a write to standard output failed.

use std::io::Write;

use zero_kv::Key;

use crate::args::{KeysArgs, Lookup, OutputArgs, Presence, RangeArgs};
use crate::batches::{KeySyntax, are_from_stdin, for_each_batch};
use crate::columns::Columns;
use crate::output::print;
use crate::rows::{RowFormat, RowWriter};
use crate::table::{Neighbor, Scan, Table, TableReplaced};

/// Maximum number of keys in one lookup, whose rows may be in memory at the same time.
const BATCH_KEYS_MAX: usize = 4096;
/// Maximum number of attempts to read rows of one schema from a server that keeps replacing its table.
const ATTEMPTS_MAX: u32 = 10;

pub(crate) fn look_up(table: &mut dyn Table, lookup: &Lookup) -> anyhow::Result<bool> {
    match lookup {
        Lookup::Get { keys, output } => get(table, keys, output),
        Lookup::Exists { keys, print, null } => exists(table, keys, *print, *null),
        Lookup::Floor { keys, output } => neighbors(table, Neighbor::Floor, keys, output),
        Lookup::Ceiling { keys, output } => neighbors(table, Neighbor::Ceiling, keys, output),
        Lookup::First { output } => first_or_last(table, false, output),
        Lookup::Last { output } => first_or_last(table, true, output),
        Lookup::Range { range, reverse, limit, output } => {
            scan(table, &Scan { range, reverse: *reverse, limit: *limit }, output)
        }
        Lookup::Scan { prefix, limit, output } => {
            let range = RangeArgs { prefix: prefix.clone(), ..RangeArgs::default() };
            scan(table, &Scan { range: &range, reverse: false, limit: *limit }, output)
        }
        Lookup::Count { range } => write_count(table.count(range)?),
    }
}

/// Returns whether exactly one key is requested. If so, the output does not repeat the requested key.
fn is_single(keys: &KeysArgs) -> bool {
    keys.keys.len() == 1 && !are_from_stdin(&keys.keys)
}

/// Looks up all keys, and returns whether all were found. `look_up_batch` looks up one batch, and writes nothing if the
/// table was replaced. The output of a batch is flushed before the next batch is read, because a program may write a key
/// and wait for its row.
fn look_up_all(
    table: &mut dyn Table,
    keys: &KeysArgs,
    output: &OutputArgs,
    writer: &mut RowWriter,
    mut look_up_batch: impl FnMut(&mut dyn Table, &[Key<'_>], &mut RowWriter) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let syntax = KeySyntax { escapes: keys.escapes, null: output.null };
    let mut are_found = true;
    for_each_batch(&keys.keys, syntax, table.key_kind()?, |keys| {
        for keys in keys.chunks(BATCH_KEYS_MAX) {
            are_found &= with_columns(table, output, writer, |table, writer| look_up_batch(table, keys, writer))?;
        }
        Ok(writer.flush()?)
    })?;
    Ok(are_found)
}

/// Sets the columns of the rows that `look_up` writes. Repeats the lookup if the server replaces its table before any
/// row is written, because the new table may have other columns.
fn with_columns<T>(
    table: &mut dyn Table,
    output: &OutputArgs,
    writer: &mut RowWriter,
    mut look_up: impl FnMut(&mut dyn Table, &mut RowWriter) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let rows_before = writer.row_count();
    for attempt in 1.. {
        if writer.writes_values() || !output.columns.is_empty() {
            writer.set_columns(Columns::new(table.schema()?, &output.columns)?);
        }
        match look_up(table, writer) {
            Err(error)
                if error.is::<TableReplaced>() && writer.row_count() == rows_before && attempt < ATTEMPTS_MAX => {}
            result => return result,
        }
    }
    unreachable!("the last attempt returns its result")
}

fn get(table: &mut dyn Table, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let format = if is_single(keys) { RowFormat::for_value(output) } else { RowFormat::for_rows(output) };
    look_up_all(table, keys, output, &mut RowWriter::new(format), |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.get(keys, &mut |at, value| match value {
            Some(value) if written.is_ok() => written = writer.write(None, keys[at], value),
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn exists(table: &mut dyn Table, keys: &KeysArgs, print: Option<Presence>, null: bool) -> anyhow::Result<bool> {
    let output = OutputArgs::for_keys(null);
    look_up_all(table, keys, &output, &mut RowWriter::new(RowFormat::for_rows(&output)), |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.exists(keys, &mut |at, is_found| {
            are_found &= is_found;
            let presence = if is_found { Presence::Present } else { Presence::Absent };
            if print == Some(presence) && written.is_ok() {
                written = writer.write(None, keys[at], b"");
            }
        })?;
        written?;
        Ok(are_found)
    })
}

fn neighbors(table: &mut dyn Table, neighbor: Neighbor, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let prints_requested_key = !is_single(keys);
    let mut writer = RowWriter::new(RowFormat::for_rows(output));
    look_up_all(table, keys, output, &mut writer, |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.neighbors(neighbor, keys, &mut |at, row| match row {
            Some((key, value)) if written.is_ok() => {
                written = writer.write(prints_requested_key.then_some(keys[at]), key, value);
            }
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn first_or_last(table: &mut dyn Table, reverse: bool, output: &OutputArgs) -> anyhow::Result<bool> {
    scan(table, &Scan { range: &RangeArgs::default(), reverse, limit: Some(1) }, output)
}

fn scan(table: &mut dyn Table, scan: &Scan<'_>, output: &OutputArgs) -> anyhow::Result<bool> {
    let mut writer = RowWriter::new(RowFormat::for_rows(output));
    with_columns(table, output, &mut writer, |table, writer| {
        table.scan(scan, &mut |(key, value)| writer.write(None, key, value))
    })?;
    writer.finish()
}

fn write_count(count: u64) -> anyhow::Result<bool> {
    print(|stdout| writeln!(stdout, "{count}"))?;
    Ok(count > 0)
}
