//! A connection to a running server.
//!
//! In: keys. Out: values and rows that the server sent, checked. It knows no file, but
//! for `direct`, which has the server hand its own over.
//! What bytes mean is the business of [`crate::protocol`].
//!
//! [`Client`] has the questions that a [`Store`](crate::Store) answers, by the
//! same names, and waits for each answer. `question` has the bytes of each
//! question and what its answer means, `page` checks the rows of one, `span` is
//! what is left of a range that is asked for page by page, `info` is what a server
//! says of itself. `batch` keeps many questions in flight, `link` is a connection
//! without its socket, `retry` says whether a call is made again: none of them
//! waits or sends, so that what does is little: `blocking` and, on tokio, `asynchronous`. Threads share a `pool` of them, and tasks
//! an `async_pool`.

#[cfg(feature = "pool")]
mod async_pool;
#[cfg(feature = "tokio")]
mod async_rows;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod blocking;
mod connection;
mod direct;
mod error;
mod info;
mod key;
mod link;
mod options;
mod page;
mod pool;
pub mod question;
mod retry;
mod rows;
mod socket;
mod span;

#[cfg(feature = "pool")]
pub use async_pool::{AsyncPool, AsyncPooled};
#[cfg(feature = "tokio")]
pub use async_rows::AsyncRows;
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncClient;
pub use blocking::Client;
pub use direct::{Direct, DirectOptions, Snapshot};
pub use error::{ClientError, Phase, Refusal};
pub use info::Info;
pub use key::{KeyRange, OwnedKey};
pub use options::{Options, PoolOptions};
pub use page::Page;
pub use pool::{Pool, Pooled};
pub use question::{Question, Row};
pub use rows::Rows;

pub use crate::protocol::reader::AnswerPart;
