//! Tests of `zkv`, `benchmarker`, and the man pages.

use testkit as helpers;

mod tools {
    mod benchmarker;
    #[cfg(feature = "full")]
    mod manual;
    mod zkv;
}
