//! The protocols that `docs/PROTOCOL.md` and `docs/REDIS.md` specify, tested with bytes on raw sockets.

use testkit as helpers;

mod protocol {
    mod native;
    mod redis;
    mod vectors;
}
