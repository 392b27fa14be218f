//! Tests of the crate's clients, over a socket and in direct mode.

use testkit as helpers;

mod clients {
    mod covers;
    mod direct;
    mod socket;
}
