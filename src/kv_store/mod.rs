//! What `kv_store` is made of beside the library.

pub(crate) mod connections;
