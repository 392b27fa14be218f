//! Clients of a running server.
//!
//! In: keys. Out: checked values and rows from the server's responses. [`crate::protocol`] defines the encoded
//! messages. Only the module `direct` reads the table's file, through a descriptor that the server sends.
//!
//! [`Client`] has the methods of a [`Store`](crate::Store) and waits for each response; `AsyncClient` has the same
//! methods for tasks. Threads share connections in a [`Pool`]; tasks share connections in an `AsyncPool`. The modules:
//!
//! - `blocking` and `asynchronous` define the two clients and their connections. `methods` implements both clients, and
//!   `column_methods` their lookups of columns. `columns` defines the rows that lookups of columns return.
//! - `cluster` is the client of a cluster, which has a connection to each node.
//! - `request` encodes each request and decodes its response. `rows` defines iterators, which request rows page by
//!   page.
//! - `cache` keeps values of hot keys, and `cached_methods` look keys up in it first.
//! - `batch` keeps many requests in flight. `retry` decides whether a call is retried.
//! - `address` parses addresses. `login` holds a user and the source of the password. `target` combines the address,
//!   the login, and the options; all connections of a client or pool have one target.
//! - `socket` connects to Unix sockets and TCP ports. `transport` holds a connection's unsent requests and received
//!   bytes, and moves them through a session of `tls` if the connection uses TLS. `server_user` checks the server's
//!   user, and whether other users could replace the socket.

mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod blocking;
mod cache;
mod cached_methods;
#[cfg(feature = "cluster")]
mod cluster;
mod column_methods;
mod columns;
mod direct;
mod error;
mod login;
mod methods;
mod options;
mod pool;
#[doc(hidden)]
pub mod request;
mod retry;
mod rows;
mod server_user;
mod socket;
mod target;
mod tls;
mod transport;

pub use address::{Address, SOCKET_VARIABLE, default_address};
#[doc(hidden)]
pub use address::{AddressError, TcpAddress};
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncClient;
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use asynchronous::AsyncStream;
pub use blocking::Client;
pub use cache::Cache;
#[doc(hidden)]
pub use cache::CacheInState;
#[cfg(feature = "cluster")]
pub use cluster::{ClusterClient, ClusterOptions, ClusterRows};
#[cfg(feature = "cluster")]
#[doc(hidden)]
pub use cluster::{ClusterPage, NearestRow};
pub use columns::ProjectedRows;
#[doc(hidden)]
pub use columns::{ReceivedValues, RowsOrValues};
pub use direct::{Direct, DirectOptions, DirectSnapshot};
pub use error::{ClientError, Phase};
pub use login::Login;
pub use options::{Options, PoolOptions, TlsOptions};
#[cfg(feature = "tokio")]
pub use pool::AsyncPool;
pub use pool::{Pool, Pooled};
pub use request::Info;
#[doc(hidden)]
pub use request::{KeyRange, OwnedKey, RangeRow, Row, RowPage, TypedRequest};
pub use rows::ClientRows;
#[doc(hidden)]
pub use server_user::check_server_user;
#[doc(hidden)]
pub use target::check_options;

#[doc(hidden)]
pub use crate::protocol::reader::ResponsePart;
