//! Requests and response headers of the native protocol. All numbers are big-endian.
//!
//! A short request takes 16 bytes, and has a numeric key or no key. A long request has a byte key, a range, a login, or
//! a selection of columns, and contains its own length. The types have the layout of the encoded bytes: a buffer is
//! read as a slice of requests without a copy, and a header is sent as it is in memory.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(feature = "server")]
use super::resp::commands::{Id, KeysNeeded};

/// Length of a short request. The length of a long request is a multiple of this length.
pub const REQUEST_LEN_BYTES: usize = size_of::<Request>();
/// Length of the header of a long request: the op code, and the length of the body that follows.
pub const LONG_HEADER_LEN_BYTES: usize = 8;
/// Maximum length of the body of a long request: a range with two keys of maximum length.
pub const LONG_BODY_MAX_BYTES: usize = size_of::<RangeHeader>() + 2 * KEY_LEN_MAX_BYTES;
/// Maximum length of a byte-string key.
pub const KEY_LEN_MAX_BYTES: usize = 65_535;
/// Length of the header that starts every response.
pub const RESPONSE_HEADER_LEN_BYTES: usize = size_of::<ResponseHeader>();
/// Maximum length of a value: 1 GiB. A client rejects a header that announces a longer value, before it allocates
/// memory.
pub const VALUE_LEN_MAX_BYTES: usize = 1 << 30;

const _: () = {
    assert!(REQUEST_LEN_BYTES == 16);
    assert!(RESPONSE_HEADER_LEN_BYTES == 8);
    assert!(std::mem::offset_of!(Request, key) == 8);
    assert!(size_of::<RangeHeader>() == 16);
    assert!(size_of::<PageHeader>() == 8);
    assert!(OPEN_LEN_BYTES == 32);
    assert!(LONG_HEADER_LEN_BYTES < REQUEST_LEN_BYTES);
};

/// The kind of an op, which determines the form of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Looks up one key. The request is short for a numeric key, and long for a byte key.
    Point,
    /// Finds the row with the nearest key. The request is short for a numeric key, and long for a byte key.
    Neighbor,
    /// Reads a range of keys. The request is always long.
    Range,
    /// Concerns the server instead of a key. The request is always short.
    Server,
    /// Logs in. The request is always long.
    Login,
    /// Selects columns for later requests of the connection. The request is always long.
    Select,
}

/// The kind of value that a response with the status [`Status::Ok`] contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The value of a key.
    Value,
    /// No value.
    Empty,
    /// A page of rows.
    Page,
    /// An 8-byte number.
    Number,
    /// Text.
    Text,
    /// An [`OpenHeader`], which comes with two descriptors: see [`Op::Open`].
    Table,
    /// The bytes of a table's schema section.
    Schema,
    /// A topology document.
    Topology,
    /// The name of a key type.
    KeyType,
    /// A [`StateId`].
    State,
}

/// The permissions that a user needs for an op.
#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpNeeds {
    /// No permission: every connection may log in.
    Nothing,
    /// The permission for a command, and for keys.
    Command(Id, KeysNeeded),
    /// The permission for all commands and all keys.
    Everything,
}

/// Defines all ops. Each line defines an op with its code, its name, its kind, the kind of value in its responses, and
/// the permissions that it needs. The counters and metrics of an op are named after the op.
macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $code:literal, $name:literal, $kind:ident, $value:ident,
        $needs:ident $(($command:ident, $keys:ident))?;)*) => {
        /// The operation that a request asks the server to perform.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Op {
            $($(#[$doc])* $op = $code,)*
        }

        impl Op {
            /// All ops, in the order of their codes.
            pub const ALL: [Op; [$($code),*].len()] = [$(Op::$op),*];

            #[inline]
            const fn from_number(number: u32) -> Option<Op> {
                match number {
                    $($code => Some(Op::$op),)*
                    _ => None,
                }
            }

            /// Returns the name of the op's counter in Info.
            pub const fn counter_name(self) -> &'static str {
                match self {
                    $(Op::$op => concat!("requests_", $name),)*
                }
            }

            /// Returns the name of the op's counter in INFO of the Redis protocol.
            pub const fn command_stats_name(self) -> &'static str {
                match self {
                    $(Op::$op => concat!("cmdstat_native|", $name),)*
                }
            }

            /// Returns the kind of the op.
            #[inline]
            pub const fn kind(self) -> OpKind {
                match self {
                    $(Op::$op => OpKind::$kind,)*
                }
            }

            /// Returns the kind of value that a response with the status [`Status::Ok`] contains.
            pub const fn value_kind(self) -> ValueKind {
                match self {
                    $(Op::$op => ValueKind::$value,)*
                }
            }

            /// Returns the permissions that a user needs for the op.
            #[cfg(feature = "server")]
            pub const fn needs(self) -> OpNeeds {
                match self {
                    $(Op::$op => OpNeeds::$needs $((Id::$command, KeysNeeded::$keys))?,)*
                }
            }
        }
    };
}

ops! {
    /// Returns the key's value.
    Get = 0, "get", Point, Value, Command(Get, Named);
    /// Returns whether the table has the key. The response has no value.
    Exists = 1, "exists", Point, Empty, Command(Exists, Named);
    /// Returns the row with the largest key less than or equal to the requested key.
    Floor = 2, "floor", Neighbor, Page, Command(ZkvFloor, All);
    /// Returns the row with the smallest key greater than or equal to the requested key.
    Ceiling = 3, "ceiling", Neighbor, Page, Command(ZkvCeiling, All);
    /// Returns a page of the rows of a range.
    Range = 4, "range", Range, Page, Command(ZkvRange, Prefix);
    /// Returns the number of rows in a range.
    Count = 5, "count", Range, Number, Command(ZkvCount, Prefix);
    /// Returns facts about the server and its table.
    Info = 6, "info", Server, Text, Command(Info, All);
    /// Reloads the server's file.
    Reload = 7, "reload", Server, Number, Everything;
    /// Rolls the server back to the previous generation.
    Rollback = 8, "rollback", Server, Number, Everything;
    /// Passes two descriptors for direct mode: one of the table's file, and one of the shared page, on which the server
    /// announces the next generation. Works only over a Unix socket.
    Open = 9, "open", Server, Table, Everything;
    /// Returns an empty response.
    Ping = 10, "ping", Server, Empty, Command(Ping, None);
    /// Logs the connection in as a user. The body of the request is the user's name, a zero byte, and the password.
    Auth = 11, "auth", Login, Empty, Nothing;
    // A user who may read some rows needs the type of their keys, the names and types of their columns, the nodes that
    // have the rows, and whether rows come from the same generation.
    /// Returns the schema of a typed table: the bytes of the file's schema section.
    Schema = 12, "schema", Server, Schema, Command(Get, Some);
    /// Selects the columns that the responses to later GetColumns requests of the connection have. The body of the
    /// request is a [`SelectHeader`], and the position of each column.
    Select = 13, "select", Select, Empty, Command(Get, Some);
    /// Returns the selected columns of the key's row.
    GetColumns = 14, "get_columns", Point, Value, Command(Get, Named);
    /// Returns the topology of the cluster that the server is a node of, as JSON.
    Topology = 15, "topology", Server, Topology, Command(ClusterSlots, Some);
    /// Returns the number of the served generation. All responses between two with the same number, on one connection,
    /// come from this generation.
    Generation = 16, "generation", Server, Number, Command(Get, Some);
    /// Returns the type of the table's keys, as `baker --keys` takes it. From then on, the server looks up keys of the
    /// connection only in tables whose keys have this type.
    KeyType = 17, "key_type", Server, KeyType, Command(Get, Some);
    /// Returns the row of the range that contains the requested key, in a table of ranges.
    Cover = 18, "cover", Neighbor, Page, Command(ZkvCover, All);
    /// Returns the [`StateId`] of the connection. From then on, the server sends a notice ([`Status::Notice`]) before the
    /// first response from another state, even without a request.
    Track = 19, "track", Server, State, Command(Get, Some);
}

/// Identifies what the responses on a connection depend on: the run of the server, its generation, the slots that it serves
/// as a node of a cluster, and the user of the connection and their permissions. Different states have different IDs.
pub type StateId = [u8; 16];
/// Length of a notice: a header, and a [`StateId`].
pub const NOTICE_LEN_BYTES: usize = RESPONSE_HEADER_LEN_BYTES + size_of::<StateId>();

/// Flag that is set in the op code of every known long request.
const LONG: u32 = 1 << 16;

impl Op {
    /// Returns the op of a short request with this code.
    #[inline]
    pub const fn from_code(code: u32) -> Option<Op> {
        match Op::from_number(code) {
            Some(op) if !matches!(op.kind(), OpKind::Range | OpKind::Login | OpKind::Select) => Some(op),
            _ => None,
        }
    }

    /// Returns the op of a long request with this code.
    #[inline]
    pub const fn from_long_code(code: u32) -> Option<Op> {
        match Op::from_number(code ^ LONG) {
            Some(op) if !matches!(op.kind(), OpKind::Server) => Some(op),
            _ => None,
        }
    }

    /// Returns whether a request with this op changes the server's state, and therefore must not be executed twice.
    #[inline]
    pub const fn has_effects(self) -> bool {
        matches!(self, Op::Reload | Op::Rollback)
    }

    /// Returns whether a response to this op can have the status [`Status::NotFound`].
    pub const fn can_be_not_found(self) -> bool {
        matches!(self.kind(), OpKind::Point | OpKind::Neighbor) || matches!(self, Op::Schema | Op::Topology)
    }

    /// Returns whether a response to this op can have the status [`Status::Moved`].
    pub const fn can_be_moved(self) -> bool {
        matches!(self.kind(), OpKind::Point)
    }

    /// Returns whether a request with this op has a key or a range of keys, so that the response to it can have the status
    /// [`Status::KeyTypeChanged`].
    pub const fn has_keys(self) -> bool {
        matches!(self.kind(), OpKind::Point | OpKind::Neighbor | OpKind::Range)
    }

    /// Returns whether a response to this op can have the status [`Status::SchemaChanged`].
    pub const fn can_be_schema_changed(self) -> bool {
        matches!(self, Op::Select | Op::GetColumns)
    }

    /// Returns the op's code in a long request.
    pub const fn long_code(self) -> u32 {
        self as u32 | LONG
    }

    /// Returns true if a request with this code is long. Every code from 2¹⁶ to 2²⁴ - 1 marks a long request, even if
    /// its op is unknown.
    #[inline(always)]
    pub const fn is_long(code: u32) -> bool {
        code >= LONG && code < 1 << 24
    }
}

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The request succeeded; for a lookup, the table has the row.
    Ok = 0,
    /// The table does not have the row, or has no schema; or the server is not a node of a cluster.
    NotFound = 1,
    /// The request failed, for example because the op is unknown, the table's keys are of the other kind, or the value
    /// is damaged.
    Error = 2,
    /// The connection must log in first, or its login has failed.
    Unauthenticated = 3,
    /// The connection's user may not send the request, or may not use the requested keys.
    NotPermitted = 4,
    /// The table's schema is not the schema for which the connection has selected, or wants to select, columns.
    SchemaChanged = 5,
    /// The table does not have the row, and another node of the cluster serves its slot.
    Moved = 6,
    /// The table's keys are not of the type that the connection's client has requested last.
    KeyTypeChanged = 7,
    /// No response, but a notice: the responses after it come from another state, whose [`StateId`] follows.
    Notice = 8,
}

impl Status {
    /// Returns the status with this code.
    pub const fn from_code(code: u32) -> Option<Status> {
        match code {
            0 => Some(Status::Ok),
            1 => Some(Status::NotFound),
            2 => Some(Status::Error),
            3 => Some(Status::Unauthenticated),
            4 => Some(Status::NotPermitted),
            5 => Some(Status::SchemaChanged),
            6 => Some(Status::Moved),
            7 => Some(Status::KeyTypeChanged),
            8 => Some(Status::Notice),
            _ => None,
        }
    }
}

/// A short request, or the first 16 bytes of a long request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Request {
    op: U32,
    padding: [u8; 4],
    key: U64,
}

impl Request {
    /// Creates a short request. For ops that look up a key, `key` is that key. For [`Op::Open`], `key` is the state
    /// that the client last read from the shared page, or 0 to request an immediate response. For all other ops, `key`
    /// must be 0.
    pub fn new(op: Op, key: u64) -> Self {
        Request { op: U32::new(op as u32), padding: [0; 4], key: U64::new(key) }
    }

    /// Returns the op's code. The code may be unknown: [`Op::from_code`] and [`Op::from_long_code`] check it.
    #[inline]
    pub fn op_code(&self) -> u32 {
        self.op.get()
    }

    /// Returns the length of the body of a long request.
    #[inline]
    pub fn body_len_bytes(&self) -> usize {
        u32::from_be_bytes(self.padding) as usize
    }

    /// Returns the key of a short request.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key.get()
    }
}

/// Returns the length of a long request with a body of `body_len_bytes`, including the header and the padding.
#[inline]
pub const fn long_len_bytes(body_len_bytes: usize) -> usize {
    (LONG_HEADER_LEN_BYTES + body_len_bytes).next_multiple_of(REQUEST_LEN_BYTES)
}

/// Appends a long request. The request's body is the concatenation of the pieces in `body`, at most
/// [`LONG_BODY_MAX_BYTES`] in total.
pub fn push_long(op: Op, body: &[&[u8]], request: &mut Vec<u8>) {
    let body_len_bytes = body.iter().map(|part| part.len()).sum();
    let end = request.len() + long_len_bytes(body_len_bytes);
    request.extend_from_slice(&op.long_code().to_be_bytes());
    request.extend_from_slice(&(body_len_bytes as u32).to_be_bytes());
    body.iter().for_each(|part| request.extend_from_slice(part));
    request.resize(end, 0);
}

/// Start of the body of a request for a range. The two keys follow this header; a numeric key takes 8 bytes,
/// big-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RangeHeader {
    /// Flags that [`range_flags`] defines.
    pub flags: U32,
    /// Maximum number of rows; 0 requests as many rows as fit into a page.
    pub limit_rows: U32,
    /// Length of the start key; 0 if the range has no start.
    pub start_len_bytes: U32,
    /// Length of the end key; 0 if the range has no end.
    pub end_len_bytes: U32,
}

/// Flags of a request for a range. All other bits are zero.
pub mod range_flags {
    /// Requests the last rows of the range instead of the first.
    pub const BACKWARD: u32 = 1;
    /// The range has a start.
    pub const START: u32 = 2;
    /// The range excludes its start key.
    pub const START_EXCLUDED: u32 = 4;
    /// The range has an end.
    pub const END: u32 = 8;
    /// The range excludes its end key.
    pub const END_EXCLUDED: u32 = 16;
    /// The keys are numbers, not bytes.
    pub const NUMBERS: u32 = 32;
    /// All flags.
    pub const ALL: u32 = 63;
}

/// Start of the value in a response to Floor, Ceiling, Cover, or Range. The rows follow this header in ascending order,
/// encoded as in the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageHeader {
    /// Number of rows that follow.
    pub row_count: U32,
    /// Code of the rows' [`RecordForm`](crate::format::form::RecordForm).
    pub record_form: u8,
    /// Base-2 logarithm of the rows' alignment in bytes.
    pub align_bits: u8,
    /// 1 if the range has more rows than this page, otherwise 0.
    pub more: U16,
}

/// Maximum total length of the rows in a page. A row that is longer than this is alone in its page.
pub const PAGE_LEN_MAX_BYTES: usize = 64 << 10;
/// Length of a page's header.
pub const PAGE_HEADER_LEN_BYTES: usize = size_of::<PageHeader>();
/// Maximum length of a record: a key, the end of a range, and a value of maximum length, aligned to a page of memory.
const RECORD_MAX_BYTES: usize =
    (2 * (size_of::<u16>() + KEY_LEN_MAX_BYTES).next_multiple_of(8) + RESPONSE_HEADER_LEN_BYTES + VALUE_LEN_MAX_BYTES)
        .next_multiple_of(4096);
/// Value of a response to Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenHeader {
    /// Number of the generation whose descriptor comes with the response.
    pub generation: U64,
    /// The table's digest, big-endian.
    pub digest: [u8; 16],
    /// 0 if the table's descriptor refers to the file, 1 if this descriptor refers to a sealed copy in memory.
    pub memory: U32,
    /// Always zero.
    pub reserved: [u8; 4],
}

/// Start of the body of a Select request. The position of each selected column follows as a big-endian 16-bit number.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SelectHeader {
    /// The ID of the schema that has the columns.
    pub schema_id: U64,
}

/// Maximum length of the value of a response to Schema.
pub const SCHEMA_LEN_MAX_BYTES: usize = 8 + 255 + 4096 * (16 + 255);
/// Length of the value of a response to Open.
pub const OPEN_LEN_BYTES: usize = size_of::<OpenHeader>();
/// Maximum length of the value of a response to KeyType: the names of 8 parts, with commas between them.
pub const KEY_TYPE_LEN_MAX_BYTES: usize = 8 * size_of_val("timestamp,") - 1;
/// Maximum length of the value of a response to Topology.
pub const TOPOLOGY_LEN_MAX_BYTES: usize = 16 << 20;
/// Maximum length of the text in a response to Info.
pub const INFO_LEN_MAX_BYTES: usize = 64 << 10;
/// Maximum length of a page: a page header, and one record of maximum length.
pub const PAGE_MAX_BYTES: usize = PAGE_HEADER_LEN_BYTES + RECORD_MAX_BYTES;

/// Header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ResponseHeader {
    status: U32,
    value_len_bytes: U32,
}

impl ResponseHeader {
    /// Creates the header of a response without a value.
    pub const fn bare(status: Status) -> Self {
        ResponseHeader { status: U32::from_bytes((status as u32).to_be_bytes()), value_len_bytes: U32::ZERO }
    }

    /// Creates the header of a value. The file stores this header before the value.
    ///
    /// Returns `None` if the value is longer than [`VALUE_LEN_MAX_BYTES`].
    pub fn of_value(value_len_bytes: usize) -> Option<Self> {
        let len = u32::try_from(value_len_bytes).ok().filter(|_| value_len_bytes <= VALUE_LEN_MAX_BYTES)?;
        Some(ResponseHeader { status: U32::new(Status::Ok as u32), value_len_bytes: U32::new(len) })
    }

    /// Creates the header of a page, number, or text. The maximum length is [`PAGE_MAX_BYTES`] instead of
    /// [`VALUE_LEN_MAX_BYTES`], because a page also contains keys.
    pub const fn of_page(len_bytes: usize) -> Self {
        let len_bytes = U32::from_bytes((len_bytes as u32).to_be_bytes());
        ResponseHeader { status: U32::ZERO, value_len_bytes: len_bytes }
    }

    /// Creates the header of a notice.
    pub const fn of_notice() -> Self {
        ResponseHeader {
            status: U32::from_bytes((Status::Notice as u32).to_be_bytes()),
            value_len_bytes: U32::from_bytes((size_of::<StateId>() as u32).to_be_bytes()),
        }
    }

    /// Returns the status code. The code may be unknown: [`Status::from_code`] checks it.
    #[inline]
    pub fn status_code(&self) -> u32 {
        self.status.get()
    }

    /// Returns the length of the value that follows.
    #[inline]
    pub fn value_len_bytes(&self) -> usize {
        self.value_len_bytes.get() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_documented_layout() {
        let request = Request::new(Op::Exists, 0x0102_0304_0506_0708);
        assert_eq!(request.as_bytes(), [0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_header_has_the_documented_layout() {
        assert_eq!(ResponseHeader::of_value(0x0001_0203).unwrap().as_bytes(), [0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(ResponseHeader::bare(Status::NotFound).as_bytes(), [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(ResponseHeader::of_value(VALUE_LEN_MAX_BYTES + 1), None);
    }

    #[test]
    fn codes_map_to_ops_and_back() {
        for code in 0..16 {
            assert!(Op::from_code(code).is_none_or(|op| op as u32 == code));
            assert!(Status::from_code(code).is_none_or(|status| status as u32 == code));
        }
        assert_eq!((Op::from_code(4), Op::from_code(LONG), Status::from_code(9)), (None, None, None));
        assert_eq!([6, 7, 8].map(Op::from_code), [Some(Op::Info), Some(Op::Reload), Some(Op::Rollback)]);
        assert_eq!([9, 10, 11].map(Op::from_code), [Some(Op::Open), Some(Op::Ping), None]);
        assert_eq!([12, 13, 14].map(Op::from_code), [Some(Op::Schema), None, Some(Op::GetColumns)]);
        assert_eq!([15, 16, 17].map(Op::from_code), [Some(Op::Topology), Some(Op::Generation), Some(Op::KeyType)]);
        assert_eq!([18, 19, 20].map(Op::from_code), [Some(Op::Cover), Some(Op::Track), None]);
        let long = [Op::Get, Op::Exists, Op::Floor, Op::Ceiling, Op::Range, Op::Count, Op::Auth, Op::Cover];
        for op in long.into_iter().chain([Op::Select, Op::GetColumns]) {
            assert_eq!(Op::from_long_code(op.long_code()), Some(op));
            assert!(Op::is_long(op.long_code()) && !Op::is_long(op as u32));
        }
        assert_eq!([LONG | 6, LONG | 9, LONG | 10, LONG | 12, LONG | 15, 0].map(Op::from_long_code), [None; 6]);
        assert_eq!([LONG - 1, LONG, (1 << 24) - 1, 1 << 24].map(Op::is_long), [false, true, true, false]);
    }
}
