//! Questions about keys and rows.
//!
//! In: a question, and whom to ask. Out: the answer on standard output, and
//! whether there was anything to find. An [`io::Error`] is one of standard output.

use std::io::{self, Write};

use zero_kv::Key;

use crate::args::{KeysArgs, OutputArgs, Presence, Question, RangeArgs};
use crate::batches::{Spelling, are_streamed, each_batch};
use crate::output::settle_stdout;
use crate::rows::{RowWriter, Style};
use crate::table::{Side, Table, Walk};

pub(crate) fn ask(table: &mut dyn Table, question: &Question) -> anyhow::Result<bool> {
    match question {
        Question::Get { keys, output } => get(table, keys, output),
        Question::Exists { keys, print, null } => exists(table, keys, *print, *null),
        Question::Floor { keys, output } => beside(table, Side::Floor, keys, output),
        Question::Ceiling { keys, output } => beside(table, Side::Ceiling, keys, output),
        Question::First { output } => end(table, false, output),
        Question::Last { output } => end(table, true, output),
        Question::Range { range, reverse, limit, output } => {
            walk(table, &Walk { range, reverse: *reverse, limit: *limit }, output)
        }
        Question::Scan { prefix, limit, output } => {
            let range = RangeArgs { prefix: prefix.clone(), ..RangeArgs::default() };
            walk(table, &Walk { range: &range, reverse: false, limit: *limit }, output)
        }
        Question::Count { range } => write_count(table.count(range)?),
    }
}

/// One key that is an argument: its answer needs no key to be told from others.
fn is_alone(keys: &KeysArgs) -> bool {
    keys.keys.len() == 1 && !are_streamed(&keys.keys)
}

/// Asks for all keys, and gives whether all were found. `ask` gives whether those of a batch were, and
/// has written them when the next batch is read.
fn ask_all(
    table: &mut dyn Table,
    keys: &KeysArgs,
    null: bool,
    writer: &mut RowWriter,
    mut ask: impl FnMut(&mut dyn Table, &[Key<'_>], &mut RowWriter) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let spelling = Spelling { escapes: keys.escapes, null };
    let mut are_found = true;
    each_batch(&keys.keys, spelling, table.key_kind()?, |keys| {
        are_found &= ask(table, keys, writer)?;
        Ok(writer.flush()?)
    })?;
    Ok(are_found)
}

fn get(table: &mut dyn Table, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let style = if is_alone(keys) { Style::of_value(output) } else { Style::of_rows(output) };
    ask_all(table, keys, output.null, &mut RowWriter::new(style), |table, keys, writer| {
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
    ask_all(table, keys, null, &mut RowWriter::new(Style::of_keys(null)), |table, keys, writer| {
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

fn beside(table: &mut dyn Table, side: Side, keys: &KeysArgs, output: &OutputArgs) -> anyhow::Result<bool> {
    let tells_asked = !is_alone(keys);
    ask_all(table, keys, output.null, &mut RowWriter::new(Style::of_rows(output)), |table, keys, writer| {
        let (mut are_found, mut written) = (true, Ok(()));
        table.beside(side, keys, &mut |at, row| match row {
            Some((key, value)) if written.is_ok() => {
                written = writer.write(tells_asked.then_some(keys[at]), key, value);
            }
            Some(_) => {}
            None => are_found = false,
        })?;
        written?;
        Ok(are_found)
    })
}

fn end(table: &mut dyn Table, reverse: bool, output: &OutputArgs) -> anyhow::Result<bool> {
    walk(table, &Walk { range: &RangeArgs::default(), reverse, limit: Some(1) }, output)
}

fn walk(table: &mut dyn Table, walk: &Walk<'_>, output: &OutputArgs) -> anyhow::Result<bool> {
    let mut writer = RowWriter::new(Style::of_rows(output));
    table.walk(walk, &mut |(key, value)| Ok(writer.write(None, key, value)?))?;
    writer.finish()
}

fn write_count(count: u64) -> anyhow::Result<bool> {
    let mut output = io::stdout().lock();
    settle_stdout(writeln!(output, "{count}").and_then(|()| output.flush()))?;
    Ok(count > 0)
}
