//! Connections that do not begin with a native request. Each gets an error, and
//! is closed.

use std::sync::Arc;

use super::answers::Answers;
use super::pass::{Pass, Then};
use super::shared::Shared;

pub(super) struct Session;

impl Session {
    pub(super) fn new(_: &Arc<Shared>) -> Self {
        Session
    }

    pub(super) fn answer(&mut self, _: &Arc<Shared>, input: &[u8], answers: &mut Answers) -> Pass {
        answers.push(b"-ERR only native requests are answered here\r\n");
        Pass { taken_bytes: input.len(), then: Then::Close }
    }
}
