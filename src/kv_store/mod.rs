//! The modules of the program `kv_store`. They convert its options into the configuration of the library's server. They
//! also set up the log, the inherited sockets, and the allocator of the process.

pub(crate) mod allocator;
pub(crate) mod args;
pub(crate) mod inherited;
pub(crate) mod log;
pub(crate) mod published;
pub(crate) mod settings_sources;
