//! Clients of a running server.
//!
//! In: keys. Out: the values and rows of the server's responses, after checks. [`crate::protocol`] defines the bytes.
//! Only the module `direct` reads a file, whose descriptor the server sends.
//!
//! [`Client`] has the methods of a [`Store`](crate::Store) and waits for each response; `AsyncClient` has the same
//! methods for tasks. Threads share connections in a [`Pool`], tasks in an `AsyncPool`. The modules:
//!
//! - `methods` implements both clients. `blocking` and `asynchronous` define the two types; `blocking_connection` and
//!   `async_connection` define their connections.
//! - `request` encodes each request and decodes its response. `row_page` checks a page of rows. `range_cursor` is a
//!   position in a range that is read page by page. `rows` has the iterators over a range.
//! - `batch` keeps many requests in flight. `pipeline` has the unsent requests and the received bytes of a connection.
//!   `retry` decides whether a call is retried.
//! - `socket` connects. `server_user` checks the server's user. `exposure` checks whether other users could replace the
//!   socket.

#[cfg(feature = "tokio")]
mod async_connection;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod blocking;
mod blocking_connection;
mod direct;
mod error;
mod exposure;
mod info;
mod key;
mod methods;
mod options;
mod pipeline;
mod pool;
mod range_cursor;
pub mod request;
mod retry;
mod row_page;
mod rows;
mod server_user;
mod socket;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncClient;
pub use blocking::Client;
pub use direct::{Direct, DirectOptions, DirectSnapshot};
pub use error::{ClientError, Phase, Refusal};
pub use info::Info;
pub use key::{KeyRange, OwnedKey};
pub use options::{Options, PoolOptions};
#[cfg(feature = "tokio")]
pub use pool::AsyncPool;
pub use pool::{Pool, Pooled};
pub use request::{Row, TypedRequest};
pub use row_page::RowPage;
#[cfg(feature = "tokio")]
pub use rows::AsyncClientRows;
pub use rows::ClientRows;
pub use server_user::check_server_user;

pub use crate::protocol::reader::ResponsePart;
