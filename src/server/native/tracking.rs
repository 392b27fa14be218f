//! Notices for clients that keep values: the op Track.
//!
//! In: the state that a pass reads. Out: a notice whenever it differs from the state of the preceding pass. A table changes
//! only as a whole, so the server does not remember which keys a client has read.
//!
//! A notice precedes all responses from the new state on its connection, and follows all responses from the old one. A
//! client that reads them in order therefore knows the state of each response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use twox_hash::XxHash3_128;
use zerocopy::IntoBytes;

use crate::protocol::native::{ResponseHeader, StateId, Status};
use crate::server::responses::Responses;
use crate::server::state::{ConnectionContext, ServerState};
use crate::server::table::Generation;
use crate::server::users::Access;

const TRACK_STEPS: usize = 10;

/// Whether a client wants notices, and of which state it knows.
#[derive(Default)]
pub(super) struct Tracking {
    /// The state of the responses that were sent last. `None` if the client wants no notices.
    sent: Option<State>,
    /// The state of the responses that will be sent, after a notice.
    announced: Option<State>,
    /// The connection's user in the current pass.
    pub(super) user: u64,
    watch: Option<Watch>,
}

/// What the responses on a connection depend on, apart from the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    generation: u64,
    /// The version of the view of the cluster, which changes with the slots of the node.
    view: u64,
    /// What [`user_of`] returns.
    user: u64,
    /// The version of all permissions.
    users: u64,
}

/// The user of a connection that must log in first.
const NOBODY: u64 = u64::MAX;

/// Returns the number of a connection's user. A connection that must log in first, for example because its user has
/// been removed, has another number than one that has all permissions without being a user.
pub(super) fn user_of(access: &Access) -> u64 {
    if access.is_authenticated() { access.user_number() } else { NOBODY }
}

impl State {
    fn now(context: &ConnectionContext, generation: &Generation, user: u64) -> State {
        let server = &context.worker.server;
        let view = server.settings.source.cluster.as_ref().map_or(0, |node| node.version());
        State { generation: generation.number, view, user, users: server.users.version() }
    }

    fn id(&self, server: &ServerState) -> StateId {
        let State { generation, view, user, users } = *self;
        XxHash3_128::oneshot([server.run_number, generation, view, user, users].as_bytes()).to_be_bytes()
    }
}

impl Tracking {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.sent.is_some()
    }

    /// Answers a Track request.
    pub(super) fn begin(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        responses: &mut Responses,
    ) -> Status {
        let state = State::now(context, generation, self.user);
        let id = state.id(&context.worker.server);
        responses.steps().add(TRACK_STEPS);
        responses.push(ResponseHeader::of_page(id.len()).as_bytes());
        responses.push(&id);
        (self.sent, self.announced) = (Some(state), None);
        Status::Ok
    }

    /// Adds a notice before the responses of a pass, if they come from another state than those before.
    #[cold]
    pub(super) fn push_notice(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        access: &Access,
        responses: &mut Responses,
    ) {
        let state = State::now(context, generation, user_of(access));
        self.announced = None;
        if self.sent != Some(state) {
            responses.push(ResponseHeader::of_notice().as_bytes());
            responses.push(&state.id(&context.worker.server));
            self.announced = Some(state);
        }
    }

    /// Records that the notice of the last pass, if any, is sent.
    #[inline]
    pub(super) fn commit(&mut self) {
        if self.announced.is_some() {
            self.sent = self.announced.take();
        }
    }

    /// Returns whether a notice is due. Afterward, `waker` is woken when the next one is due.
    #[cold]
    pub(super) fn has_notice(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        access: &Access,
        waker: &Waker,
    ) -> bool {
        // The waker is set before the check. Otherwise, a change right after the check would not wake the task.
        if self.watch.is_none() {
            self.watch = Some(Watch::begin(&context.worker.server, waker));
            // If the generation was replaced after the turn has begun, the next turn reads the new one.
            if context.worker.server.table.current().number != generation.number {
                waker.wake_by_ref();
            }
        }
        self.sent != Some(State::now(context, generation, user_of(access)))
    }
}

/// A connection in the lists of those that are woken when the generation, the slots, or the users change.
struct Watch {
    server: Arc<ServerState>,
    number: u64,
}

impl Watch {
    fn begin(server: &Arc<ServerState>, waker: &Waker) -> Watch {
        let number = server.next_watch.fetch_add(1, Ordering::Relaxed);
        server.table.watchers().add(number, waker);
        if let Some(node) = &server.settings.source.cluster {
            node.watchers().add(number, waker);
        }
        Watch { server: Arc::clone(server), number }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.server.table.watchers().remove(self.number);
        if let Some(node) = &self.server.settings.source.cluster {
            node.watchers().remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::users::Users;

    #[test]
    fn a_connection_that_must_log_in_is_in_no_state_of_the_unix_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.acl");
        std::fs::write(&path, "user default off\nuser a on nopass ~* +@all\n").unwrap();
        let users = Users::new(Some(&path)).unwrap();
        let [unix, tcp] = [true, false].map(|is_unix| Access::new(&users, is_unix));
        let user = Access::of(users.get(b"a").unwrap());
        assert!(unix.is_authenticated() && !tcp.is_authenticated());
        assert_eq!((unix.user_number(), tcp.user_number()), (0, 0));
        let [unix, tcp, user] = [&unix, &tcp, &user].map(user_of);
        assert!(unix != tcp && tcp != user && unix != user);
    }
}
