//! Clients of a running server.
//!
//! In: keys. Out: checked values and rows from the server's responses. [`crate::protocol`] defines the encoded
//! messages. Only the module `direct` reads a file: the server sends the file's descriptor.
//!
//! [`Client`] has the methods of a [`Store`](crate::Store) and waits for each response; `AsyncClient` has the same
//! methods for tasks. Threads share connections in a [`Pool`]; tasks share connections in an `AsyncPool`. The modules:
//!
//! - `methods` implements both clients. `blocking` and `asynchronous` define the two types; `blocking_connection` and
//!   `async_connection` define their connections.
//! - `request` encodes each request and decodes its response. `row_page` checks a page of rows. `range_cursor` keeps
//!   the position of an iteration that requests rows page by page. `rows` defines the iterators.
//! - `batch` keeps many requests in flight. `pipeline` holds a connection's unsent requests and received bytes. `retry`
//!   decides whether a call is retried.
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
mod login;
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
pub use login::Login;
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
