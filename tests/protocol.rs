//! The protocols that `docs/PROTOCOL.md` and `docs/REDIS.md` specify, tested with bytes on raw sockets.

mod helpers;

mod protocol {
    mod native;
    mod redis;
    mod vectors;
}
