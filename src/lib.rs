//! Read-only key-value lookups in an immutable table that all processes of a machine share.
//!
//! A batch job compiles rows of `key,value` into a file ([`bake`]). Processes either open the file and look keys up in
//! memory ([`Store`], [`MappedStore`]), or send requests ([`client`]) to a process that serves the file over a Unix
//! socket ([`server`]). A file never changes: a newer file replaces it by rename.
//!
//! ```
//! # #[cfg(feature = "bake")] {
//! use zero_kv::{Lookup, Store};
//! use zero_kv::bake::{self, Options};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("storage.db");
//! bake::bake_csv("8364,EURO SIGN\n65,LATIN CAPITAL LETTER A\n".as_bytes(), &file, &Options::default())?;
//!
//! let names = Store::open(&file)?;
//! assert_eq!(names.get(8364)?, Some(&b"EURO SIGN"[..]));
//! assert_eq!(names.get(66)?, None);
//! assert_eq!(names.floor(100)?, Some((65.into(), &b"LATIN CAPITAL LETTER A"[..])));
//! let rows = names.iter().collect::<Result<Vec<_>, _>>()?;
//! assert!(rows.iter().map(|(key, _)| *key).eq([65, 8364]));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules, in the order of the data flow
//!
//! | module | in | out |
//! |---|---|---|
//! | [`bake`] | rows as text or Parquet, older files | a file that replaces the old one |
//! | this one | a path, then keys | values, borrowed from memory or copied from a mapping: see [`Lookup`] |
//! | [`typed`] | cells of typed tables, or the bytes of rows | the bytes of rows, or cells |
//! | [`server`] | a file and a socket's path | responses, until the server is stopped |
//! | [`client`] | keys | values that a server sent, or looked up in its table: [`client::Direct`] |
//! | [`publish`] | baked files | the same files on other machines |
//!
//! Modules and types that this documentation does not show are public only for the programs, the Python package, and
//! the tests of this repository, and change without notice.
//!
//! # Features
//!
//! Without features, the crate opens files ([`Store`]) and sends requests from threads ([`client`]), with a few small
//! dependencies. The feature `cli` is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `bake` | the module [`bake`] |
//! | `parquet` | `bake`, and Parquet inputs |
//! | `zstd` | `bake`, and inputs compressed with Zstandard |
//! | `cluster` | `client::ClusterClient` |
//! | `server` | the module [`server`], and `cluster` |
//! | `tls` | TLS in the clients, and with `server` also on a TCP port of the server |
//! | `metrics` | `server`, and the server's metrics over HTTP |
//! | `object-store` | the module [`publish`] |
//! | `tokio` | `client::AsyncClient`, `client::AsyncPool`, and `client::AsyncStream`, for tasks on tokio |
//! | `cli` | `bake`, `metrics`, and `tokio`, and the dependencies of the four binaries |
//! | `uuid` | conversion of the UUIDs of the crate uuid to keys |
//! | `full` | all features above, the screen of `zkv top`, and the generators of man pages and shell completions |
//!
//! # Limits
//!
//! Keys are unsigned 64-bit numbers or strings of 1 to 65,535 bytes, and all keys of a table are of one kind. Keys of
//! other types, such as addresses and dates, are stored as one of these kinds: see [`KeyType`]. A value
//! has at most 1 GiB, and a table at most 2³² rows. Only 64-bit Linux is supported. A mapped file must not be changed
//! in place: see [`Store`].

#[cfg(not(target_os = "linux"))]
compile_error!("Zero-KV runs only on Linux");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("Zero-KV maps files that need a 64-bit address space");

#[cfg(feature = "bake")]
pub mod bake;
mod calendar;
#[cfg(any(feature = "object-store", feature = "server"))]
#[doc(hidden)]
pub mod canary;
#[cfg(feature = "bake")]
#[doc(hidden)]
pub mod cidr;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod client;
#[cfg(feature = "cluster")]
#[doc(hidden)]
pub mod cluster;
#[doc(hidden)]
pub mod config_file;
#[doc(hidden)]
pub mod counted;
#[cfg(feature = "bake")]
#[doc(hidden)]
pub mod csv_text;
mod direct;
mod excerpt;
#[cfg(any(feature = "bake", feature = "server"))]
#[doc(hidden)]
pub mod folder;
#[doc(hidden)]
pub mod format;
mod machine_memory;
#[cfg(any(feature = "cli", feature = "object-store", feature = "server"))]
#[doc(hidden)]
pub mod printable;
mod progress;
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "object-store")]
pub mod publish;
#[cfg(any(feature = "bake", feature = "server"))]
#[doc(hidden)]
pub mod replace;
#[cfg(feature = "server")]
pub mod server;
mod setting;
#[cfg(any(feature = "bake", feature = "cluster"))]
#[doc(hidden)]
pub mod slots;
#[cfg(feature = "bake")]
#[doc(hidden)]
pub mod special_file;
#[doc(hidden)]
pub mod store;
mod sync;
pub mod typed;
mod user_namespace;

#[doc(hidden)]
pub use format::FormatError;
#[doc(inline)]
pub use format::key::{Key, KeyKind};
#[doc(inline)]
pub use format::key_type::{KeyTextError, KeyType, KeyTypeError, KeyValue, PART_COUNT_MAX, PartType};
#[doc(inline)]
pub use format::{KeyBounds, OwnedKey, RangeRow, Row};
pub use progress::WithProgress;
#[doc(hidden)]
pub use setting::Setting;
#[doc(inline)]
pub use store::{
    Lookup, LookupError, MappedRows, MappedStore, Memory, OpenOptions, Pace, Rows, Store, StoreError, StructRows,
    TypedLookupError, Verify,
};
#[doc(hidden)]
pub use sync::unpoisoned;

/// The default path of the file that the binaries write or open.
pub const DEFAULT_FILE: &str = "storage.db";
/// The default path of the Unix socket that the binaries serve or connect to.
pub const DEFAULT_SOCKET: &str = "/tmp/zero-kv.sock";
