//! `zkv slot`: prints the slots of keys.

use std::io::{self, Write};

use zero_kv::KeyKind;
use zero_kv::slots::slot_of;

use crate::args::SlotArgs;
use crate::batches::{KeySyntax, for_each_batch};
use crate::output::{buffered, ignore_closed_pipe, stdout_error};

pub(crate) fn slot(args: &SlotArgs) -> anyhow::Result<bool> {
    let mut output = buffered(io::stdout().lock());
    // A number in decimal has the slot of its text, so keys of both kinds are read as bytes.
    let written = for_each_batch(&args.keys, KeySyntax::default(), KeyKind::Bytes, |keys| {
        keys.iter().try_for_each(|key| Ok(writeln!(output, "{}", slot_of(*key))?))
    });
    ignore_closed_pipe(written.and_then(|()| Ok(output.flush()?)), (), stdout_error)?;
    Ok(true)
}
