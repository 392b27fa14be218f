//! What a protocol tells the connection that handed it bytes.

/// A pass over what a client has sent: some of it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Bytes whose requests are answered, or have no answer.
    pub(super) taken_bytes: usize,
    /// What comes next, once the answers are sent.
    pub(super) then: Then,
}

/// What comes after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// More input: what is left is not a whole request.
    Read,
    /// Another pass over what is left.
    Answer,
    /// The same, but there is much to do: other connections come first.
    Yield,
    /// More input, or another state of what is served than this: until then, what is left
    /// is an Open that waits for it.
    Wait(u64),
    /// The end of the connection.
    Close,
}
