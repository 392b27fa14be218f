//! Commands that read the values of given keys.

use super::keys::{key, key_steps, number, plain_kind};
use super::keyspace::type_name;
use super::lookup::{LONE_LOOKUP_STEPS, TextLookup, must_wait_for_key};
use super::runs::{Runs, Unrouted};
use super::stored::{push_null, push_value};
use super::work::{KeysOf, Outcome, Work, WorkStep};
use super::{Counted, NOT_AN_INTEGER, Out, Replied, SYNTAX};
use crate::Lookup;
use crate::format::form::RowKey;
use crate::format::key::KeyKind;
use crate::format::record::{ALIGN_BYTES, record_len_bytes};
use crate::protocol::resp::{Args, Command, integer};

/// The length at which a group of MGET arguments that are looked up together ends. The argument that reaches this
/// length still belongs to the group.
const RUN_LEN_MAX_BYTES: usize = 64 << 10;
/// The maximum length of values that have the encoding `embstr` in Redis. Longer values have the encoding `raw`.
const EMBSTR_MAX_BYTES: usize = 44;

/// The maximum length of a string in Redis, by default.
const STRING_LEN_MAX_BYTES: u64 = 512 << 20;

/// Returns the next argument. The caller has checked the number of arguments.
pub(super) fn next<'a>(args: &mut Args<'a>) -> &'a [u8] {
    args.next().unwrap_or_default()
}

pub(super) fn get(lookup: TextLookup<'_>, mut args: Args<'_>, counted: &mut Counted, out: &mut Out<'_>) -> Replied {
    match lookup.find_string(next(&mut args), counted)? {
        Some((value, offset_bytes)) => push_value(out, value, offset_bytes),
        None => out.null(),
    }
    Ok(())
}

/// Begins a command whose arguments are all keys. All keys are checked before the reply begins.
pub(super) fn check_keys(args: Args<'_>, of: KeysOf) -> Outcome {
    Outcome::Work(Work::CheckKeys { next_arg: args.offset_bytes(), of })
}

/// Checks the keys from `next_arg` on. Returns the work that follows once all keys have been checked, or `None` if the
/// pass should end although some keys are still unchecked.
pub(super) fn more_of_check_keys(
    lookup: TextLookup<'_>,
    command: &Command<'_>,
    next_arg: &mut usize,
    of: KeysOf,
    out: &mut Out<'_>,
) -> Result<Option<Work>, String> {
    if lookup.must_check_keys() {
        let mut args = command.args_from(*next_arg);
        while let Some(text) = args.next() {
            lookup.key(text)?;
            let steps = out.sink().steps();
            steps.add(key_steps(lookup.store.key_type()));
            steps.add_bytes(text.len());
            if steps.is_pass_over() {
                *next_arg = args.offset_bytes();
                return Ok(None);
            }
        }
    }
    let mut args = command.args();
    args.next();
    let next_arg = args.offset_bytes();
    Ok(Some(match of {
        KeysOf::MGet => {
            out.array(command.arg_count() - 1);
            Work::MGet { next_arg }
        }
        KeysOf::Exists => Work::Exists { next_arg, count: 0 },
    }))
}

pub(super) fn more_of_mget(
    lookup: TextLookup<'_>,
    command: &Command<'_>,
    next_arg: &mut usize,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> WorkStep {
    let (version, responses) = (out.version(), out.sink());
    let is_typed = lookup.store.schema_ref().is_some();
    loop {
        let mut args = command.args_from(*next_arg);
        if args.clone().next().is_none() {
            return WorkStep::Done;
        }
        if responses.cold().must_wait() {
            return WorkStep::Load;
        }
        if responses.is_full() {
            return WorkStep::Full;
        }
        let run_start_bytes = *next_arg;
        if let Some(text) = args.clone().next()
            && (is_typed || lookup.is_foreign(text))
        {
            args.next();
            *next_arg = args.offset_bytes();
            // As in Redis, the reply has null for a hash.
            match lookup.find_counted(text, counted) {
                Ok(_) => push_null(responses, version),
                Err(problem) => Out::new(responses, version).error(problem),
            }
            responses.steps().add(LONE_LOOKUP_STEPS);
            responses.steps().add_bytes(text.len());
            if responses.steps().is_pass_over() {
                return WorkStep::Yield;
            }
            continue;
        }
        let mut next_text = || match args.offset_bytes() - run_start_bytes {
            ..RUN_LEN_MAX_BYTES => args.next().map(|text| (text, args.offset_bytes())),
            _ => None,
        };
        let mut runs = Runs { store: lookup.store, version, routing: Unrouted, responses };
        // A run ends before a foreign key.
        let run = match plain_kind(lookup.store.key_type()) {
            Some(KeyKind::U64) => {
                runs.values(|| next_text().and_then(|(text, end_bytes)| Some((number(text)?, end_bytes))))
            }
            Some(KeyKind::Bytes) => runs.values(next_text),
            None => runs.stored_values(next_text).unwrap_or_default(),
        };
        if run.count == 0 && !responses.cold().must_wait() {
            // The verification of blocks was interrupted. Another attempt in the same pass would change nothing.
            return WorkStep::Yield;
        }
        counted.hits += run.hits as u64;
        counted.misses += run.misses as u64;
        *next_arg = run.end_bytes.max(run_start_bytes);
        responses.steps().add(run.steps);
        responses.steps().add_bytes(*next_arg - run_start_bytes);
        if responses.steps().is_pass_over() {
            return WorkStep::Yield;
        }
    }
}

/// Continues an EXISTS: looks up more keys, and replies after the last one.
pub(super) fn more_of_exists(
    lookup: TextLookup<'_>,
    command: &Command<'_>,
    next_arg: &mut usize,
    count: &mut i64,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<WorkStep, String> {
    let mut args = command.args_from(*next_arg);
    loop {
        *next_arg = args.offset_bytes();
        let Some(text) = args.next() else { break };
        if must_wait_for_key(lookup.store, text, out.sink()) {
            return Ok(WorkStep::Load);
        }
        *count += i64::from(lookup.find_counted(text, counted)?.is_some());
        let steps = out.sink().steps();
        steps.add(LONE_LOOKUP_STEPS);
        steps.add_bytes(text.len());
        if steps.is_pass_over() {
            *next_arg = args.offset_bytes();
            return Ok(WorkStep::Yield);
        }
    }
    out.integer(*count);
    Ok(WorkStep::Done)
}

pub(super) fn strlen(lookup: TextLookup<'_>, mut args: Args<'_>, counted: &mut Counted, out: &mut Out<'_>) -> Replied {
    let found = lookup.find_string(next(&mut args), counted)?;
    out.integer(found.map_or(0, |(value, _)| value.len()) as i64);
    Ok(())
}

pub(super) fn get_range(
    lookup: TextLookup<'_>,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Replied {
    let (text, start, end) = (next(&mut args), integer(next(&mut args)), integer(next(&mut args)));
    let (Some(start), Some(end)) = (start, end) else { return Err(NOT_AN_INTEGER.to_owned()) };
    let (value, offset_bytes) = lookup.find_string(text, counted)?.unwrap_or_default();
    let (from, to) = part(value.len(), start, end);
    push_value(out, &value[from..to], offset_bytes + from as u64);
    Ok(())
}

/// Returns the start and the exclusive end of the bytes that GETRANGE selects from a value of `len_bytes` bytes. The
/// arguments `start` and `end` are both inclusive. A negative argument counts from the end of the value.
fn part(len_bytes: usize, start: i64, end: i64) -> (usize, usize) {
    let len = len_bytes as i64;
    let at = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let from = at(start).clamp(0, len);
    // As in Redis, an end before the first byte counts as the first byte. The exception is a reversed range whose start
    // and end both count from the end of the value: such a range is empty.
    let to = if start < 0 && end < 0 && start > end { 0 } else { at(end).clamp(0, (len - 1).max(0)) + 1 };
    if from >= to || len == 0 { (0, 0) } else { (from as usize, to as usize) }
}

/// Replies to GETBIT. Bits after the end of the value are zeros.
pub(super) fn get_bit(lookup: TextLookup<'_>, mut args: Args<'_>, counted: &mut Counted, out: &mut Out<'_>) -> Replied {
    let (text, bit) = (next(&mut args), integer(next(&mut args)).and_then(|bit| u64::try_from(bit).ok()));
    let bit =
        bit.filter(|bit| bit / 8 < STRING_LEN_MAX_BYTES).ok_or("ERR bit offset is not an integer or out of range")?;
    let (value, _) = lookup.find_string(text, counted)?.unwrap_or_default();
    let byte = value.get((bit / 8) as usize).copied().unwrap_or_default();
    out.integer(i64::from(byte >> (7 - bit % 8) & 1));
    Ok(())
}

pub(super) fn type_of(lookup: TextLookup<'_>, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let there = lookup.find(next(&mut args))?.is_some();
    out.simple(if there { type_name(lookup.store) } else { "none" });
    Ok(())
}

/// Replies to TTL and similar commands: -1 (the key never expires), or -2 (the table does not have the key).
pub(super) fn time_to_live(lookup: TextLookup<'_>, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let there = lookup.find(next(&mut args))?.is_some();
    out.integer(if there { -1 } else { -2 });
    Ok(())
}

/// Replies to OBJECT ENCODING with the encoding that Redis would choose for the value.
pub(super) fn encoding(lookup: TextLookup<'_>, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    match lookup.find(next(&mut args))? {
        Some((value, _)) if integer(value).is_some() => out.bulk(b"int"),
        Some((value, _)) if value.len() <= EMBSTR_MAX_BYTES => out.bulk(b"embstr"),
        Some(_) => out.bulk(b"raw"),
        None => out.null(),
    }
    Ok(())
}

/// Replies to MEMORY USAGE with the length of the key's record. The index is not included: a share of it would depend
/// on the number of rows, which may include rows that the client may not use.
pub(super) fn memory_usage(lookup: TextLookup<'_>, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let text = next(&mut args);
    while let Some(option) = args.next() {
        let samples = args.next().filter(|_| option.eq_ignore_ascii_case(b"SAMPLES")).ok_or(SYNTAX)?;
        let samples = integer(samples).ok_or(NOT_AN_INTEGER)?;
        if samples < 0 {
            return Err(SYNTAX.to_owned());
        }
    }
    let Some((value, _)) = lookup.find(text)? else {
        out.null();
        return Ok(());
    };
    if lookup.store.is_compact() {
        out.integer(value.len() as i64);
        return Ok(());
    }
    // A very large table has a greater alignment, which also depends on other rows.
    let key = key(lookup.store.key_type(), text)?;
    // In a table of ranges, the end of a range has the length of its key, except in some tables of byte keys.
    let form = lookup.store.record_form();
    let row_key = RowKey { key: key.as_key(), end: form.has_ends.then_some(key.as_key()) };
    out.integer(record_len_bytes(form, row_key, value.len(), ALIGN_BYTES) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the range by the rules of Redis, case by case.
    fn model(len: i64, start: i64, end: i64) -> (usize, usize) {
        if start < 0 && end < 0 && start > end {
            return (0, 0);
        }
        let mut start = if start < 0 { len + start } else { start };
        let mut end = if end < 0 { len + end } else { end };
        start = start.max(0);
        end = end.max(0);
        if end >= len {
            end = len - 1;
        }
        if start > end || len == 0 { (0, 0) } else { (start as usize, end as usize + 1) }
    }

    #[test]
    fn ranges_of_values_are_the_same_as_in_redis() {
        for len in 0..6 {
            for start in -8..8 {
                for end in -8..8 {
                    assert_eq!(part(len as usize, start, end), model(len, start, end), "{start} to {end} of {len}");
                }
            }
        }
        assert_eq!(part(5, i64::MIN, i64::MAX), (0, 5));
        assert_eq!(part(5, i64::MAX, i64::MIN), (0, 0));
    }
}
