//! A connection to a running server.
//!
//! In: keys. Out: values and rows that the server sent, checked. It knows no file, but
//! for `direct`, which has the server hand its own over.
//! What bytes mean is the business of [`crate::protocol`].
//!
//! [`Client`] has the same methods as a [`Store`](crate::Store), and waits for each response. Threads share connections
//! in a `pool`, and tasks in an `async_pool`. The other modules:
//!
//! - `blocking` and, on tokio, `asynchronous` send and receive. They share everything that does neither: `batch` keeps
//!   many requests in flight, `link` is a connection without its socket, `retry` decides whether a call is repeated.
//! - `socket` connects, and `server_user` checks who runs the server, by `exposure` also whether somebody else could.
//! - `question` encodes each request and decodes its response, `page` checks the rows of one, `span` is what is left of a
//!   range that is read page by page, and `info` is what a server reports about itself.

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
mod exposure;
mod info;
mod key;
mod link;
mod options;
mod page;
mod pool;
pub mod question;
mod retry;
mod rows;
mod server_user;
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
pub use server_user::check_server_user;

pub use crate::protocol::reader::AnswerPart;
