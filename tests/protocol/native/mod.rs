//! The native protocol: compares the bytes that `kv_store` sends with those of a reference server.

mod changed;
mod columns;
mod document;
mod long;
mod mutations;
mod ordered;
mod short;

use crate::helpers::frames::answer;
use crate::helpers::reference_server::{Reference, number};
use crate::helpers::servers::Server;

impl Reference {
    fn serve(&self) -> Server {
        Server::start(&self.db(), &self.socket())
    }

    /// Returns the expected responses to a stream of requests, the last of which may be incomplete, and whether the
    /// server closes the connection before the end of the stream. Responses that describe the server itself are copied
    /// from `found` if they have a valid form.
    fn answers_given(&self, stream: &[u8], found: &[u8]) -> (Vec<u8>, bool) {
        let (each, closes) = self.each_answer(stream);
        let mut answers = Vec::new();
        for expected in each {
            let about_server = || about_server(found.get(answers.len()..).unwrap_or_default());
            let expected = expected.unwrap_or_else(about_server);
            answers.extend(expected);
        }
        (answers, closes)
    }

    /// Returns the expected responses to a stream without requests about the server itself, and whether the server
    /// closes the connection.
    fn answers(&self, stream: &[u8]) -> (Vec<u8>, bool) {
        self.answers_given(stream, &[])
    }
}

/// Returns the first response in `found`, which describes the server itself, after a check of its form: a text, the
/// number of an attempt, the description of its table, or an error.
fn about_server(found: &[u8]) -> Vec<u8> {
    let (Some(status), Some(length)) = (found.get(..4), found.get(4..8)) else { return answer(0, b"") };
    let (status, length) = (number(status), number(length) as usize);
    let said = found.get(8..8 + length).unwrap_or_default();
    let is_text = said.ends_with(b"\n") && str::from_utf8(said).is_ok();
    let is_answer = status == 0 && (is_text || [8, 32].contains(&length)) || status == 2 && length == 0;
    assert!(is_answer, "status {status}, {length} bytes: {}", said.escape_ascii());
    answer(status, said)
}
