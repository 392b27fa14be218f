//! Tests of `zkv`, `benchmarker`, and the man pages.

#![cfg(feature = "cli")]

mod helpers;

mod tools {
    mod benchmarker;
    mod manual;
    mod zkv;
}
