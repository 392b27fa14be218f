//! Questions that a server and a file answer alike.
//!
//! In: a question, and whom to ask. Out: the answer on standard output, and
//! whether there was anything to find. An [`io::Error`] is one of standard output.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use zero_kv::client::{Client, ClientError, Row};
use zero_kv::{Key, Store};

use crate::args::{KeyArg, Question};
use crate::keys::read_key;
use crate::output::{RowWriter, settle_stdout};

pub(crate) fn ask_server(client: &mut Client, question: &Question) -> anyhow::Result<bool> {
    // Asked for only where a key must be read.
    let key = |client: &mut Client, arg| read_key(client.key_kind()?, arg, 1);
    match question {
        Question::Get { keys } => {
            let kind = client.key_kind()?;
            write_found(keys.iter().map(|arg| read_key(kind, arg, 1)), |key| Ok(client.get(key)?.map(Cow::Owned)))
        }
        Question::Exists(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            Ok(client.exists(key)?)
        }
        Question::Floor(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            write_received(client.floor(key).transpose())
        }
        Question::Ceiling(KeyArg { key: arg }) => {
            let key = key(client, arg)?;
            write_received(client.ceiling(key).transpose())
        }
        Question::First => write_received(client.first().transpose()),
        Question::Last => write_received(client.last().transpose()),
        Question::Range { range, reverse, limit } => {
            let rows = match &range.prefix {
                Some(prefix) => client.prefix(prefix.as_bytes())?,
                None if range.is_all() => client.rows(),
                None => {
                    let kind = client.key_kind()?;
                    client.range(range.bounds(kind)?)?
                }
            };
            let limit = limit.unwrap_or(usize::MAX);
            let rows = rows.page_rows(u32::try_from(limit).unwrap_or(u32::MAX));
            match reverse {
                false => write_received(rows.take(limit)),
                true => write_received(rows.rev().take(limit)),
            }
        }
        Question::Count { range } => write_count(match &range.prefix {
            Some(prefix) => client.count_prefix(prefix.as_bytes())?,
            None if range.is_all() => client.count(..)?,
            None => {
                let kind = client.key_kind()?;
                client.count(range.bounds(kind)?)?
            }
        }),
    }
}

pub(crate) fn ask_file(store: &Store, question: &Question) -> anyhow::Result<bool> {
    let key = |arg| read_key(store.key_kind(), arg, 1);
    match question {
        Question::Get { keys } => {
            write_found(keys.iter().map(|arg| key(arg)), |key| Ok(store.get(key)?.map(Cow::Borrowed)))
        }
        Question::Exists(KeyArg { key: arg }) => Ok(store.contains(key(arg)?)?),
        Question::Floor(KeyArg { key: arg }) => write_borrowed(store.floor(key(arg)?)?),
        Question::Ceiling(KeyArg { key: arg }) => write_borrowed(store.ceiling(key(arg)?)?),
        Question::First => write_borrowed(store.first()?),
        Question::Last => write_borrowed(store.last()?),
        Question::Range { range, reverse, limit } => {
            let (rows, limit) = (range.rows(store)?, limit.unwrap_or(usize::MAX));
            match reverse {
                false => write_borrowed(rows.take(limit)),
                true => write_borrowed(rows.rev().take(limit)),
            }
        }
        Question::Count { range } => write_count(range.rows(store)?.len() as u64),
    }
}

/// Writes the value of the one key, or the rows of several, and says whether all
/// keys have one.
fn write_found<'k, 'v>(
    keys: impl Iterator<Item = anyhow::Result<Key<'k>>>,
    mut get: impl FnMut(Key<'k>) -> anyhow::Result<Option<Cow<'v, [u8]>>>,
) -> anyhow::Result<bool> {
    // All are read before one is asked for: a key that is none is told before anything is written.
    let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
    if let [key] = keys[..] {
        return write_value(get(key)?.as_deref());
    }
    let (mut writer, mut found_all) = (RowWriter::default(), true);
    for key in keys {
        match get(key)? {
            Some(value) => writer.write(key, &value)?,
            None => found_all = false,
        }
    }
    writer.finish()?;
    Ok(found_all)
}

/// Writes the value, if there is one, and says whether there is.
fn write_value(value: Option<&[u8]>) -> anyhow::Result<bool> {
    let Some(value) = value else { return Ok(false) };
    let mut output = io::stdout().lock();
    // Flushed here, because on exit nobody would see that it failed.
    output.write_all(value).and_then(|()| output.flush())?;
    Ok(true)
}

fn write_count(count: u64) -> anyhow::Result<bool> {
    let mut output = io::stdout().lock();
    settle_stdout(writeln!(output, "{count}").and_then(|()| output.flush()))?;
    Ok(count > 0)
}

fn write_borrowed<'s>(rows: impl IntoIterator<Item = (Key<'s>, &'s [u8])>) -> anyhow::Result<bool> {
    let mut writer = RowWriter::default();
    rows.into_iter().try_for_each(|(key, value)| writer.write(key, value))?;
    writer.finish()
}

fn write_received(rows: impl IntoIterator<Item = Result<Row, ClientError>>) -> anyhow::Result<bool> {
    let mut writer = RowWriter::default();
    for row in rows {
        let (key, value) = row?;
        writer.write(key.as_key(), &value)?;
    }
    writer.finish()
}
