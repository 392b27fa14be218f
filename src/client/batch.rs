//! Many questions of one kind, and which of them are in flight.
//!
//! In: how many there are, how each is put, and what takes an answer. Out: bytes to
//! send, of so many questions as may be under way. It knows no socket.

use super::error::ClientError;
use super::question::{OfKey, Question, Unanswered, check_len};
use crate::format::key::Key;
use crate::protocol::answer::Violation;
use crate::protocol::native::Op;
use crate::protocol::reader::{Answer, AnswerReader};

/// Questions that are under way at most: what a server reads at once.
const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of requests that are put at once, beyond which no more are.
const REQUESTS_MAX_BYTES: usize = 256 << 10;

/// Questions, and where their answers go, in order.
pub(super) struct Batch<P, R> {
    op: Op,
    len: usize,
    push: P,
    read: R,
    asked: usize,
    answered: usize,
    /// What the first question that had no answer came to. Nothing is asked behind it.
    failed: Option<Unanswered>,
}

/// Puts the question at a position.
pub(super) trait Put: Fn(usize, &mut Vec<u8>) {}
/// Takes the answer at a position.
pub(super) trait Take: FnMut(usize, Answer<'_>) -> Result<(), Unanswered> {}

impl<P: Fn(usize, &mut Vec<u8>)> Put for P {}
impl<R: FnMut(usize, Answer<'_>) -> Result<(), Unanswered>> Take for R {}

/// A batch of one question.
pub(super) fn one<Q: Question>(
    question: &Q,
    mut read: impl FnMut(Answer<'_>) -> Result<(), Unanswered>,
) -> Batch<impl Put, impl Take> {
    let push = |_, requests: &mut Vec<u8>| question.push(requests);
    Batch::new(question.op(), 1, push, move |_, answer: Answer<'_>| read(answer))
}

/// The same question about each of many keys, all of which are checked first.
pub(super) fn of_keys<'k, K, Q>(
    keys: &[K],
    mut read: impl FnMut(usize, Q, Answer<'_>) -> Result<(), Unanswered>,
) -> Result<Batch<impl Put, impl Take>, ClientError>
where
    K: Into<Key<'k>> + Copy,
    Q: OfKey<'k>,
{
    for key in keys {
        check_len((*key).into(), 1)?;
    }
    let question = |position: usize| Q::of(keys[position].into());
    let push = move |position, requests: &mut Vec<u8>| question(position).push(requests);
    let read = move |position, answer: Answer<'_>| read(position, question(position), answer);
    Ok(Batch::new(Q::OP, keys.len(), push, read))
}

impl<P: Put, R: Take> Batch<P, R> {
    fn new(op: Op, len: usize, push: P, read: R) -> Self {
        Batch { op, len, push, read, asked: 0, answered: 0, failed: None }
    }

    /// Whether it can be asked twice: looking does no harm, doing may.
    pub(super) fn is_idempotent(&self) -> bool {
        !matches!(self.op, Op::Reload | Op::Rollback)
    }

    /// On a new connection: what was asked and not answered is asked again.
    pub(super) fn ask_again(&mut self) {
        self.asked = self.answered;
    }

    /// Whether all that was asked is answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answered == self.asked
    }

    /// Whether nothing more is to be asked.
    pub(super) fn is_asked(&self) -> bool {
        !self.has_more()
    }

    /// Puts more questions, if half of those that may be under way are answered.
    pub(super) fn fill(&mut self, requests: &mut Vec<u8>) {
        if self.asked - self.answered > IN_FLIGHT_MAX / 2 {
            return;
        }
        while self.has_more() && self.asked - self.answered < IN_FLIGHT_MAX && requests.len() < REQUESTS_MAX_BYTES {
            (self.push)(self.asked, requests);
            self.asked += 1;
        }
    }

    /// Hands on the answers that have come whole.
    pub(super) fn take(&mut self, reader: &mut AnswerReader) -> Result<(), Violation> {
        while self.answered < self.asked {
            let Some(answer) = reader.next(self.op)? else { break };
            if self.failed.is_none() {
                match (self.read)(self.answered, answer) {
                    Ok(()) => {}
                    Err(Unanswered::Violation(violation)) => return Err(violation),
                    Err(error) => self.failed = Some(error),
                }
            }
            self.answered += 1;
        }
        Ok(())
    }

    /// What it came to when it is over.
    pub(super) fn outcome(self) -> Result<(), Unanswered> {
        self.failed.map_or(Ok(()), Err)
    }

    fn has_more(&self) -> bool {
        self.asked < self.len && self.failed.is_none()
    }
}
