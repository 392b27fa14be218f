"""Checks that redis-py reads addresses; key_types.rs runs this script with a socket and a version of the protocol."""

import ipaddress
import sys

import redis

client = redis.Redis(unix_socket_path=sys.argv[1], protocol=int(sys.argv[2]))
rows = {"10.0.0.1": b"ten", "192.0.2.1": b"documentation", "2001:db8::1": b"six"}


def expect(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


keys = [key.encode() for key in rows]
expect([client.get(key) for key in rows], list(rows.values()))
expect(client.get(str(ipaddress.ip_address("2001:db8::1"))), b"six")
expect(client.mget("::ffff:10.0.0.1", "2001:DB8:0::1", "10.0.0.2"), [b"ten", b"six", None])
expect(client.exists(*rows, "10.0.0.2"), 3)
expect(sorted(client.scan_iter(match="10.*")), keys[:1])
expect(sorted(client.scan_iter(count=1)), sorted(keys))
expect(client.keys("*.1"), keys[:2])
assert client.randomkey() in keys
expect(client.execute_command("ZKV.FLOOR", "192.0.2.200"), [b"192.0.2.1", b"documentation"])
expect(client.execute_command("ZKV.COUNT", "10.0.0.0", "192.255.255.255"), 2)
for transaction in (False, True):
    with client.pipeline(transaction=transaction) as pipe:
        for key in rows:
            pipe.get(key)
        expect(pipe.execute(), list(rows.values()))
try:
    client.get("localhost")
except redis.ResponseError as error:
    assert "such as 192.0.2.1 or 2001:db8::1" in str(error), error
else:
    raise AssertionError("GET of a name succeeded")
