//! `zkv canary` and `zkv slot`: write a line for each key.
//!
//! In: keys, and for canaries a baked file. Out: lines `key,digest`, which `kv_store --canary` checks, or slots.

use std::io::{self, Write};

use anyhow::anyhow;
use zero_kv::canary::digest_text;
use zero_kv::slots::slot_of;
use zero_kv::{Key, KeyType, Lookup, MappedStore};

use crate::args::{CanaryArgs, SlotArgs};
use crate::batches::{KeySyntax, for_each_batch};
use crate::output::{DisplayKey, RowOutput, buffered, ignore_closed_pipe, stdout_error, with_text, written};
use crate::table::open_whole;

pub(crate) fn canary(args: &CanaryArgs) -> anyhow::Result<bool> {
    let store = open_whole(&args.file)?;
    let mut output = buffered(RowOutput::stdout()?);
    let written = match (args.sample, &args.keys[..]) {
        (Some(rows), _) => write_sample(&store, rows.get(), &mut output),
        (None, args) => for_each_batch(args, KeySyntax::default(), store.key_type(), |keys| {
            keys.iter().try_for_each(|key| write_line(&store, *key, &mut output))
        }),
    };
    ignore_closed_pipe(written.and_then(|()| Ok(output.flush()?)), (), stdout_error)?;
    Ok(true)
}

/// Writes canaries for at most `rows` evenly spaced rows, starting with the first row. If `rows` is more than 1, the
/// last row is included. Skips keys that are not UTF-8 or contain a line end, because a line of the output cannot hold
/// them.
fn write_sample(store: &MappedStore, rows: usize, output: &mut impl Write) -> anyhow::Result<()> {
    let (count, last_row) = (rows.min(store.len()), store.len().saturating_sub(1));
    for at in 0..count {
        // The product may exceed 64 bits, so the product is computed with 128 bits.
        let row = (at as u128 * last_row as u128 / (count.max(2) - 1) as u128) as usize;
        match store.row(row)? {
            Some((key, _)) if fits_on_line(store, key.as_key()) => write_line(store, key.as_key(), output)?,
            _ => {}
        }
    }
    Ok(())
}

fn write_line(store: &MappedStore, key: Key<'_>, output: &mut impl Write) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let written = written(store.key_type(), key, &mut text);
    if !fits_on_line(store, key) {
        return Err(anyhow!(
            "the key {} has a line end or is not UTF-8, so a line cannot hold it: leave it out",
            DisplayKey(written)
        ));
    }
    let digest = digest_text(store.get(key)?.as_deref());
    with_text(written, |text| output.write_all(text))?;
    Ok(writeln!(output, ",{digest}")?)
}

fn fits_on_line(store: &MappedStore, key: Key<'_>) -> bool {
    let mut text = Vec::new();
    written(store.key_type(), key, &mut text)
        .as_bytes()
        .is_none_or(|key| !key.contains(&b'\n') && str::from_utf8(key).is_ok())
}

pub(crate) fn slot(args: &SlotArgs) -> anyhow::Result<bool> {
    let mut output = buffered(io::stdout().lock());
    // The slot of a key is the slot of its written form, so keys of all types are read as bytes.
    let written = for_each_batch(&args.keys, KeySyntax::default(), KeyType::BYTES, |keys| {
        keys.iter().try_for_each(|key| Ok(writeln!(output, "{}", slot_of(*key))?))
    });
    ignore_closed_pipe(written.and_then(|()| Ok(output.flush()?)), (), stdout_error)?;
    Ok(true)
}
