//! The client for tasks on tokio.

use std::ffi::OsStr;
use std::sync::Arc;

use super::async_connection::AsyncConnection;
use super::async_stream::AsyncStream;
use super::columns::ColumnsCache;
use super::error::ClientError;
use super::login::Login;
use super::options::Options;
use super::retry::Deadline;
use super::target::Target;

/// A connection to a server, for tasks on tokio.
///
/// This client has the methods, time-outs, retries, and errors of [`Client`](super::Client). A client processes one
/// call at a time; concurrent tasks share an [`AsyncPool`](super::AsyncPool). A client works only on the runtime on
/// which it connected. If the future of a call is dropped before the call ends, the connection is closed and the next
/// call reconnects.
///
/// # Panics
/// All calls panic unless they run in a tokio runtime with I/O and time enabled.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), zero_kv::client::ClientError> {
/// use zero_kv::client::AsyncClient;
///
/// let mut client = AsyncClient::connect("/tmp/zero-kv.sock").await?;
/// let value = client.get(7).await?;
/// let values = client.get_many(&[7, 8, 9]).await?;
/// let mut rows = client.range("ant".."cat")?;
/// while let Some((key, value)) = rows.next().await? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncClient {
    pub(super) target: Arc<Target>,
    /// The login of the last successful call of `authenticate`. It replaces the login of the target.
    pub(super) login: Option<Login>,
    /// The schema of the table, and the columns that were requested last.
    pub(super) columns: ColumnsCache,
    /// The end of all calls, if they are parts of a call to a cluster.
    pub(super) call_end: Option<Deadline>,
    /// The open connection, if any. Each call takes the connection out and puts it back only after success.
    pub(super) connection: Option<AsyncConnection>,
}

impl AsyncStream {
    /// Connects like [`AsyncClient::connect_with`], and logs in if the address or the options name a user. A login uses
    /// the native protocol, so a connection that has logged in can be used only with this protocol.
    ///
    /// # Errors
    /// The errors of [`AsyncClient::connect_with`].
    pub async fn connect_with(address: impl AsRef<OsStr>, options: &Options) -> Result<AsyncStream, ClientError> {
        let client = AsyncClient::connect_with(address, options).await?;
        Ok(client.connection.expect("a client that has just connected").into_stream())
    }
}
