//! `zkv canary`: writes keys and the digests of their values, for `kv_store --canary`.
//!
//! In: a baked file, and keys, present or absent. Out: a line `key,digest` for each key, with the key unchanged.

use std::io::Write;

use anyhow::anyhow;
use zero_kv::Lookup;
use zero_kv::canary::digest_text;
use zero_kv::{Key, MappedStore};

use crate::args::CanaryArgs;
use crate::batches::{KeySyntax, for_each_batch};
use crate::output::{DisplayKey, RowOutput, buffered, ignore_closed_pipe, stdout_error};
use crate::table::open_whole;

pub(crate) fn canary(args: &CanaryArgs) -> anyhow::Result<bool> {
    let store = open_whole(&args.file)?;
    let mut output = buffered(RowOutput::stdout()?);
    let written = match (args.sample, &args.keys[..]) {
        (Some(rows), _) => write_sample(&store, rows.get(), &mut output),
        (None, args) => for_each_batch(args, KeySyntax::default(), store.key_kind(), |keys| {
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
            Some((key, _)) if fits_on_line(key.as_key()) => write_line(store, key.as_key(), output)?,
            _ => {}
        }
    }
    Ok(())
}

fn write_line(store: &MappedStore, key: Key<'_>, output: &mut impl Write) -> anyhow::Result<()> {
    if !fits_on_line(key) {
        return Err(anyhow!(
            "the key {} has a line end or is not UTF-8, so a line cannot hold it: leave it out",
            DisplayKey(key)
        ));
    }
    let digest = digest_text(store.get(key)?.as_deref());
    match key {
        Key::U64(key) => write!(output, "{key}")?,
        Key::Bytes(key) => output.write_all(key)?,
    }
    Ok(writeln!(output, ",{digest}")?)
}

fn fits_on_line(key: Key<'_>) -> bool {
    key.as_bytes().is_none_or(|key| !key.contains(&b'\n') && str::from_utf8(key).is_ok())
}
