//! The client for tasks on tokio.

use std::path::PathBuf;

use super::async_connection::AsyncConnection;
use super::options::Options;

/// A connection to a server's Unix socket, for tasks on tokio.
///
/// This client has the methods, time-outs, retries, and errors of [`Client`](super::Client). A client processes one
/// call at a time; concurrent tasks share an [`AsyncPool`](super::AsyncPool). A client works only on the runtime on
/// which it connected. If the future of a call is dropped before the call ends, the connection is closed and the next
/// call reconnects.
///
/// # Panics
/// All calls panic outside a tokio runtime with I/O and time enabled.
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
    pub(super) path: PathBuf,
    pub(super) options: Options,
    /// The open connection, if any. Each call takes the connection out and puts it back only after success.
    pub(super) connection: Option<AsyncConnection>,
}
