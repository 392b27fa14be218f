//! Looks up pipelined ZKV.RANGE and ZKV.COUNT commands together.
//!
//! In: commands, as a client sent them. Out: their replies.

use std::ops::ControlFlow;

use super::COMMAND_STEPS;
use super::order::RangeCommand;
use super::text::damaged;
use crate::Lookup;
use crate::protocol::resp::{Command, ParseProgress, Parsed, Reply, Version, parse, range_or_count};
use crate::server::responses::Responses;
use crate::store::{ColdLookup, RangeLookup, Store, is_verification_interrupted};

/// The maximum number of commands that are looked up together.
const RUN_COMMANDS_MAX: usize = 128;

/// The counts of a run of commands that were answered together.
pub(super) struct RangeRun {
    pub(super) count: usize,
    pub(super) damaged: usize,
    /// Whether the last answered command is a ZKV.COUNT.
    pub(super) ends_with_count: bool,
    /// The offset in the input at which the last answered command ends. 0 if no command was answered.
    pub(super) end_bytes: usize,
}

/// Answers the ZKV.RANGE and ZKV.COUNT commands at the start of `input`, as long as there is room for replies and
/// verification is not interrupted. Returns `None` if `input` begins with another command, an incomplete command, or a
/// command with invalid arguments.
pub(super) fn answer(store: &Store, input: &[u8], version: Version, responses: &mut Responses) -> Option<RangeRun> {
    let kind = store.key_kind();
    let (mut commands, mut at_bytes) = (Vec::new(), 0);
    while commands.len() < RUN_COMMANDS_MAX
        && let Some((command, len_bytes, arg_count)) = next(&input[at_bytes..])
        && command.lookup(kind).is_ok()
    {
        at_bytes += len_bytes;
        commands.push((command, at_bytes, arg_count));
    }
    if commands.is_empty() {
        return None;
    }
    let lookup = |i: usize| commands[i].0.lookup(kind).unwrap_or(RangeLookup::NOTHING);
    let ready_count =
        responses.ready_count(store, commands.len(), |i| ColdLookup::Range(lookup(i), commands[i].0.limits()));
    let (mut count, mut damaged_count) = (0_usize, 0);
    store.row_numbers_each(ready_count, lookup, |i, rows| {
        if responses.is_full() || count > 0 && responses.steps().is_time_over() {
            return ControlFlow::Break(());
        }
        let (command, _, arg_count) = &commands[i];
        let (end, copied_before_bytes) = (responses.end(), responses.copied().len());
        let mut reply = Reply::new(responses, version);
        let replied = rows.map_err(|_| damaged()).and_then(|rows| command.reply(store, rows, &mut reply));
        if let Err(error) = &replied {
            reply.error(error);
        }
        if is_verification_interrupted() {
            responses.truncate(&end);
            return ControlFlow::Break(());
        }
        damaged_count += usize::from(replied.is_err());
        let reply_len_bytes = responses.copied().len() - copied_before_bytes;
        responses.steps().add(COMMAND_STEPS + command.search_steps() + arg_count);
        responses.steps().add_bytes(reply_len_bytes);
        count += 1;
        match responses.steps().is_pass_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let last = count.checked_sub(1).map(|last| &commands[last]);
    Some(RangeRun {
        count,
        damaged: damaged_count,
        ends_with_count: last.is_some_and(|(command, ..)| command.is_count()),
        end_bytes: last.map_or(0, |(_, end_bytes, _)| *end_bytes),
    })
}

/// Parses a complete ZKV.RANGE or ZKV.COUNT at the start of `input`. Returns the command, its length, and its number of
/// arguments. Returns `None` for all other input.
fn next(input: &[u8]) -> Option<(RangeCommand<'_>, usize, usize)> {
    let is_range = range_or_count(input)?;
    let Ok(Parsed::Command { len_bytes, .. }) = parse(input, &mut ParseProgress::default()) else { return None };
    let command = Command::new(&input[..len_bytes]);
    let mut args = command.args();
    args.next();
    let parsed = if is_range { RangeCommand::range(args) } else { RangeCommand::count(args) };
    Some((parsed.ok()?, len_bytes, command.arg_count()))
}
