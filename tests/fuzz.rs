//! The code of the fuzz targets. `cargo test-all --test fuzz` runs it with random inputs, and `fuzz/` builds this file as
//! the library of its targets; see `fuzz/README.md`.

#![allow(missing_docs, unreachable_pub, reason = "the fuzz targets are other crates")]

use testkit as helpers;

pub mod fuzz {
    pub mod answers;
    pub mod canaries;
    #[cfg(feature = "full")]
    pub mod compressed;
    pub mod csv;
    pub mod descriptors;
    #[cfg(feature = "full")]
    pub mod documents;
    mod in_process_server;
    #[cfg(feature = "full")]
    mod json;
    pub mod merge;
    pub mod native;
    pub mod open;
    #[cfg(feature = "full")]
    pub mod parquet_file;
    #[cfg(test)]
    mod random_inputs;
    pub mod resp;
    mod rows;
    pub mod session;
    mod source;
    pub mod structure;
    mod tamper;
    pub mod typed;
    pub mod typed_text;
}
