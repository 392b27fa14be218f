//! The native protocol: compares the bytes that `kv_store` sends with those of a reference server.

mod changed;
mod columns;
mod document;
mod key_types;
mod long;
mod mutations;
mod ordered;
mod short;
mod tracking;
