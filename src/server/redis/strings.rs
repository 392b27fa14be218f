//! Commands that read the values of given keys.

use super::stored::push_value;
use super::text::{damaged, key, number};
use super::work::{KeysOf, Outcome, Step, Work};
use super::{Counted, LOOKUP_STEPS, Out, gets};
use crate::format::key::KeyKind;
use crate::format::record::{record_len_bytes, value_of_response};
use crate::protocol::resp::{Args, Command, integer};
use crate::store::{Found, Store};

/// The maximum length of the keys that are looked up together, not counting the last key.
const RUN_LEN_MAX_BYTES: usize = 64 << 10;
/// The number of steps of a key that is looked up individually.
const LONE_LOOKUP_STEPS: usize = 4;
/// The maximum length of values that have the encoding `embstr` in Redis. Longer values have the encoding `raw`.
const EMBSTR_MAX_BYTES: usize = 44;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// A value and its offset in the records section.
type Stored<'s> = (&'s [u8], u64);

fn find<'s>(store: &'s Store, text: &[u8]) -> Result<Option<Stored<'s>>, String> {
    match store.find(key(store.key_kind(), text)?) {
        Ok(Found::Answer(answer, offset_bytes)) => Ok(Some(value_of_response(answer, offset_bytes))),
        Ok(Found::Missing) => Ok(None),
        Ok(Found::Damaged) | Err(_) => Err(damaged()),
    }
}

fn find_counted<'s>(store: &'s Store, text: &[u8], counted: &mut Counted) -> Result<Option<Stored<'s>>, String> {
    let found = find(store, text)?;
    counted.lookup(found.is_some());
    Ok(found)
}

/// Returns the next argument. The caller has checked the number of arguments.
fn next<'a>(args: &mut Args<'a>) -> &'a [u8] {
    args.next().unwrap_or_default()
}

pub(super) fn get(store: &Store, mut args: Args<'_>, counted: &mut Counted, out: &mut Out<'_>) -> Result<(), String> {
    match find_counted(store, next(&mut args), counted)? {
        Some((value, offset_bytes)) => push_value(out, value, offset_bytes),
        None => out.null(),
    }
    Ok(())
}

/// Begins a command whose arguments are all keys. All keys are checked before the reply begins.
pub(super) fn check_keys(args: Args<'_>, of: KeysOf) -> Outcome {
    Outcome::Work(Work::CheckKeys { next_arg: args.offset_bytes(), of })
}

/// Checks the keys from `next_arg` on. Returns the work that follows after all keys are checked, or `None` if the pass
/// should end before.
///
/// # Errors
/// The text of the error reply, if an argument cannot be a key in this table.
pub(super) fn more_of_check_keys(
    store: &Store,
    command: &Command<'_>,
    next_arg: &mut usize,
    of: KeysOf,
    out: &mut Out<'_>,
) -> Result<Option<Work>, String> {
    if store.key_kind() == KeyKind::U64 {
        let mut args = command.args_from(*next_arg);
        while let Some(text) = args.next() {
            key(KeyKind::U64, text)?;
            let steps = out.sink().steps();
            steps.add(1);
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
    store: &Store,
    command: &Command<'_>,
    next_arg: &mut usize,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Step {
    let (version, responses) = (out.version(), out.sink());
    loop {
        let mut args = command.args_from(*next_arg);
        if args.clone().next().is_none() {
            return Step::Done;
        }
        if responses.is_full() {
            return Step::Full;
        }
        let run_start_bytes = *next_arg;
        let mut next_text = || match args.offset_bytes() - run_start_bytes {
            ..RUN_LEN_MAX_BYTES => args.next().map(|text| (text, args.offset_bytes())),
            _ => None,
        };
        let run = match store.key_kind() {
            KeyKind::U64 => {
                // All keys are numbers, because all arguments were checked before. The default is never used.
                let next = || next_text().map(|(text, end_bytes)| (number(text).unwrap_or_default(), end_bytes));
                gets::run(store, 0, next, version, responses)
            }
            KeyKind::Bytes => gets::run(store, &[][..], next_text, version, responses),
        };
        counted.hits += run.hits() as u64;
        counted.misses += run.misses as u64;
        *next_arg = run.end_bytes.max(run_start_bytes);
        responses.steps().add(LOOKUP_STEPS * run.count);
        responses.steps().add_bytes(*next_arg - run_start_bytes);
        if responses.steps().is_pass_over() {
            return Step::Yield;
        }
    }
}

/// Continues an EXISTS: looks up more keys, and replies after the last one.
///
/// # Errors
/// The text of the error reply, if a record is damaged.
pub(super) fn more_of_exists(
    store: &Store,
    command: &Command<'_>,
    next_arg: &mut usize,
    count: &mut i64,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<Step, String> {
    let mut args = command.args_from(*next_arg);
    while let Some(text) = args.next() {
        let found = match key(store.key_kind(), text).map(|key| store.contains(key)) {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => return Err(damaged()),
            // This case does not occur, because all keys were checked before.
            Err(_) => false,
        };
        counted.lookup(found);
        *count += i64::from(found);
        let steps = out.sink().steps();
        steps.add(LONE_LOOKUP_STEPS);
        steps.add_bytes(text.len());
        if steps.is_pass_over() {
            *next_arg = args.offset_bytes();
            return Ok(Step::Yield);
        }
    }
    out.integer(*count);
    Ok(Step::Done)
}

pub(super) fn strlen(
    store: &Store,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let found = find_counted(store, next(&mut args), counted)?;
    out.integer(found.map_or(0, |(value, _)| value.len()) as i64);
    Ok(())
}

pub(super) fn get_range(
    store: &Store,
    mut args: Args<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<(), String> {
    let (text, start, end) = (next(&mut args), integer(next(&mut args)), integer(next(&mut args)));
    let (Some(start), Some(end)) = (start, end) else { return Err(NOT_AN_INTEGER.to_owned()) };
    let (value, offset_bytes) = find_counted(store, text, counted)?.unwrap_or_default();
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

pub(super) fn type_of(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let there = find(store, next(&mut args))?.is_some();
    out.simple(if there { "string" } else { "none" });
    Ok(())
}

/// Replies to TTL or PTTL: the key never expires, or it does not exist.
pub(super) fn time_to_live(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let there = find(store, next(&mut args))?.is_some();
    out.integer(if there { -1 } else { -2 });
    Ok(())
}

/// Replies to OBJECT ENCODING with the encoding that Redis would choose for the value.
pub(super) fn encoding(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match find(store, next(&mut args))? {
        Some((value, _)) if integer(value).is_some() => out.bulk(b"int"),
        Some((value, _)) if value.len() <= EMBSTR_MAX_BYTES => out.bulk(b"embstr"),
        Some(_) => out.bulk(b"raw"),
        None => out.null(),
    }
    Ok(())
}

/// Replies to MEMORY USAGE with the length of the key's record, plus the length of the index divided by the number of
/// rows.
pub(super) fn memory_usage(store: &Store, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let text = next(&mut args);
    while let Some(option) = args.next() {
        let samples = args.next().filter(|_| option.eq_ignore_ascii_case(b"SAMPLES")).ok_or(SYNTAX)?;
        let samples = integer(samples).ok_or(NOT_AN_INTEGER)?;
        if samples < 0 {
            return Err(SYNTAX.to_owned());
        }
    }
    let Some((value, _)) = find(store, text)? else {
        out.null();
        return Ok(());
    };
    let record_len_bytes = record_len_bytes(key(store.key_kind(), text)?, value.len(), store.record_align_bytes());
    let index_len_bytes = store.file_len_bytes() - store.records().len() as u64;
    out.integer((record_len_bytes as u64 + index_len_bytes / store.len().max(1) as u64) as i64);
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
