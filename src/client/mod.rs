//! Clients of a running server.
//!
//! In: keys. Out: checked values and rows from the server's responses. [`crate::protocol`] defines the encoded
//! messages. Only the module `direct` reads the table's file, through a descriptor that the server sends.
//!
//! [`Client`] has the methods of a [`Store`](crate::Store) and waits for each response; `AsyncClient` has the same
//! methods for tasks. Threads share connections in a [`Pool`]; tasks share connections in an `AsyncPool`. The modules:
//!
//! - `methods` implements both clients, `column_methods` their lookups of columns, and `server_methods` their requests
//!   about the server. `columns` defines the rows that lookups of columns return. `blocking` and `asynchronous` define the two types; `blocking_connection` and
//!   `async_connection` define their connections. `async_stream` is a connection as a stream of bytes.
//! - `cluster` is the client of a cluster, which has a connection to each node.
//! - `request` encodes each request and decodes its response. `row_page` checks a page of rows. `range_cursor` keeps
//!   the position of an iteration that requests rows page by page. `rows` defines the iterators.
//! - `batch` keeps many requests in flight. `pipeline` holds a connection's unsent requests and received bytes. `retry`
//!   decides whether a call is retried.
//! - `address` parses addresses. `login` holds a user and the source of the password; `environment` reads environment
//!   variables. `target` combines the address, the login, and the options; all connections of a client or pool have one
//!   target.
//! - `socket` connects to Unix sockets, `tcp` to TCP ports. `transport` moves bytes between a pipeline and a socket,
//!   through a session of `tls` if the connection uses TLS. `server_user` checks the server's user. `exposure` checks
//!   whether other users could replace the socket.

mod address;
#[cfg(feature = "tokio")]
mod async_connection;
#[cfg(feature = "tokio")]
mod async_stream;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod blocking;
mod blocking_connection;
#[cfg(feature = "cluster")]
mod cluster;
mod column_methods;
mod columns;
mod direct;
mod environment;
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
#[doc(hidden)]
pub mod request;
mod retry;
mod row_page;
mod rows;
mod server_methods;
mod server_user;
mod socket;
mod target;
mod tcp;
mod tls;
mod transport;

#[doc(hidden)]
pub use address::TcpAddress;
pub use address::{Address, AddressError};
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use async_stream::AsyncStream;
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncClient;
pub use blocking::Client;
#[cfg(feature = "cluster")]
pub use cluster::{ClusterClient, ClusterOptions, ClusterRows};
#[cfg(feature = "cluster")]
#[doc(hidden)]
pub use cluster::{ClusterPage, NearestRow};
pub use columns::ProjectedRows;
#[doc(hidden)]
pub use columns::{ReceivedValues, RowsOrValues};
pub use direct::{Direct, DirectOptions, DirectSnapshot};
pub use environment::{SOCKET_VARIABLE, default_address};
pub use error::{ClientError, Phase};
pub use info::Info;
#[doc(hidden)]
pub use key::{KeyRange, OwnedKey};
pub use login::Login;
pub use options::{Options, PoolOptions, TlsOptions};
#[cfg(feature = "tokio")]
pub use pool::AsyncPool;
pub use pool::{Pool, Pooled};
#[doc(hidden)]
pub use request::{Row, TypedRequest};
#[doc(hidden)]
pub use row_page::RowPage;
pub use rows::ClientRows;
#[doc(hidden)]
pub use server_user::check_server_user;
#[doc(hidden)]
pub use target::check_options;

#[doc(hidden)]
pub use crate::protocol::reader::ResponsePart;
