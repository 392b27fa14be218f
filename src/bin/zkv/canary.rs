//! Keys and the digests of their values, for `kv_store --canary`.
//!
//! In: a baked file, and keys of it or not of it. Out: lines `key,digest`, the key
//! as it is. It knows nothing of who tries them on another file.

use std::io::{self, Write};

use anyhow::anyhow;
use zero_kv::server::value_digest;
use zero_kv::{Key, MappedStore};

use crate::args::CanaryArgs;
use crate::batches::{Spelling, each_batch};
use crate::output::{Shown, buffered, settle, unwritten};

/// Stands where a digest would, for a key that is not in the table.
const ABSENT: &str = "absent";

pub(crate) fn canary(args: &CanaryArgs) -> anyhow::Result<bool> {
    let store = MappedStore::open(&args.file)?;
    let mut output = buffered(io::stdout().lock());
    let written = match (args.sample, &args.keys[..]) {
        (Some(rows), _) => write_sample(&store, rows.get(), &mut output),
        (None, args) => each_batch(args, Spelling::default(), store.key_kind(), |keys| {
            keys.iter().try_for_each(|key| write_line(&store, *key, &mut output))
        }),
    };
    settle(written.and_then(|()| Ok(output.flush()?)), (), unwritten)?;
    Ok(true)
}

/// Rows that lie equally far apart, the first and the last among them. Keys that
/// no line can hold are left out.
fn write_sample(store: &MappedStore, rows: usize, output: &mut impl Write) -> anyhow::Result<()> {
    let (count, last_row) = (rows.min(store.len()), store.len().saturating_sub(1));
    for at in 0..count {
        // In 128 bits, where nothing of the product is lost.
        let row = (at as u128 * last_row as u128 / (count.max(2) - 1) as u128) as usize;
        match store.row(row)? {
            Some((key, _)) if is_line(key.as_key()) => write_line(store, key.as_key(), output)?,
            _ => {}
        }
    }
    Ok(())
}

fn write_line(store: &MappedStore, key: Key<'_>, output: &mut impl Write) -> anyhow::Result<()> {
    if !is_line(key) {
        return Err(anyhow!(
            "the key {} has a line end or is not UTF-8: leave it out, for no line can hold it",
            Shown(key)
        ));
    }
    let digest = store.get(key)?.map_or(ABSENT.to_owned(), |value| format!("{:032x}", value_digest(&value)));
    match key {
        Key::U64(key) => write!(output, "{key}")?,
        Key::Bytes(key) => output.write_all(key)?,
    }
    Ok(writeln!(output, ",{digest}")?)
}

fn is_line(key: Key<'_>) -> bool {
    key.as_bytes().is_none_or(|key| !key.contains(&b'\n') && str::from_utf8(key).is_ok())
}
