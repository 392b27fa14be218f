"""redis-py: sync.py SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs."""

import sys

import redis
from rows import MISSING, ROWS, expect, expect_values, keys, value


def expect_error(kind, call):
    try:
        found = call()
    except kind:
        return
    raise AssertionError(f"{found!r} where {kind.__name__} was expected")


def reads(r):
    expect(r.ping(), True)
    expect(r.dbsize(), ROWS)
    expect(r.get(7), value(7))
    expect(r.get(MISSING), None)
    expect(r.mget(1, MISSING, 3), [value(1), None, value(3)])
    expect(r.exists(1, 1, MISSING), 2)
    expect(r.strlen(7), len(value(7)))
    expect(r.getrange(7, 0, 4), value(7)[:5])
    expect(r.type(7), b"string")
    expect(r.ttl(7), -1)
    expect(sorted(map(int, r.scan_iter())), list(range(ROWS)))
    assert "redis_version" in r.info()
    expect_error(redis.ReadOnlyError, lambda: r.set(1, "x"))
    expect_error(redis.ResponseError, lambda: r.execute_command("NOSUCHCOMMAND"))
    expect(r.get(7), value(7))


def transactions(r):
    pipe = r.pipeline()
    for key in keys(3000):
        pipe.get(key)
    expect_values(pipe.execute(), keys(3000))
    pipe = r.pipeline()
    expect_error(redis.ReadOnlyError, pipe.get(7).set(1, "x").execute)
    with r.pipeline() as pipe:
        pipe.watch("7")
        expect(pipe.get(7), value(7))
        pipe.multi()
        expect(pipe.get(7).exists(MISSING).execute(), [value(7), 0])
    expect(r.transaction(lambda pipe: (pipe.multi(), pipe.get(3)), "3", "4"), [value(3)])
    expect(r.get(7), value(7))


def pipeline(r, count):
    for transaction in (False, True):
        pipe = r.pipeline(transaction=transaction)
        for key in keys(count):
            pipe.get(key)
        expect_values(pipe.execute(), keys(count))


socket, port, *count = sys.argv[1:]
for r in (redis.Redis(unix_socket_path=socket), redis.Redis(host="127.0.0.1", port=int(port))):
    if count:
        pipeline(r, int(count[0]))
        break
    reads(r)
    transactions(r)
