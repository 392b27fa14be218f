//! What docs/PROTOCOL.md promises, held against kv_store by raw sockets.

#![cfg(feature = "cli")]

#[path = "../common/mod.rs"]
mod common;

mod changed;
mod document;
mod long;
mod mutations;
mod ordered;
mod reference;
mod short;

use common::Server;
use reference::Reference;

impl Reference {
    fn serve(&self) -> Server {
        Server::start(&self.db(), &self.socket())
    }

    /// All answers to a stream that asks the server nothing about itself, and whether it closes the connection.
    fn answers(&self, stream: &[u8]) -> (Vec<u8>, bool) {
        let (answers, closes) = self.each_answer(stream);
        (answers.into_iter().flat_map(|answer| answer.expect("a question about the table")).collect(), closes)
    }
}
