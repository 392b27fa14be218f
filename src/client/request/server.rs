//! Requests about the server instead of the table, and the facts that it reports.

use std::str::FromStr;

use zerocopy::IntoBytes;

use super::{RequestError, TypedRequest, decode_number};
use crate::client::login::{Credentials, Login};
use crate::format::key_type::KeyType;
use crate::protocol::native::{Op, Request, StateId, push_long};
use crate::protocol::reader::Response;
use crate::protocol::response::Violation;

const OLDER_SERVER: &str = "it may be a kv_store of an older version";
const NOT_ALLOWED: &str = "only root and the server's own user may send it, on the server's Unix socket";

/// Requests facts about the server and its table.
#[derive(Clone, Copy, Debug)]
pub struct GetInfo;

/// Requests the number of the served generation. On one connection, all responses between two with the same number come
/// from this generation. A restarted server counts from 1 again.
#[derive(Clone, Copy, Debug)]
pub struct GetGeneration;

/// Requests the type of the table's keys.
#[derive(Clone, Copy, Debug)]
pub struct GetKeyType;

/// Requests the state of the connection, and notices when it changes: see [`Op::Track`].
#[derive(Clone, Copy, Debug)]
pub struct Track;

/// Requests the topology of the server's cluster, as JSON. The decoded response is `None` if the server is not a node
/// of a cluster, or has no topology yet.
#[derive(Clone, Copy, Debug)]
pub struct GetTopology;

/// Requests an empty response.
#[derive(Clone, Copy, Debug)]
pub struct Ping;

/// Requests a reload of the server's file. The response contains the number of the attempt to reload.
#[derive(Clone, Copy, Debug)]
pub struct Reload;

/// Requests a rollback to the previous generation. The response contains the number of the attempt to roll back.
#[derive(Clone, Copy, Debug)]
pub struct Rollback;

/// Implements a request without a key. `$decode` decodes the value of the response. The message of a [`RequestError`]
/// contains `$name`, the name of the request, and `$hint`, the likely cause of the error.
macro_rules! impl_server_request {
    ($request:ident, $op:expr, $Output:ty, $decode:expr, $name:literal, $hint:expr) => {
        impl TypedRequest for $request {
            type Output = $Output;

            fn op(&self) -> Op {
                $op
            }

            fn encode(&self, requests: &mut Vec<u8>) {
                requests.extend_from_slice(Request::new($op, 0).as_bytes());
            }

            fn decode(&self, response: Response<'_>) -> Result<$Output, RequestError> {
                match response {
                    Response::Found(value) => $decode($op, value),
                    refused => Err(RequestError::of(refused, $name.to_owned(), $hint)),
                }
            }
        }
    };
}

impl_server_request!(GetInfo, Op::Info, Info, decode_info, "the request for information", OLDER_SERVER);
impl_server_request!(GetGeneration, Op::Generation, u64, decode_number, "the request for the generation", OLDER_SERVER);
impl_server_request!(GetKeyType, Op::KeyType, KeyType, decode_key_type, "the request for the key type", OLDER_SERVER);
impl_server_request!(Track, Op::Track, StateId, decode_state, "the request for notices", OLDER_SERVER);
impl_server_request!(Ping, Op::Ping, (), |_, _| Ok(()), "a ping", OLDER_SERVER);
impl_server_request!(Reload, Op::Reload, u64, decode_number, "the request for a reload", NOT_ALLOWED);
impl_server_request!(Rollback, Op::Rollback, u64, decode_number, "the request for a rollback", NOT_ALLOWED);

impl TypedRequest for GetTopology {
    type Output = Option<String>;

    fn op(&self) -> Op {
        Op::Topology
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        requests.extend_from_slice(Request::new(Op::Topology, 0).as_bytes());
    }

    fn decode(&self, response: Response<'_>) -> Result<Option<String>, RequestError> {
        match response {
            Response::Found(json) => Ok(Some(String::from_utf8_lossy(json).into_owned())),
            Response::NotFound => Ok(None),
            refused => Err(RequestError::of(refused, "the request for the topology".to_owned(), OLDER_SERVER)),
        }
    }
}

/// Logs the connection in as a user.
pub struct Authenticate(Credentials);

impl Authenticate {
    /// Creates a login request with the name and password of `login`. If the password is in a file or in the
    /// environment, this function reads it.
    ///
    /// # Errors
    /// The reason why the name or the password cannot be used, and what to do.
    pub fn new(login: &Login) -> Result<Authenticate, String> {
        login.credentials().map(Authenticate)
    }
}

impl TypedRequest for Authenticate {
    type Output = ();

    fn op(&self) -> Op {
        Op::Auth
    }

    fn encode(&self, requests: &mut Vec<u8>) {
        push_long(Op::Auth, &[self.0.user(), b"\0", self.0.password()], requests);
    }

    fn decode(&self, response: Response<'_>) -> Result<(), RequestError> {
        match response {
            Response::Found(_) => Ok(()),
            Response::Unauthenticated => Err(RequestError::LoginFailed { user: self.0.quoted_user() }),
            refused => Err(RequestError::of(refused, "a login".to_owned(), OLDER_SERVER)),
        }
    }
}

fn decode_key_type(_: Op, text: &[u8]) -> Result<KeyType, RequestError> {
    let violation = Violation::KeyType { len_bytes: text.len() };
    let key_type = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    key_type.ok_or(RequestError::Violation(violation))
}

fn decode_state(op: Op, value: &[u8]) -> Result<StateId, RequestError> {
    const LEN_BYTES: usize = size_of::<StateId>();
    let (len_bytes, min_bytes, max_bytes) = (value.len(), LEN_BYTES, LEN_BYTES);
    value
        .try_into()
        .map_err(|_| RequestError::Violation(Violation::ResponseLen { op, len_bytes, min_bytes, max_bytes }))
}

fn decode_info(_: Op, text: &[u8]) -> Result<Info, RequestError> {
    Ok(Info::new(text))
}

/// Facts about a server and its table, each with a name and a value. `docs/PROTOCOL.md` lists the facts. Later versions
/// of the server may add more facts.
///
/// # Example
/// ```no_run
/// let info = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?.info()?;
/// println!("{:?} rows of generation {:?}, on {:?}", info.rows(), info.generation(), info.get("socket"));
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    text: String,
}

impl Info {
    pub(super) fn new(text: &[u8]) -> Self {
        Info { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// Returns the names and values in the order in which the server sent them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// Returns the value of the fact `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(line_name, value)| (line_name == name).then_some(value))
    }

    /// Returns the value of the fact `name` as a number.
    pub fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.get(name)?.parse().ok()
    }

    /// Returns the number of the generation that the server serves, counted from 1.
    pub fn generation(&self) -> Option<u64> {
        self.number("generation")
    }

    /// Returns the table's digest.
    pub fn digest(&self) -> Option<u128> {
        u128::from_str_radix(self.get("digest")?, 16).ok()
    }

    /// Returns the table's number of rows.
    pub fn rows(&self) -> Option<u64> {
        self.number("rows")
    }
}
