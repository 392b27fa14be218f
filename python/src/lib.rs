//! Zero-KV for Python: what of `zero_kv` is compiled.
//!
//! In: Python's objects. Out: Python's objects, and exceptions of `zero_kv.errors`.
//! `key` and `errors` translate. `table` and `rows` look up in a file, `direct` in what
//! a server hands over; `client` asks a server, `question` has the bytes for whoever
//! asks in his own way. `many` is about many keys, `view` lends the mapping's memory to
//! Python, `bake` makes files. Whatever waits, reads a file or goes through many rows
//! does so while other threads of Python run.

mod bake;
mod client;
mod direct;
mod errors;
mod key;
mod many;
mod question;
mod rows;
mod table;
mod view;

/// Declared here, documented in `lib/zero_kv/_native.pyi`.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::bake::{Report, bake_rows};
    #[pymodule_export]
    use super::client::{Client, ClientRowIterator, ClientRows, check_server_user};
    #[pymodule_export]
    use super::direct::{Direct, forked};
    #[pymodule_export]
    use super::many::{fill_arrow, fill_fixed};
    #[pymodule_export]
    use super::question::{Asked, Wire};
    #[pymodule_export]
    use super::rows::{RowIterator, Rows};
    #[pymodule_export]
    use super::table::{Table, open};
    #[pymodule_export]
    use super::view::Memory;
}
