//! The protocols that `docs/PROTOCOL.md` and `docs/REDIS.md` specify, as bytes on raw sockets.

#![cfg(feature = "cli")]

mod helpers;

mod protocol {
    mod native;
    mod redis;
    mod vectors;
}
