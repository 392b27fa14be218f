//! Tests of `zkv`, `benchmarker`, and the man pages.

mod helpers;

mod tools {
    mod benchmarker;
    mod manual;
    mod zkv;
}
