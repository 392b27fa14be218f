//! Read-only lookups: one immutable table per machine, shared by all its
//! processes.
//!
//! A batch job compiles rows of `key,value` into a file ([`bake`]). Any number
//! of processes open it and look keys up in memory ([`store`]), or one of
//! them serves it over a Unix socket ([`server`]) to all others ([`client`]). A
//! file never changes: a newer one takes its place by rename.
//!
//! ```
//! # #[cfg(feature = "bake")] {
//! use zero_kv::Store;
//! use zero_kv::bake::{self, Options};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("storage.db");
//! bake::bake_csv("8364,EURO SIGN\n65,LATIN CAPITAL LETTER A\n".as_bytes(), &file, &Options::default(), &mut |_| ())?;
//!
//! let names = Store::open(&file)?;
//! assert_eq!(names.get(8364)?, Some(&b"EURO SIGN"[..]));
//! assert_eq!(names.get(66)?, None);
//! assert_eq!(names.floor(100)?, Some((65.into(), &b"LATIN CAPITAL LETTER A"[..])));
//! assert!(names.iter().map(|(key, _)| key).eq([65, 8364]));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The modules, in the order of the flow
//!
//! | module | in | out | knows nothing of |
//! |---|---|---|---|
//! | [`bake`] | rows as text or Parquet, older files | a file that replaces the old one | sockets |
//! | [`mod@format`] | bytes of a file | typed views, checked numbers | file handles, mappings |
//! | [`store`] | a path, then keys | values, borrowed from memory or copied out of a mapping | sockets, runtimes |
//! | [`protocol`] | bytes a peer sent | requests and answers, as bytes | sockets, files |
//! | [`server`] | a file and a socket's path | answers, until it is stopped | how a file is laid out |
//! | [`client`] | keys | values that a server sent | files |
//!
//! # Features
//!
//! `bake` and `server` add those modules, `parquet` a format to `bake`; `cli` (on
//! by default) adds all of these and what the four binaries need. Without features there are [`store`] and
//! [`client`], and a few small dependencies.
//!
//! | feature | what it adds to the client |
//! |---|---|
//! | none | `client::Client` and `client::Pool`, for threads |
//! | `tokio` | `client::AsyncClient` and `client::AsyncPool`, for tasks on tokio; on by default |
//!
//! # Limits
//!
//! Keys are unsigned 64-bit numbers or 1 to 65,535 bytes, all of a table of one
//! kind; values are at most 1 GiB, rows at most 2³²; the machine runs 64-bit Linux. A mapped file must not be changed in
//! place: see [`Store`].

#[cfg(not(target_os = "linux"))]
compile_error!("Zero-KV runs only on Linux");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("Zero-KV maps files that need a 64-bit address space");

#[cfg(feature = "bake")]
pub mod bake;
pub mod client;
mod direct;
pub mod format;
mod machine_memory;
pub mod protocol;
#[cfg(any(feature = "bake", feature = "server"))]
pub mod replace;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "bake")]
mod special_file;
pub mod store;
mod sync;
mod user_namespace;

pub use format::KeyBounds;
pub use format::key::{Key, KeyKind};
pub use store::{LookupError, MappedStore, Store, StoreError};

/// Where the binaries write and look for a file, unless they are told.
pub const DEFAULT_FILE: &str = "storage.db";
/// Where the binaries serve and look for a server, unless they are told.
pub const DEFAULT_SOCKET: &str = "/tmp/zero-kv.sock";

/// Holds the programs of documents to the library.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/cookbook/ip-to-country.md")]
    struct IpToCountry;
    #[doc = include_str!("../docs/cookbook/features.md")]
    struct Features;
    #[doc = include_str!("../docs/cookbook/configuration.md")]
    struct Configuration;
}
