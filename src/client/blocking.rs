//! The client whose calling thread waits.
//!
//! In: keys. Out: answers, in time or not at all. Everything but sending,
//! receiving and waiting is the business of the other modules.

use std::path::{Path, PathBuf};
use std::thread;

use super::batch::{self, Batch, Put, Take};
use super::connection::Connection;
use super::error::ClientError;
use super::info::Info;
use super::key::{Bounds, KeyRange};
use super::options::Options;
use super::page::Page;
use super::question::{
    AboutServer, Ceiling, Count, Exists, Floor, Get, Outermost, PageOf, Ping, Question, Reload, Rollback, Row,
    check_bounds, prefix_range,
};
use super::retry::{Deadline, Retry};
use super::rows::Rows;
use crate::format::KeyBounds;
use crate::format::key::{Key, KeyKind};

/// A blocking connection to a server's Unix socket.
///
/// Each call ends in time: see [`Options`] for how long it may take. One whose
/// connection fails, because the server was restarted or closed a connection that
/// lay idle, is made once more on a new one. Behind every error that leaves the
/// connection in doubt it is dropped, and the next call connects anew, so an
/// answer is never taken for another question's.
///
/// # Example
/// ```no_run
/// use zero_kv::client::Client;
///
/// let mut client = Client::connect("/tmp/zero-kv.sock")?;
/// match client.get(7)? {
///     Some(value) => println!("{} bytes", value.len()),
///     None => println!("not in the table"),
/// }
/// // Another table's keys are bytes.
/// let mut client = Client::connect("/tmp/names.sock")?;
/// if let Some((key, value)) = client.floor("seven")? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    options: Options,
    /// Taken out for each exchange, and put back by those that leave it in step.
    connection: Option<Connection>,
}

impl Client {
    /// Connects to the socket at `path`, or if that begins with an `@`, to the one
    /// with the abstract name behind it.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::Refused`], [`ClientError::UntrustedServer`],
    /// [`ClientError::TimedOut`], [`ClientError::Io`]; at once if there is no server.
    ///
    /// # Example
    /// ```
    /// use zero_kv::client::Client;
    ///
    /// let error = Client::connect("no/such/zero-kv.sock").unwrap_err();
    /// assert!(error.to_string().starts_with("no/such/zero-kv.sock: cannot connect: "));
    /// assert!(error.to_string().ends_with("is kv_store running, and on this socket?"));
    /// ```
    pub fn connect(path: impl AsRef<Path>) -> Result<Client, ClientError> {
        Client::connect_with(path, &Options::default())
    }

    /// The same, with other time-outs and limits.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect_with(path: impl AsRef<Path>, options: &Options) -> Result<Client, ClientError> {
        let mut client = Client::unconnected(path.as_ref(), options);
        client.connection = Some(Connection::new(&client.path, options, Deadline::after(None))?);
        Ok(client)
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// The value of a key, or `None` if the key is not in the table.
    ///
    /// Memory for the value grows as its bytes arrive, up to
    /// [`Options::value_len_max_bytes`]; an answer that announces more is refused.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, ClientError> {
        self.ask(Get::new(key)?)
    }

    /// Hands on the value of a key where it was received to, without a copy.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let sum = client.get_with(7, |value| value.map(|bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()))?;
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn get_with<'k, T>(
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
        }))?;
        Ok(visited.expect("an exchange that ends well has one answer"))
    }

    /// The values of many keys, in their order. The questions are pipelined: it takes
    /// one round trip for hundreds of them.
    ///
    /// # Errors
    /// [`ClientError`]: if a key is answered with an error, all of it fails with it.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let values = client.get_many(&[7, 8, 9])?;
    /// assert_eq!(values.len(), 3);
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn get_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))?;
        Ok(values)
    }

    /// Hands on the values of many keys, in their order, each with the key's position
    /// in `keys`, where they were received to.
    ///
    /// # Errors
    /// [`ClientError`]: if a key is answered with an error, the values before it were
    /// handed on and none is behind it.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let mut total_bytes = 0;
    /// client.get_many_with(&["ant", "bee"], |_, value| total_bytes += value.map_or(0, <[u8]>::len))?;
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ClientError> {
        self.exchange(batch::of_keys(keys, |position, get: Get<'k>, answer| {
            visit(position, get.read_borrowed(answer)?);
            Ok(())
        })?)
    }

    /// Whether a key is in the table. The value is neither read nor checked.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn exists<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
        self.ask(Exists::new(key)?)
    }

    /// Whether each of many keys is in the table, like [`Client::get_many`].
    ///
    /// # Errors
    /// Those of [`Client::get_many`].
    pub fn exists_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError> {
        let mut are_there = Vec::with_capacity(keys.len());
        self.exchange(batch::of_keys(keys, |_, exists: Exists<'k>, answer| {
            are_there.push(exists.read(answer)?);
            Ok(())
        })?)?;
        Ok(are_there)
    }

    /// The row with the largest key that is not above `key`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn floor<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        self.ask(Floor::new(key)?)
    }

    /// The row with the smallest key that is not below `key`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ceiling<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
        self.ask(Ceiling::new(key)?)
    }

    /// The answers to [`Client::floor`] for many keys, in their order, pipelined like
    /// those of [`Client::get_many`].
    ///
    /// # Errors
    /// Those of [`Client::get_many`].
    pub fn floor_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Row>>, ClientError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.exchange(batch::of_keys(keys, |_, floor: Floor<'k>, answer| {
            rows.push(floor.read(answer)?);
            Ok(())
        })?)?;
        Ok(rows)
    }

    /// The answers to [`Client::ceiling`] for many keys, like [`Client::floor_many`].
    ///
    /// # Errors
    /// Those of [`Client::get_many`].
    pub fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Row>>, ClientError> {
        let mut rows = Vec::with_capacity(keys.len());
        self.exchange(batch::of_keys(keys, |_, ceiling: Ceiling<'k>, answer| {
            rows.push(ceiling.read(answer)?);
            Ok(())
        })?)?;
        Ok(rows)
    }

    /// The row with the smallest key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn first(&mut self) -> Result<Option<Row>, ClientError> {
        self.ask(Outermost { last: false })
    }

    /// The row with the largest key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn last(&mut self) -> Result<Option<Row>, ClientError> {
        self.ask(Outermost { last: true })
    }

    /// All rows, in key order, from either end.
    pub fn rows(&mut self) -> Rows<'_> {
        Rows::new(self, KeyRange::from(Bounds::ALL))
    }

    /// The rows whose keys lie in a range, in key order, from either end. Nothing
    /// is asked before the first is wanted; then the server is asked for a page at
    /// a time. A range that ends before it begins has none.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`], [`ClientError::MixedKeys`]; an end may be empty.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// for row in client.range("ant".."cat")?.rev() {
    ///     let (key, value) = row?;
    ///     println!("{key}: {} bytes", value.len());
    /// }
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn range<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<Rows<'_>, ClientError> {
        let range = KeyRange::from(check_bounds(&range)?);
        Ok(Rows::new(self, range))
    }

    /// The rows whose keys begin with these bytes, in key order, from either end.
    ///
    /// # Errors
    /// [`ClientError::KeyLen`].
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<Rows<'_>, ClientError> {
        let range = prefix_range(prefix.as_ref())?;
        Ok(Rows::new(self, range))
    }

    /// The first rows of a range: at most so many, or as many as a page holds if
    /// that is 0. [`Page::rest`] is what to ask for next, on this connection or
    /// another.
    ///
    /// # Errors
    /// [`ClientError`]; an end may be empty.
    ///
    /// # Example
    /// ```no_run
    /// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
    /// let mut page = client.first_page(1000_u64.., 100)?;
    /// while let Some(rest) = page.rest() {
    ///     page = client.first_page(rest.bounds(), 100)?;
    /// }
    /// # Ok::<(), zero_kv::client::ClientError>(())
    /// ```
    pub fn first_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        self.ask(PageOf::first(range, limit_rows)?)
    }

    /// The last rows of a range, in key order all the same.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn last_page<'k>(&mut self, range: impl KeyBounds<'k>, limit_rows: u32) -> Result<Page, ClientError> {
        self.ask(PageOf::last(range, limit_rows)?)
    }

    /// How many keys lie in a range. No row is sent.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn count<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<u64, ClientError> {
        self.ask(Count::new(range)?)
    }

    /// How many keys begin with these bytes.
    ///
    /// # Errors
    /// Those of [`Client::first_page`].
    pub fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        self.ask(Count::new(prefix_range(prefix.as_ref())?.bounds())?)
    }

    /// What the keys of the table are. Asks for the number of keys from 0 on, and
    /// then of those from the least of bytes on: one of them is an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn key_kind(&mut self) -> Result<KeyKind, ClientError> {
        for kind in [KeyKind::U64, KeyKind::Bytes] {
            match self.ask(Count::all_of(kind)) {
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
    /// those of [`Client::get`].
    pub fn ping(&mut self) -> Result<(), ClientError> {
        self.ask(Ping)
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// [`ClientError::Server`] by a server that does not know the question, and
    /// those of [`Client::get`].
    pub fn info(&mut self) -> Result<Info, ClientError> {
        self.ask(AboutServer)
    }

    /// Has the server look at its file, and serve it if it is another and good.
    /// The number of the attempt: [`Client::info`] tells, as `reload_done`, when it
    /// is over, and as `reload_last` how it went.
    ///
    /// # Errors
    /// [`ClientError::Server`] if this user may not ask for it, and those of
    /// [`Client::get`]. It is never asked for twice.
    pub fn reload(&mut self) -> Result<u64, ClientError> {
        self.ask(Reload)
    }

    /// Has the server go back to the generation before. The number of the attempt,
    /// as with [`Client::reload`].
    ///
    /// # Errors
    /// Those of [`Client::reload`].
    pub fn rollback(&mut self) -> Result<u64, ClientError> {
        self.ask(Rollback)
    }

    /// One question and its answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask<Q: Question>(&mut self, question: Q) -> Result<Q::Answer, ClientError> {
        let mut answer = None;
        self.exchange(batch::one(&question, |said| {
            answer = Some(question.read(said)?);
            Ok(())
        }))?;
        Ok(answer.expect("an exchange that ends well has one answer"))
    }

    /// One that connects when it is first asked.
    pub(super) fn unconnected(path: &Path, options: &Options) -> Self {
        Client { path: path.to_path_buf(), options: options.clone(), connection: None }
    }

    /// Whether it has a connection, which is then in step.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Drops a connection that the server has closed, or on which bytes came that
    /// nobody asked for.
    pub(super) fn drop_if_closed(&mut self) {
        self.connection.take_if(|connection| !connection.is_quiet());
    }

    /// Asks all of a batch, on a new connection if the one there is fails.
    fn exchange<P: Put, R: Take>(&mut self, mut batch: Batch<P, R>) -> Result<(), ClientError> {
        let deadline = Deadline::after(self.options.call_timeout);
        let mut retry = Retry::new(&self.options, batch.is_idempotent());
        while let Err(error) = self.attempt(&mut batch, deadline) {
            match retry.after(&error, deadline) {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            }
        }
        batch.outcome().map_err(|unanswered| ClientError::unanswered(&self.path, unanswered))
    }

    /// Asks what is left of a batch on one connection. Who leaves early, by an error
    /// or a panic, has dropped it.
    fn attempt<P: Put, R: Take>(&mut self, batch: &mut Batch<P, R>, deadline: Deadline) -> Result<(), ClientError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::new(&self.path, &self.options, deadline)?,
        };
        batch.ask_again();
        connection.exchange(&self.path, batch, deadline)?;
        self.connection = Some(connection);
        Ok(())
    }
}
