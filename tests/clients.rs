//! Tests of the crate's clients, over a socket and in direct mode.

#![cfg(feature = "cli")]

mod helpers;

mod clients {
    mod direct;
    mod socket;
}
