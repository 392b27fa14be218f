//! Looks up runs of keys together: the keys of pipelined GET commands, or the keys of an MGET.
//!
//! In: GET commands, or a function that returns keys. Out: the replies. Allocates nothing, and formats only the lengths
//! of long values.

use std::ops::ControlFlow;

use super::slots::Routing;
use super::stored::{push_answer, push_null};
use super::text::{self, number};
use crate::Lookup;
use crate::format::key::{Key, KeyKind, LookupKey};
use crate::protocol::resp::{Reply, Version, get};
use crate::server::responses::Responses;
use crate::store::{Found, Store, is_verification_interrupted};

/// The maximum number of keys that are looked up together.
const RUN_KEYS_MAX: usize = 256;

/// The result of looking up and answering a run of keys.
pub(super) struct GetRun {
    pub(super) count: usize,
    pub(super) misses: usize,
    /// The number of keys that were answered with an error.
    pub(super) errors: usize,
    /// The offset in the input at which the last answered key, or its GET command, ends. 0 if no key was answered.
    pub(super) end_bytes: usize,
}

impl GetRun {
    pub(super) fn hits(&self) -> usize {
        self.count - self.misses - self.errors
    }
}

/// Answers the GET commands at the start of `input`, as long as there is room for replies and verification is not
/// interrupted. Returns `None` if `input` begins with another command, or with a GET whose key is not of the table's
/// kind or not admitted by `routing`.
#[inline]
pub(super) fn answer<R: Routing>(
    store: &Store,
    input: &[u8],
    version: Version,
    routing: R,
    responses: &mut Responses,
) -> Option<GetRun> {
    let (first, _) = get(input)?;
    let kind = store.key_kind();
    if !routing.admits(kind, first) {
        return None;
    }
    let mut at_bytes = 0;
    let mut next = || {
        let (key, len_bytes) = get(&input[at_bytes..]).filter(|(key, _)| routing.admits(kind, key))?;
        at_bytes += len_bytes;
        Some((key, at_bytes))
    };
    match kind {
        // A run ends before a key that is not a number. A GET of such a key is executed individually, because the
        // setting for foreign keys determines its reply.
        KeyKind::U64 => {
            number(first)?;
            let next = || next().and_then(|(key, end_bytes)| Some((number(key)?, end_bytes)));
            Some(run(store, 0, next, version, routing, responses))
        }
        KeyKind::Bytes => Some(run(store, &[][..], next, version, routing, responses)),
    }
}

/// Answers the keys that `next` returns, in order, as long as there is room for replies and verification is not
/// interrupted. `next` returns each key with the offset of its end.
#[inline(always)]
pub(super) fn run<'k, K: LookupKey + Into<Key<'k>>, R: Routing>(
    store: &Store,
    blank: K,
    mut next: impl FnMut() -> Option<(K, usize)>,
    version: Version,
    routing: R,
    responses: &mut Responses,
) -> GetRun {
    let (mut keys, mut ends_bytes) = ([blank; RUN_KEYS_MAX], [0; RUN_KEYS_MAX]);
    let mut key_count = 0;
    while key_count < RUN_KEYS_MAX
        && let Some((key, end_bytes)) = next()
    {
        (keys[key_count], ends_bytes[key_count]) = (key, end_bytes);
        key_count += 1;
    }
    let ready_count = responses.ready_count(store, key_count, |i| store.point_lookup(keys[i]));
    let keys = &keys[..ready_count];
    let (mut count, mut misses, mut errors) = (0, 0, 0);
    store.find_each(
        keys,
        |key| *key,
        |key: &K, found| {
            if responses.is_full() {
                return ControlFlow::Break(());
            }
            match found {
                Found::Answer(answer, offset_bytes) => push_answer(responses, answer, offset_bytes),
                Found::Missing if routing.refuse_missing((*key).into(), version, responses) => errors += 1,
                Found::Missing => {
                    misses += 1;
                    push_null(responses, version);
                }
                Found::Damaged if is_verification_interrupted() => return ControlFlow::Break(()),
                Found::Damaged => {
                    errors += 1;
                    Reply::new(responses, version).error(text::damaged());
                }
            }
            count += 1;
            responses.steps().continue_after(count)
        },
    );
    GetRun { count, misses, errors, end_bytes: if count == 0 { 0 } else { ends_bytes[count - 1] } }
}
