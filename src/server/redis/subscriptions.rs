//! Subscriptions: SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, and their opposites.
//!
//! In: names of channels. Out: the confirmations that Redis sends. No client can publish, so the only message that a
//! subscriber ever gets is an invalidation of a client-side cache: see `tracking`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Out, Replied, Session};
use crate::protocol::resp::commands::{Id, Spec};
use crate::protocol::resp::{Args, Version};

/// The maximum number of subscriptions of a connection.
const SUBSCRIPTIONS_MAX: usize = 4096;
/// The maximum total length of the names of the channels that a connection subscribes to.
const SUBSCRIPTIONS_LEN_MAX_BYTES: usize = 256 << 10;
/// The estimated memory of a name in a set, besides its bytes.
const NAME_OVERHEAD_BYTES: usize = 32;

/// The subscriptions of a connection. A copy shares its sets until one of the two is changed.
#[derive(Clone, Default)]
pub(super) struct Subscriptions {
    /// `None` if there are no subscriptions.
    sets: Option<Arc<Sets>>,
}

#[derive(Clone, Default)]
struct Sets {
    names: [BTreeSet<Box<[u8]>>; KINDS],
    len_bytes: usize,
}

const KINDS: usize = 3;

/// What a subscription names, and the position of its set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Channel,
    Pattern,
    ShardChannel,
}

impl Kind {
    fn of(id: Id) -> Kind {
        match id {
            Id::PSubscribe | Id::PUnsubscribe => Kind::Pattern,
            Id::SSubscribe | Id::SUnsubscribe => Kind::ShardChannel,
            _ => Kind::Channel,
        }
    }
}

impl Sets {
    fn total(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    /// Returns the number that a confirmation of this kind states.
    fn stated(&self, kind: Kind) -> usize {
        let [channels, patterns, shard_channels] = self.names.each_ref().map(BTreeSet::len);
        if kind == Kind::ShardChannel { shard_channels } else { channels + patterns }
    }
}

impl Subscriptions {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_none()
    }

    /// Returns the numbers of channels, patterns, and shard channels.
    pub(super) fn counts(&self) -> [usize; KINDS] {
        self.sets.as_ref().map_or([0; KINDS], |sets| sets.names.each_ref().map(BTreeSet::len))
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.sets.as_ref().map_or(0, |sets| sets.len_bytes + sets.total() * NAME_OVERHEAD_BYTES)
    }

    fn subscribe(&mut self, kind: Kind, name: &[u8]) -> Result<usize, String> {
        let sets = Arc::make_mut(self.sets.get_or_insert_default());
        if !sets.names[kind as usize].contains(name) {
            if sets.total() == SUBSCRIPTIONS_MAX || sets.len_bytes + name.len() > SUBSCRIPTIONS_LEN_MAX_BYTES {
                return Err(format!(
                    "ERR too many subscriptions, the limit is {SUBSCRIPTIONS_MAX} channels with names of together \
                     {SUBSCRIPTIONS_LEN_MAX_BYTES} bytes for each connection: end others first"
                ));
            }
            sets.len_bytes += name.len();
            sets.names[kind as usize].insert(name.into());
        }
        Ok(sets.stated(kind))
    }

    /// Ends a subscription. Returns the number that the confirmation states.
    fn unsubscribe(&mut self, kind: Kind, name: &[u8]) -> usize {
        let Some(sets) = &mut self.sets else { return 0 };
        let sets = Arc::make_mut(sets);
        if sets.names[kind as usize].remove(name) {
            sets.len_bytes -= name.len();
        }
        let stated = sets.stated(kind);
        if sets.total() == 0 {
            self.sets = None;
        }
        stated
    }

    fn first(&self, kind: Kind) -> Option<Box<[u8]>> {
        self.sets.as_ref()?.names[kind as usize].first().cloned()
    }
}

impl Session {
    /// Returns whether the client may send only commands about subscriptions, because replies to other commands could
    /// be mistaken for messages.
    #[inline]
    pub(super) fn is_confined(&self) -> bool {
        !self.state.subscriptions.is_empty() && self.state.version == Version::Resp2
    }

    pub(super) fn subscribe(&mut self, spec: &Spec, args: Args<'_>, out: &mut Out<'_>) -> Replied {
        let (kind, mut subscriptions) = (Kind::of(spec.id), self.state.subscriptions.clone());
        if kind == Kind::ShardChannel && self.state.transaction.is_executing() {
            return Err("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".to_owned());
        }
        let mut confirmed = Vec::new();
        for name in args {
            confirmed.push((name, subscriptions.subscribe(kind, name)?));
        }
        // A rejected command has changed nothing.
        self.set_subscriptions(subscriptions);
        confirmed.into_iter().for_each(|(name, count)| confirm(spec, Some(name), count, out));
        Ok(())
    }

    /// Ends the given subscriptions, or all of their kind if none are given. Clients wait for a confirmation of each.
    pub(super) fn unsubscribe(&mut self, spec: &Spec, args: Args<'_>, out: &mut Out<'_>) {
        let (kind, mut subscriptions) = (Kind::of(spec.id), self.state.subscriptions.clone());
        if args.clone().next().is_some() {
            args.for_each(|name| confirm(spec, Some(name), subscriptions.unsubscribe(kind, name), out));
        } else if subscriptions.first(kind).is_none() {
            let stated = subscriptions.sets.as_ref().map_or(0, |sets| sets.stated(kind));
            confirm(spec, None, stated, out);
        } else {
            while let Some(name) = subscriptions.first(kind) {
                let stated = subscriptions.unsubscribe(kind, &name);
                confirm(spec, Some(&name), stated, out);
                out.sink().steps().add(1);
            }
        }
        self.set_subscriptions(subscriptions);
    }

    pub(super) fn set_subscriptions(&mut self, subscriptions: Subscriptions) {
        self.client.set_subscriptions(subscriptions.counts());
        self.state.subscriptions = subscriptions;
    }
}

fn confirm(spec: &Spec, name: Option<&[u8]>, count: usize, out: &mut Out<'_>) {
    out.push(3);
    out.bulk(spec.name.as_bytes());
    match name {
        Some(name) => out.bulk(name),
        None => out.null(),
    }
    out.integer(count as i64);
}

/// Returns whether a client with subscriptions may send a command in RESP2.
pub(super) fn is_allowed_with_subscriptions(spec: &Spec) -> bool {
    matches!(
        spec.id,
        Id::Ping
            | Id::Subscribe
            | Id::PSubscribe
            | Id::SSubscribe
            | Id::Unsubscribe
            | Id::PUnsubscribe
            | Id::SUnsubscribe
            | Id::Quit
            | Id::Reset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_of_a_connection_are_limited_and_released() {
        let mut subscriptions = Subscriptions::default();
        for number in 0..SUBSCRIPTIONS_MAX {
            assert_eq!(subscriptions.subscribe(Kind::Channel, number.to_string().as_bytes()), Ok(number + 1));
        }
        assert!(subscriptions.subscribe(Kind::Pattern, b"p").unwrap_err().contains("the limit is 4096 channels"));
        assert_eq!(subscriptions.subscribe(Kind::Channel, b"7"), Ok(SUBSCRIPTIONS_MAX));
        let held_bytes = subscriptions.held_bytes();
        assert!((SUBSCRIPTIONS_MAX * NAME_OVERHEAD_BYTES..1 << 20).contains(&held_bytes), "{held_bytes}");
        let kept = subscriptions.clone();
        while let Some(name) = subscriptions.first(Kind::Channel) {
            subscriptions.unsubscribe(Kind::Channel, &name);
        }
        assert_eq!((subscriptions.is_empty(), subscriptions.held_bytes()), (true, 0));
        assert_eq!(kept.counts(), [SUBSCRIPTIONS_MAX, 0, 0]);
        let long = vec![b'x'; SUBSCRIPTIONS_LEN_MAX_BYTES + 1];
        assert!(subscriptions.subscribe(Kind::ShardChannel, &long).is_err());
    }
}
