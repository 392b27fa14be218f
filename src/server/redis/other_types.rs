//! Redis commands for types that no value of the table has.
//!
//! In: keys. Out: the reply that Redis gives for missing keys, or, if a key exists, the error that it has the wrong
//! type, because all values are strings, or hashes if the table is typed. Arguments that affect neither the keys nor the kind of reply are not checked.

use super::lookup::{LONE_LOOKUP_STEPS, Lookup, WRONG_TYPE};
use super::{Counted, Out};
use crate::protocol::resp::Command;
use crate::protocol::resp::commands::{Missing, Spec};

/// The error for a string that is not a HyperLogLog. A table could contain HyperLogLogs, but the server does not read
/// them.
const NOT_AN_ESTIMATE: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
/// The maximum number of bytes of each argument that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 128;

/// Executes a command whose [`Spec`] has a reply to missing keys ([`Missing`]).
///
/// # Errors
/// The text of the error reply, for example if one of the keys exists, or if the number of keys is not valid.
pub(super) fn execute(
    lookup: Lookup<'_>,
    spec: &Spec,
    command: &Command<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let arg_count = command.arg_count();
    let positions = spec.key_positions(command.args(), arg_count)?;
    let (first, end) = (positions.start, positions.end);
    for text in command.args().skip(first).take(positions.len()) {
        out.sink().steps().add(LONE_LOOKUP_STEPS);
        if lookup.find_counted(text, counted)?.is_some() {
            let is_estimate = spec.missing == Some(Missing::Estimate) && lookup.store.schema().is_none();
            return Err(if is_estimate { NOT_AN_ESTIMATE } else { WRONG_TYPE }.to_owned());
        }
    }
    push_missing(spec.missing.unwrap_or(Missing::Null), command, first, arg_count.saturating_sub(end), out)
}

/// Replies that the key of a command with one key does not exist.
pub(super) fn push_missing_key(spec: &Spec, command: &Command<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let positions = spec.key_positions(command.args(), command.arg_count())?;
    let more = command.arg_count().saturating_sub(positions.end);
    push_missing(spec.missing.unwrap_or(Missing::Null), command, positions.start, more, out)
}

/// Replies that a command's keys do not exist. `first_key` is the position of the first key, and `more` is the number
/// of arguments after the keys.
fn push_missing(
    missing: Missing,
    command: &Command<'_>,
    first_key: usize,
    more: usize,
    out: &mut Out<'_>,
) -> Result<(), String> {
    match missing {
        Missing::Null => out.null(),
        Missing::Zero | Missing::Estimate => out.integer(0),
        Missing::Array => out.array(0),
        Missing::Map => out.map(0),
        Missing::Set => out.set(0),
        Missing::Nulls => {
            out.array(more);
            (0..more).for_each(|_| out.null());
        }
        Missing::NullArrays => {
            out.array(more);
            (0..more).for_each(|_| out.null_array());
        }
        Missing::Zeros => {
            out.array(more);
            (0..more).for_each(|_| out.integer(0));
        }
        Missing::NullOrArray if more == 0 => out.null(),
        Missing::NullOrArray => out.array(0),
        Missing::NullOrMatches => {
            // Options follow the key and an element.
            let mut options = command.args().skip(first_key + 2).step_by(2);
            match options.any(|option| option.eq_ignore_ascii_case(b"COUNT")) {
                true => out.array(0),
                false => out.null(),
            }
        }
        Missing::Scan => {
            out.array(2);
            out.bulk(b"0");
            out.array(0);
        }
        Missing::NoKey => return Err("ERR no such key".to_owned()),
        Missing::NoGroup => {
            let quoted = |at: usize| {
                let text = command.args().nth(at).unwrap_or_default();
                String::from_utf8_lossy(&text[..text.len().min(QUOTED_LEN_MAX_BYTES)]).into_owned()
            };
            let (key, group) = (quoted(first_key), quoted(first_key + 1));
            return Err(format!("NOGROUP No such key '{key}' or consumer group '{group}'"));
        }
    }
    Ok(())
}
