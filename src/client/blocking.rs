//! The client for threads, which blocks the calling thread.

use std::sync::Arc;

use super::blocking_connection::BlockingConnection;
use super::columns::ColumnsCache;
use super::login::Login;
use super::retry::Deadline;
use super::target::Target;

/// A blocking connection to a server.
///
/// Each call ends within [`Options::call_timeout`](super::Options::call_timeout). If the connection fails during a
/// call, for example because the server restarted or closed an idle connection, the call is retried on a new
/// connection; reloads and rollbacks are never retried. After an error that leaves the connection in an unknown state,
/// the client closes the connection, and the next call reconnects. A call therefore never receives the response of an
/// earlier call.
///
/// # Examples
/// Keys are numbers or bytes:
/// ```no_run
/// use zero_kv::client::Client;
///
/// let mut client = Client::connect("/tmp/zero-kv.sock")?;
/// match client.get(7)? {
///     Some(value) => println!("{} bytes", value.len()),
///     None => println!("not in the table"),
/// }
/// let mut names = Client::connect("/tmp/names.sock")?;
/// if let Some((key, value)) = names.floor("seven")? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// The values of many keys at once, copied or borrowed:
/// ```no_run
/// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
/// let values = client.get_many(&[7, 8, 9])?;
/// assert_eq!(values.len(), 3);
/// let mut total_bytes = 0;
/// client.get_many_with(&["ant", "bee"], |_, value| total_bytes += value.map_or(0, <[u8]>::len))?;
/// let sum = client.get_with(7, |value| value.map(|bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()))?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Rows in key order, one by one or page by page:
/// ```no_run
/// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
/// for row in client.range("ant".."cat")?.rev() {
///     let (key, value) = row?;
///     println!("{key}: {} bytes", value.len());
/// }
/// let mut page = client.first_page(1000_u64.., 100)?;
/// while let Some(rest) = page.rest() {
///     page = client.first_page(rest.bounds(), 100)?;
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Over TCP with TLS, as a user whose password is in the environment or in a file (see [`Login`]):
/// ```no_run
/// use zero_kv::client::{Client, Login, Options};
///
/// let mut client = Client::connect("zkv+tls://reader@db.example:6380")?;
/// let login = Login::with_password_file("reader", "/run/secrets/zero-kv");
/// let options = Options { login: Some(login), ..Options::default() };
/// let mut client = Client::connect_with("zkv+tls://db.example:6380", &options)?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Without a server, connecting fails at once:
/// ```
/// use zero_kv::client::Client;
///
/// let error = Client::connect("no/such/zero-kv.sock").unwrap_err();
/// assert!(error.to_string().starts_with("no/such/zero-kv.sock: cannot connect: "));
/// assert!(error.to_string().ends_with("is kv_store running, and on this socket?"));
/// ```
#[derive(Debug)]
pub struct Client {
    pub(super) target: Arc<Target>,
    /// The login of the last successful call of `authenticate`. It replaces the login of the target.
    pub(super) login: Option<Login>,
    /// The schema of the table, and the columns that were requested last.
    pub(super) columns: ColumnsCache,
    /// The end of all calls, if they are parts of a call to a cluster.
    pub(super) call_end: Option<Deadline>,
    /// The open connection, if any. Each call takes the connection out and puts it back only after success.
    pub(super) connection: Option<BlockingConnection>,
}
