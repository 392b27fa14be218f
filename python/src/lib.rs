//! The compiled part of the Python package `zero_kv`.
//!
//! In: Python objects. Out: Python objects, and exceptions of `zero_kv.errors`. Other Python threads run while a
//! function waits, reads a file, or processes many rows. The modules:
//!
//! - `convert`, `arguments`, `key_batch`, and `errors` convert objects, arguments, keys, and errors. `typed_key` and
//!   `key_columns` convert keys that are neither numbers nor bytes. `options` has the keyword arguments of clients.
//! - `lookup_table` is the base class of tables in this process (`table` and `direct`) and of blocking clients
//!   (`client`). A `local_table` has versions: a `table_version` is the table of a file, or a table that a server
//!   transferred (`served`). Clients use connections (`connection`) of a `connection_pool`. `rows` and `client_rows`
//!   iterate over rows.
//! - `request` encodes requests for the asyncio client, which has its own socket, and `pipeline` is the state of its
//!   connection.
//! - `schema`, `typed_row`, and `cell` represent the schemas, rows, and cells of typed tables. `cells` encodes rows.
//!   `columns` looks up columns of many rows, and `column_parts` lends the memory of columns. `received` has the rows
//!   that a server sent.
//! - `many` looks up many keys, `neighbors` their nearest rows, `ranges` the ranges that contain them, and `arrays`
//!   makes arrays. `view` implements the buffer protocol.
//! - `bake` makes files, with `range_rows` those of ranges, and `publishing` publishes them. `shards` bakes and
//!   publishes the shards of a table in several processes: `arrow_rows` reads their rows, and `slots` computes the
//!   slots of keys. `published` looks keys up in a published table: `following` is the thread that fetches generations,
//!   and `current_table` has the current one. `no_object_store` replaces these modules in a build without the feature
//!   `object-store`.
//! - `interrupt` ends calls of clients after a signal. `raised` stops long operations after an exception, `progress`
//!   reports how far they are, and `watched` runs them in another thread.

mod arguments;
mod array_nulls;
mod arrays;
mod arrow_rows;
mod bake;
mod cell;
mod cells;
mod client;
mod client_rows;
mod column_parts;
mod columns;
mod connection;
mod connection_pool;
mod convert;
#[cfg_attr(not(feature = "object-store"), expect(dead_code, reason = "only the class Published makes generations"))]
mod current_table;
mod direct;
mod errors;
#[cfg(feature = "object-store")]
mod following;
mod interrupt;
mod key_batch;
mod key_columns;
mod local_table;
mod lookup_table;
mod many;
mod neighbors;
#[cfg(not(feature = "object-store"))]
mod no_object_store;
mod options;
mod pipeline;
#[cfg(feature = "object-store")]
mod progress;
#[cfg(feature = "object-store")]
mod published;
#[cfg(feature = "object-store")]
mod publishing;
mod raised;
mod range_rows;
mod ranges;
mod received;
mod request;
mod rows;
mod schema;
mod served;
#[cfg(feature = "object-store")]
mod shards;
mod slots;
mod table;
mod table_version;
mod typed_key;
mod typed_row;
mod view;
#[cfg(feature = "object-store")]
mod watched;

/// The compiled module. `lib/zero_kv/_native.pyi` documents its contents.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arrays::{
        fill_arrow, fill_fixed, fill_neighbors_arrow, fill_neighbors_fixed, fill_ranges_arrow, fill_ranges_fixed,
        find_neighbor_columns, received_neighbor_columns, received_rows,
    };
    #[pymodule_export]
    use super::bake::{Report, bake_rows};
    #[pymodule_export]
    use super::client::{Client, ClusterClient};
    #[pymodule_export]
    use super::client_rows::{ClientRowIterator, ClientRows};
    #[pymodule_export]
    use super::columns::check_result;
    #[pymodule_export]
    use super::direct::Direct;
    #[pymodule_export]
    use super::key_columns::Keys;
    #[pymodule_export]
    use super::lookup_table::LookupTable;
    #[cfg(not(feature = "object-store"))]
    #[pymodule_export]
    use super::no_object_store::{
        Entry, Generation, Progress, Published, commit_entries, newest_generation, publish_files, pull_shard,
        read_generation, stop_following, upload_shard,
    };
    #[pymodule_export]
    use super::options::{check_server_user, default_address, default_options, endpoint};
    #[pymodule_export]
    use super::pipeline::{Pipeline, ValueCache};
    #[cfg(feature = "object-store")]
    #[pymodule_export]
    use super::progress::Progress;
    #[cfg(feature = "object-store")]
    #[pymodule_export]
    use super::published::{Published, stop_following};
    #[cfg(feature = "object-store")]
    #[pymodule_export]
    use super::publishing::{Generation, publish_files};
    #[pymodule_export]
    use super::received::ReceivedRows;
    #[pymodule_export]
    use super::request::{Request, index_of, key_kinds, possible_keys, write_keys, wrong_kind};
    #[pymodule_export]
    use super::rows::{RowIterator, Rows};
    #[pymodule_export]
    use super::schema::{Schema, decode_schema};
    #[pymodule_export]
    use super::served::forked;
    #[cfg(feature = "object-store")]
    #[pymodule_export]
    use super::shards::{Entry, commit_entries, newest_generation, pull_shard, read_generation, upload_shard};
    #[pymodule_export]
    use super::slots::{divide_slots, divide_slots_by_length, fill_slots, measure_slots, parse_columns};
    #[pymodule_export]
    use super::table::{Table, open};
    #[pymodule_export]
    use super::typed_row::{TypedRow, decode_row};
    #[pymodule_export]
    use super::view::Memory;

    #[pymodule_init]
    fn add_version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
