//! Client-side caching: CLIENT TRACKING, CLIENT CACHING, CLIENT TRACKINGINFO, and CLIENT GETREDIR.
//!
//! In: the generation and the view of the cluster that a pass reads. Out: one message whenever they change, which makes
//! the client forget all that it has cached. A table changes only as a whole, so the server does not remember which
//! keys a client has read.
//!
//! A message precedes all replies from the new generation on its connection, and follows all replies from the old one.
//! A client that receives them in order therefore caches no row of the old generation after the message. With REDIRECT,
//! the message is sent on another connection, after this connection has begun to read the new generation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::task::Waker;

use super::{NOT_AN_INTEGER, Out, Replied, SYNTAX, Session};
use crate::protocol::resp::{Args, Reply, Version, integer};
use crate::server::responses::Responses;
use crate::server::table::Generation;

/// The channel on which a client that uses RESP2 receives the messages for another of its connections.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// The maximum total length of the prefixes that a connection tracks.
const PREFIXES_LEN_MAX_BYTES: usize = 64 << 10;

/// Whether a connection wants invalidations, and what they are about.
#[derive(Clone, Default)]
pub(super) struct Tracking {
    is_on: bool,
    options: TrackingOptions,
    /// The ID of the client that gets the messages, or 0 for this client itself.
    redirect: i64,
    /// Whether the client that gets the messages has disconnected.
    is_redirect_broken: bool,
    /// Whether CLIENT CACHING was the last command.
    is_caching: bool,
    /// `None` if there are no prefixes.
    prefixes: Option<Arc<Vec<Box<[u8]>>>>,
    /// What the last message announced, or what was current when tracking was turned on.
    seen: Seen,
}

/// What the replies to a client depend on: the numbers of the generation, and of the view of the cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    generation: u64,
    view: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct TrackingOptions {
    is_bcast: bool,
    is_optin: bool,
    is_optout: bool,
    is_noloop: bool,
}

impl Tracking {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.prefixes().iter().map(|prefix| prefix.len() + size_of::<Box<[u8]>>()).sum()
    }

    fn prefixes(&self) -> &[Box<[u8]>] {
        self.prefixes.as_ref().map_or(&[], |prefixes| &prefixes[..])
    }

    /// Returns the flags of the connection in CLIENT LIST.
    fn flags(&self) -> u8 {
        let flags = [(self.is_on, TRACKING), (self.is_redirect_broken, BROKEN), (self.options.is_bcast, BCAST)];
        flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag)
    }

    fn reported_redirect(&self) -> i64 {
        if self.is_on { self.redirect } else { -1 }
    }
}

/// Bits of the flags that CLIENT LIST shows.
const TRACKING: u8 = 1;
const BROKEN: u8 = 2;
const BCAST: u8 = 4;

/// What other connections know about the tracking of a connection, and the messages that they leave for it.
#[derive(Default)]
pub(super) struct SharedTracking {
    flags: AtomicU8,
    redirect: AtomicI64,
    /// Whether other connections redirect their messages to this one.
    is_target: AtomicBool,
    /// Whether one of them has left a message.
    has_message: AtomicBool,
}

impl SharedTracking {
    /// Returns the letters in the field `flags` of CLIENT LIST.
    pub(super) fn letters(&self) -> String {
        let flags = self.flags.load(Ordering::Relaxed);
        let letters = [(TRACKING, 't'), (BROKEN, 'R'), (BCAST, 'B')];
        letters.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, letter)| letter).collect()
    }

    pub(super) fn redirect(&self) -> i64 {
        if self.flags.load(Ordering::Relaxed) == 0 { -1 } else { self.redirect.load(Ordering::Relaxed) }
    }

    pub(super) fn is_on(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn is_target(&self) -> bool {
        self.is_target.load(Ordering::Relaxed)
    }

    fn store(&self, tracking: &Tracking) {
        self.flags.store(tracking.flags(), Ordering::Relaxed);
        self.redirect.store(tracking.redirect, Ordering::Relaxed);
    }
}

impl Session {
    fn seen_now(&self, generation: &Generation) -> Seen {
        let view = self.cluster.as_ref().map_or(0, |cluster| cluster.view().version());
        Seen { generation: generation.number, view }
    }

    /// Returns whether a message is due, although the client has sent no command. Afterward, `waker` is woken when the
    /// next one is due.
    #[inline]
    pub(in crate::server) fn has_message(&mut self, generation: &Generation, waker: &Waker) -> bool {
        (self.state.tracking.is_on || self.client.tracking().is_target()) && self.has_due_message(generation, waker)
    }

    #[cold]
    fn has_due_message(&mut self, generation: &Generation, waker: &Waker) -> bool {
        // The waker is set before the checks. Otherwise, changes right after the checks would not wake the task.
        self.activity.set_waker(waker);
        if self.client.tracking().has_message.load(Ordering::Relaxed) {
            return !self.is_in_command();
        }
        if !self.state.tracking.is_on {
            return false;
        }
        if !std::mem::replace(&mut self.is_watching, true) {
            self.worker.server.table.watchers().add(self.client.id(), waker);
            if let Some(cluster) = &self.cluster {
                cluster.node().watchers().add(self.client.id(), waker);
            }
            // If the generation was replaced after the turn has begun, the next turn reads the new one.
            if self.worker.server.table.current().number != generation.number {
                waker.wake_by_ref();
            }
        }
        self.refresh_cluster();
        self.state.tracking.seen != self.seen_now(generation) && !self.is_in_command()
    }

    /// Adds the messages that are due before the replies of a pass. In the middle of a reply, nothing is due: its rest
    /// comes from the same generation.
    #[inline]
    pub(super) fn push_messages(&mut self, generation: &Generation, responses: &mut Responses) {
        if (self.state.tracking.is_on || self.client.tracking().is_target()) && !self.is_in_command() {
            self.push_due_messages(generation, responses);
        }
    }

    #[cold]
    fn push_due_messages(&mut self, generation: &Generation, responses: &mut Responses) {
        let mut out = Reply::new(responses, self.state.version);
        if self.client.tracking().has_message.swap(false, Ordering::Relaxed) {
            self.has_taken_message = true;
            self.push_redirected(&mut out);
        }
        let seen = self.seen_now(generation);
        let tracking = &mut self.state.tracking;
        if !tracking.is_on || tracking.seen == seen {
            return;
        }
        tracking.seen = seen;
        match tracking.redirect {
            0 if self.state.version == Version::Resp3 => push_invalidation(&mut out),
            0 => {}
            id if self.clients.get(id).is_some() => self.has_redirected = true,
            id => {
                tracking.is_redirect_broken = true;
                self.client.tracking().store(&self.state.tracking);
                if self.state.version == Version::Resp3 {
                    out.push(2);
                    out.bulk(b"tracking-redir-broken");
                    out.integer(id);
                }
            }
        }
    }

    /// Sends the message of another connection. A client that uses RESP2 gets it only if it has subscribed to a
    /// channel.
    fn push_redirected(&self, out: &mut Out<'_>) {
        if self.state.version == Version::Resp3 {
            push_invalidation(out);
        } else if !self.state.subscriptions.is_empty() {
            out.push(3);
            out.bulk(b"message");
            out.bulk(CHANNEL);
            out.null();
        }
    }

    /// Delivers the message of a pass that redirects it. Called when the pass is committed, so that this connection
    /// sends no row of the old generation after the message.
    #[inline]
    pub(super) fn commit_messages(&mut self) {
        self.has_taken_message = false;
        if std::mem::take(&mut self.has_redirected)
            && let Some(target) = self.clients.get(self.state.tracking.redirect)
        {
            // The wake-up orders the message before the next turn of the other connection.
            target.tracking().has_message.store(true, Ordering::Relaxed);
            target.wake();
        }
    }

    /// Undoes the messages of a pass that will be repeated.
    pub(super) fn undo_messages(&mut self) {
        self.has_redirected = false;
        if std::mem::take(&mut self.has_taken_message) {
            self.client.tracking().has_message.store(true, Ordering::Relaxed);
        }
    }

    /// Executes CLIENT TRACKING.
    pub(super) fn track(&mut self, generation: &Generation, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
        let state = args.next().unwrap_or_default();
        let (mut options, mut redirect, mut prefixes) = (TrackingOptions::default(), 0, Vec::new());
        while let Some(option) = args.next() {
            let value = args.clone().next();
            match (option.to_ascii_lowercase().as_slice(), value) {
                (b"redirect", Some(value)) => {
                    args.next();
                    if redirect != 0 {
                        return Err("ERR A client can only redirect to a single other client".to_owned());
                    }
                    redirect = integer(value).ok_or(NOT_AN_INTEGER)?;
                    if self.clients.get(redirect).is_none() {
                        return Err("ERR The client ID you want redirect to does not exist".to_owned());
                    }
                }
                (b"bcast", _) => options.is_bcast = true,
                (b"optin", _) => options.is_optin = true,
                (b"optout", _) => options.is_optout = true,
                (b"noloop", _) => options.is_noloop = true,
                (b"prefix", Some(value)) => {
                    args.next();
                    prefixes.push(value);
                }
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        match state.to_ascii_lowercase().as_slice() {
            b"on" => self.turn_tracking_on(generation, options, redirect, &prefixes, out)?,
            b"off" => self.turn_tracking_off(),
            _ => return Err(SYNTAX.to_owned()),
        }
        out.ok();
        Ok(())
    }

    fn turn_tracking_on(
        &mut self,
        generation: &Generation,
        options: TrackingOptions,
        redirect: i64,
        prefixes: &[&[u8]],
        out: &mut Out<'_>,
    ) -> Replied {
        let now = self.seen_now(generation);
        let tracking = &mut self.state.tracking;
        if !options.is_bcast && !prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".to_owned());
        }
        if tracking.is_on && tracking.options.is_bcast != options.is_bcast {
            return Err("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                        re-enabling it with a different mode."
                .to_owned());
        }
        if options.is_bcast && (options.is_optin || options.is_optout) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".to_owned());
        }
        if options.is_optin && options.is_optout {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".to_owned());
        }
        let was = tracking.options;
        if tracking.is_on && (options.is_optin && was.is_optout || options.is_optout && was.is_optin) {
            return Err("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                        re-enabling it with a different mode."
                .to_owned());
        }
        if options.is_bcast {
            // Every prefix is compared with every other one.
            out.sink().steps().add(prefixes.len() * (prefixes.len() + tracking.prefixes().len()) / 4);
            tracking.add_prefixes(prefixes)?;
        }
        if !tracking.is_on {
            tracking.seen = now;
        }
        (tracking.is_on, tracking.options, tracking.redirect) = (true, options, redirect);
        tracking.is_redirect_broken = false;
        if let Some(target) = self.clients.get(redirect) {
            target.tracking().is_target.store(true, Ordering::Relaxed);
        }
        self.report_tracking();
        Ok(())
    }

    pub(super) fn turn_tracking_off(&mut self) {
        self.state.tracking = Tracking::default();
        self.report_tracking();
    }

    /// Shows the state of tracking to other connections.
    fn report_tracking(&self) {
        let (shared, is_on) = (self.client.tracking(), self.state.tracking.is_on);
        if shared.is_on() != is_on {
            self.clients.count_tracking(is_on);
        }
        shared.store(&self.state.tracking);
    }

    /// Removes the connection from the lists of those that are woken, and from the number of those that track keys.
    pub(super) fn end_tracking(&self) {
        if self.client.tracking().is_on() {
            self.clients.count_tracking(false);
        }
        if self.is_watching {
            self.worker.server.table.watchers().remove(self.client.id());
            if let Some(cluster) = &self.cluster {
                cluster.node().watchers().remove(self.client.id());
            }
        }
    }

    /// Executes CLIENT CACHING. The message is about all keys anyway, so the command only checks its arguments.
    pub(super) fn caching(&mut self, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
        let tracking = &mut self.state.tracking;
        if !tracking.is_on {
            return Err(
                "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                        mode enabled"
                    .to_owned(),
            );
        }
        match args.next().unwrap_or_default().to_ascii_lowercase().as_slice() {
            b"yes" if !tracking.options.is_optin => {
                return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".to_owned());
            }
            b"no" if !tracking.options.is_optout => {
                return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".to_owned());
            }
            b"yes" | b"no" => tracking.is_caching = true,
            _ => return Err(SYNTAX.to_owned()),
        }
        out.ok();
        Ok(())
    }

    /// Ends the effect of CLIENT CACHING after a command other than CLIENT, or after a transaction.
    #[inline]
    pub(super) fn end_caching(&mut self) {
        if !self.state.transaction.is_queueing() && !self.state.transaction.is_executing() {
            self.state.tracking.is_caching = false;
        }
    }

    pub(super) fn tracking_redirect(&self, out: &mut Out<'_>) {
        out.integer(self.state.tracking.reported_redirect());
    }

    pub(super) fn tracking_info(&self, out: &mut Out<'_>) {
        let tracking = &self.state.tracking;
        let options = tracking.options;
        let flags = [
            (true, if tracking.is_on { "on" } else { "off" }),
            (options.is_bcast, "bcast"),
            (options.is_optin, "optin"),
            (options.is_optin && tracking.is_caching, "caching-yes"),
            (options.is_optout, "optout"),
            (options.is_optout && tracking.is_caching, "caching-no"),
            (options.is_noloop, "noloop"),
            (tracking.is_redirect_broken, "broken_redirect"),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
        out.map(3);
        out.bulk(b"flags");
        out.set(flags.len());
        flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
        out.bulk(b"redirect");
        self.tracking_redirect(out);
        out.bulk(b"prefixes");
        out.array(tracking.prefixes().len());
        tracking.prefixes().iter().for_each(|prefix| out.bulk(prefix));
    }
}

fn push_invalidation(out: &mut Out<'_>) {
    out.push(2);
    out.bulk(b"invalidate");
    out.null();
}

impl Tracking {
    /// Adds the prefixes of a CLIENT TRACKING with BCAST. Without prefixes, the client tracks all keys.
    fn add_prefixes(&mut self, prefixes: &[&[u8]]) -> Replied {
        let overlaps = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let overlap = |prefix: &[u8], which: &str, other: &[u8]| {
            format!(
                "ERR Prefix '{}' overlaps with {which} prefix '{}'. Prefixes for a single client must not overlap.",
                String::from_utf8_lossy(prefix),
                String::from_utf8_lossy(other)
            )
        };
        for (at, prefix) in prefixes.iter().enumerate() {
            if let Some(other) = self.prefixes().iter().find(|other| overlaps(prefix, other)) {
                return Err(overlap(prefix, "an existing", other));
            }
            if let Some(other) = prefixes[at + 1..].iter().find(|other| overlaps(prefix, other)) {
                return Err(overlap(prefix, "another provided", other));
            }
        }
        let all = if prefixes.is_empty() { &[&b""[..]][..] } else { prefixes };
        let is_new = |prefix: &&&[u8]| !self.prefixes().iter().any(|other| **other == ***prefix);
        let new: Vec<Box<[u8]>> = all.iter().filter(is_new).map(|prefix| (**prefix).into()).collect();
        let len_bytes = self.held_bytes() + new.iter().map(|prefix| prefix.len()).sum::<usize>();
        if len_bytes > PREFIXES_LEN_MAX_BYTES {
            return Err(format!(
                "ERR the prefixes are too long: {len_bytes} bytes together, the limit is {PREFIXES_LEN_MAX_BYTES}: track \
                 all keys instead, without PREFIX"
            ));
        }
        let prefixes = Arc::make_mut(self.prefixes.get_or_insert_default());
        prefixes.extend(new);
        // As in Redis, the list is sorted.
        prefixes.sort_unstable();
        Ok(())
    }
}
