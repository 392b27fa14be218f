//! Tests of `kv_store` as a process: options, limits, reports, and clients that must not affect each other.

use testkit as helpers;

mod serving {
    mod access;
    mod cancel;
    mod changed_metadata;
    #[cfg(feature = "full")]
    mod config_files;
    mod connections;
    mod damaged_index;
    mod http_requests;
    mod info;
    mod lifecycle;
    mod limits;
    mod log;
    mod memory;
    mod metrics;
    mod metrics_clients;
    mod panics;
    mod spin;
    #[cfg(feature = "full")]
    mod tls {
        mod certificates;
        mod clients;
        mod faults;
        mod options;
        mod pipelines;
        mod responses;
        mod sessions;
    }
    mod unread;
    mod users;
}
