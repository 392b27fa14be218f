//! The client on tokio.
//!
//! In: keys. Out: answers, in time or not at all. It waits where [`Client`](super::Client)'s
//! thread sleeps, and shares everything else with it.

use std::io::ErrorKind::WouldBlock;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout_at};

use super::async_rows::AsyncRows;
use super::batch::{self, Batch, Put, Take};
use super::error::{ClientError, Phase};
use super::info::Info;
use super::key::{Bounds, KeyRange};
use super::link::{Fault, Link};
use super::options::Options;
use super::page::Page;
use super::question::{
    AboutServer, Ceiling, Count, Exists, Floor, Get, Outermost, PageOf, Ping, Question, Reload, Rollback, Row,
    check_bounds, prefix_range,
};
use super::retry::{Deadline, Retry};
use super::socket::connect_now;
#[cfg(feature = "pool")]
use super::socket::is_quiet;
use crate::format::KeyBounds;
use crate::format::key::{Key, KeyKind};

/// How long to wait before a server whose queue is full is tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// A connection to a server's Unix socket, for tasks of tokio.
///
/// It has the questions, time-outs, retries and errors of a [`Client`](super::Client),
/// and asks one at a time: tasks that ask at once share an
/// `AsyncPool` (feature `pool`). It is used in the
/// runtime that it was connected in, and so are the connections of a pool. A future that is dropped before its answer has come drops the
/// connection, and the next call connects anew.
///
/// # Example
/// ```no_run
/// # async fn example() -> Result<(), zero_kv::client::ClientError> {
/// use zero_kv::client::AsyncClient;
///
/// let mut client = AsyncClient::connect("/tmp/zero-kv.sock").await?;
/// let value = client.get(7).await?;
/// let values = client.get_many(&[7, 8, 9]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncClient {
    path: PathBuf,
    options: Options,
    /// Taken out for each exchange, and put back by those that leave it in step.
    connection: Option<Connection>,
}

impl AsyncClient {
    /// Connects to the socket at `path`, or if that begins with an `@`, to the one
    /// with the abstract name behind it.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::Refused`], [`ClientError::UntrustedServer`],
    /// [`ClientError::TimedOut`], [`ClientError::Io`]; at once if there is no server.
    ///
    /// # Panics
    /// Outside a runtime of tokio's with I/O and time enabled, as all of its calls.
    pub async fn connect(path: impl AsRef<Path>) -> Result<AsyncClient, ClientError> {
        AsyncClient::connect_with(path, &Options::default()).await
    }

    /// The same, with other time-outs and limits.
    ///
    /// # Errors
    /// Those of [`AsyncClient::connect`].
    pub async fn connect_with(path: impl AsRef<Path>, options: &Options) -> Result<AsyncClient, ClientError> {
        let mut client = AsyncClient::unconnected(path.as_ref(), options);
        client.connect_now().await?;
        Ok(client)
    }

    /// Connects, at once or not at all.
    pub(super) async fn connect_now(&mut self) -> Result<(), ClientError> {
        self.connection = Some(Connection::new(&self.path, &self.options, Deadline::after(None)).await?);
        Ok(())
    }

    /// The value of a key, or `None` if the key is not in the table.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, ClientError> {
        self.ask(Get::new(key)?).await
    }

    /// Hands on the value of a key where it was received to, without a copy.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_with<'k, T>(
        &mut self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, ClientError> {
        let get = Get::new(key)?;
        let (mut visit, mut visited) = (Some(visit), None);
        self.exchange(batch::one(&get, |answer| {
            let value = get.read_borrowed(answer)?;
            visited = visit.take().map(|visit| visit(value));
            Ok(())
        }))
        .await?;
        Ok(visited.expect("an exchange that ends well has one answer"))
    }

    /// The values of many keys, in their order. The questions are pipelined: it takes
    /// one round trip for hundreds of them.
    ///
    /// # Errors
    /// [`ClientError`]: if a key is answered with an error, all of it fails with it.
    pub async fn get_many<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec))).await?;
        Ok(values)
    }

    /// Hands on the values of many keys, in their order, each with the key's position
    /// in `keys`, where they were received to.
    ///
    /// # Errors
    /// [`ClientError`]: if a key is answered with an error, the values before it were
    /// handed on and none is behind it.
    pub async fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ClientError> {
        self.exchange(batch::of_keys(keys, |position, get: Get<'k>, answer| {
            visit(position, get.read_borrowed(answer)?);
            Ok(())
        })?)
        .await
    }

    /// Whether a key is in the table. The value is neither read nor checked.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn exists<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
        self.ask(Exists::new(key)?).await
    }

    /// Whether each of many keys is in the table, like [`AsyncClient::get_many`].
    ///
    /// # Errors
    /// Those of [`AsyncClient::get_many`].
    pub async fn exists_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError> {
        let mut are_there = Vec::with_capacity(keys.len());
        self.exchange(batch::of_keys(keys, |_, exists: Exists<'k>, answer| {
            are_there.push(exists.read(answer)?);
            Ok(())
        })?)
        .await?;
        Ok(are_there)
    }

    /// The row with the largest key that is not above `key`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn floor<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        self.ask(Floor::new(key)?).await
    }

    /// The row with the smallest key that is not below `key`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ceiling<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        self.ask(Ceiling::new(key)?).await
    }

    /// The row with the smallest key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn first(&mut self) -> Result<Option<Row>, ClientError> {
        self.ask(Outermost { last: false }).await
    }

    /// The row with the largest key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn last(&mut self) -> Result<Option<Row>, ClientError> {
        self.ask(Outermost { last: true }).await
    }

    /// All rows, in key order, from either end.
    pub fn rows(&mut self) -> AsyncRows<'_> {
        AsyncRows::new(self, KeyRange::from(Bounds::ALL))
    }

    /// The rows whose keys lie in a range, in key order, from either end. Nothing
    /// is asked before the first is wanted; then the server is asked for a page at
    /// a time. A range that ends before it begins has none.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`], [`ClientError::MixedKeys`]; an end may be empty.
    pub fn range<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<AsyncRows<'_>, ClientError> {
        let range = KeyRange::from(check_bounds(&range)?);
        Ok(AsyncRows::new(self, range))
    }

    /// The rows whose keys begin with these bytes, in key order, from either end.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`].
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<AsyncRows<'_>, ClientError> {
        let range = prefix_range(prefix.as_ref())?;
        Ok(AsyncRows::new(self, range))
    }

    /// The first rows of a range: at most so many, or as many as a page holds if
    /// that is 0. [`Page::rest`] is what to ask for next, on this connection or
    /// another.
    ///
    /// # Errors
    /// [`ClientError`]; an end may be empty.
    pub async fn first_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        self.ask(PageOf::first(range, limit_rows)?).await
    }

    /// The last rows of a range, in key order all the same.
    ///
    /// # Errors
    /// Those of [`AsyncClient::first_page`].
    pub async fn last_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        self.ask(PageOf::last(range, limit_rows)?).await
    }

    /// How many keys lie in a range. No row is sent.
    ///
    /// # Errors
    /// Those of [`AsyncClient::first_page`].
    pub async fn count<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<u64, ClientError> {
        self.ask(Count::new(range)?).await
    }

    /// How many keys begin with these bytes.
    ///
    /// # Errors
    /// Those of [`AsyncClient::first_page`].
    pub async fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        self.ask(Count::new(prefix_range(prefix.as_ref())?.bounds())?).await
    }

    /// What the keys of the table are. Asks for the number of keys from 0 on, and
    /// then of those from the least of bytes on: one of them is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn key_kind(&mut self) -> Result<KeyKind, ClientError> {
        for kind in [KeyKind::U64, KeyKind::Bytes] {
            match self.ask(Count::all_of(kind)).await {
                Ok(_) => return Ok(kind),
                Err(ClientError::Server { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::of_no_kind(&self.path))
    }

    /// Whether the server answers, whatever it serves.
    ///
    /// # Errors
    /// [`ClientError::Server`] by a server that does not know the question, and
    /// those of [`AsyncClient::get`].
    pub async fn ping(&mut self) -> Result<(), ClientError> {
        self.ask(Ping).await
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// [`ClientError::Server`] by a server that does not know the question, and
    /// those of [`AsyncClient::get`].
    pub async fn info(&mut self) -> Result<Info, ClientError> {
        self.ask(AboutServer).await
    }

    /// Has the server look at its file, and serve it if it is another and good.
    /// The number of the attempt: [`AsyncClient::info`] tells, as `reload_done`, when it
    /// is over, and as `reload_last` how it went.
    ///
    /// # Errors
    /// [`ClientError::Server`] if this user may not ask for it, and those of
    /// [`AsyncClient::get`]. It is never asked for twice.
    pub async fn reload(&mut self) -> Result<u64, ClientError> {
        self.ask(Reload).await
    }

    /// Has the server go back to the generation before. The number of the attempt,
    /// as with [`AsyncClient::reload`].
    ///
    /// # Errors
    /// Those of [`AsyncClient::reload`].
    pub async fn rollback(&mut self) -> Result<u64, ClientError> {
        self.ask(Rollback).await
    }

    /// One question and its answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ask<Q: Question>(&mut self, question: Q) -> Result<Q::Answer, ClientError> {
        let mut answer = None;
        self.exchange(batch::one(&question, |said| {
            answer = Some(question.read(said)?);
            Ok(())
        }))
        .await?;
        Ok(answer.expect("an exchange that ends well has one answer"))
    }

    /// One that connects when it is first asked.
    pub(super) fn unconnected(path: &Path, options: &Options) -> Self {
        AsyncClient { path: path.to_path_buf(), options: options.clone(), connection: None }
    }

    /// Whether it has a connection, which is then in step.
    #[cfg(feature = "pool")]
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Drops a connection that the server has closed, or on which bytes came that
    /// nobody asked for.
    #[cfg(feature = "pool")]
    pub(super) fn drop_if_closed(&mut self) {
        self.connection.take_if(|connection| !is_quiet(&connection.stream));
    }

    /// Asks all of a batch, on a new connection if the one there is fails.
    async fn exchange<P: Put, R: Take>(&mut self, mut batch: Batch<P, R>) -> Result<(), ClientError> {
        let deadline = Deadline::after(self.options.call_timeout);
        let mut retry = Retry::new(&self.options, batch.is_idempotent());
        while let Err(error) = self.attempt(&mut batch, deadline).await {
            match retry.after(&error, deadline) {
                Some(pause) => sleep(pause).await,
                None => return Err(error),
            }
        }
        batch.outcome().map_err(|unanswered| ClientError::unanswered(&self.path, unanswered))
    }

    /// Asks what is left of a batch on one connection. Who leaves early, by an error,
    /// a panic, or by being dropped, has dropped it.
    async fn attempt<P: Put, R: Take>(
        &mut self,
        batch: &mut Batch<P, R>,
        deadline: Deadline,
    ) -> Result<(), ClientError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::new(&self.path, &self.options, deadline).await?,
        };
        batch.ask_again();
        connection.exchange(&self.path, batch, deadline).await?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// A socket, and what is under way on it.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    link: Link,
}

impl Connection {
    async fn new(path: &Path, options: &Options, call: Deadline) -> Result<Self, ClientError> {
        let timeout = call.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let deadline = Deadline::after(Some(timeout));
        loop {
            if let Some(socket) = connect_now(path, options.server_user.as_deref())? {
                let stream = UnixStream::from_std(socket.into());
                let stream = stream.map_err(|error| ClientError::of_connect(path, error))?;
                return Ok(Connection { stream, link: Link::new(options) });
            }
            // The system tells nobody when there is room in the queue.
            match deadline.left() {
                Some(left) if left.is_zero() => {
                    let after = deadline.started.elapsed();
                    return Err(ClientError::TimedOut { path: path.to_path_buf(), phase: Phase::Connect, after });
                }
                left => sleep(left.map_or(QUEUE_PAUSE, |left| left.min(QUEUE_PAUSE))).await,
            }
        }
    }

    async fn exchange<P: Put, R: Take>(
        &mut self,
        path: &Path,
        batch: &mut Batch<P, R>,
        deadline: Deadline,
    ) -> Result<(), ClientError> {
        while !self.link.turn(batch).map_err(|violation| ClientError::violation(path, violation))? {
            let moved = match self.send() {
                Ok(()) => self.receive(deadline).await,
                Err(fault) => Err(fault),
            };
            moved.map_err(|fault| self.link.failed(path, fault, deadline))?;
        }
        Ok(())
    }

    /// Sends what the socket takes at once.
    fn send(&mut self) -> Result<(), Fault> {
        while !self.link.unsent().is_empty() {
            match self.stream.try_write(self.link.unsent()) {
                Ok(len_bytes) => self.link.sent(len_bytes),
                Err(error) if error.kind() == WouldBlock => break,
                Err(error) => return Err(Fault::System(Phase::Send, error)),
            }
        }
        Ok(())
    }

    /// Receives what has come, or waits for it; as long as something is unsent, also
    /// for room to send it.
    async fn receive(&mut self, deadline: Deadline) -> Result<(), Fault> {
        let phase = self.link.phase();
        // A peer whose bytes drip in never lets the wait itself end.
        if deadline.left().is_some_and(|left| left.is_zero()) {
            return Err(Fault::TimedOut(phase));
        }
        let interest = match phase {
            Phase::Send => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::READABLE,
        };
        let ready = match deadline.at() {
            Some(at) => timeout_at(at.into(), self.stream.ready(interest)).await,
            None => Ok(self.stream.ready(interest).await),
        };
        match ready {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Fault::System(phase, error)),
            Err(_) => return Err(Fault::TimedOut(phase)),
        }
        match self.stream.try_read(self.link.room()) {
            Ok(0) => Err(Fault::Closed),
            Ok(len_bytes) => {
                self.link.received(len_bytes);
                Ok(())
            }
            Err(error) if error.kind() == WouldBlock => Ok(()),
            Err(error) => Err(Fault::System(phase, error)),
        }
    }
}
