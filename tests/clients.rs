//! Tests of the crate's clients, over a socket and in direct mode.

mod helpers;

mod clients {
    mod direct;
    mod socket;
}
