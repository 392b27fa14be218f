"""Checks that redis-py reads hashes from kv_store and from Redis; hashes.rs runs this script with a socket and a version.

The servers have the rows of hashes.rs.
"""

import sys

import redis

socket, protocol = sys.argv[1], int(sys.argv[2])
client = redis.Redis(unix_socket_path=socket, protocol=protocol)


def expect(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


for key in [*range(60), 100, 101, 102, 103]:
    row = client.hgetall(key)
    expect(client.hlen(key), len(row))
    expect(set(client.hkeys(key)), set(row))
    expect(sorted(client.hvals(key)), sorted(row.values()))
    expect(dict(client.hscan_iter(key)), row)
    expect(dict(client.hscan_iter(key, count=2)), row)
    expect(dict(client.hscan_iter(key, match="u*")), {name: text for name, text in row.items() if name.startswith(b"u")})
    names = [b"name", b"nope", b"i8", b"day"]
    expect(client.hmget(key, names), [row.get(name) for name in names])
    expect([client.hget(key, name) for name in names], [row.get(name) for name in names])
    expect([client.hexists(key, name) for name in names], [name in row for name in names])
    expect(client.hstrlen(key, "i8"), len(row[b"i8"]))
    assert client.hrandfield(key) in row
    assert set(client.hrandfield(key, 3)) <= set(row)
    pairs = client.hrandfield(key, -7, withvalues=True)
    pairs = pairs if protocol == 3 else list(zip(pairs[::2], pairs[1::2]))
    expect(len(pairs), 7)
    assert all(row[name] == text for name, text in pairs)
    expect(client.type(key), b"hash")
    expect(client.hget(key, "u32"), b"%d" % (key * 7))

expect(client.hgetall(2000), {})
expect(client.hget(2000, "name"), None)
expect(set(client.scan_iter(_type="hash")), {b"%d" % key for key in [*range(60), 100, 101, 102, 103]})
for transaction in (False, True):
    with client.pipeline(transaction=transaction) as pipe:
        for key in range(60):
            pipe.hgetall(key)
            pipe.hget(key, "i8")
        replies = pipe.execute()
    expect([row[b"i8"] for row in replies[::2]], replies[1::2])
try:
    client.get(1)
except redis.ResponseError as error:
    assert "WRONGTYPE" in str(error), error
else:
    raise AssertionError("GET of a hash succeeded")
