"""redis-py's asyncio client: async.py SOCKET PORT [COUNT] checks reads and transactions, or a pipeline of COUNT GETs."""

import asyncio
import sys

import redis.asyncio as redis
from redis.exceptions import ReadOnlyError, ResponseError
from rows import MISSING, ROWS, expect, expect_values, keys, value


async def expect_error(kind, call):
    try:
        found = await call
    except kind:
        return
    raise AssertionError(f"{found!r} where {kind.__name__} was expected")


async def reads(r):
    expect(await r.ping(), True)
    expect(await r.dbsize(), ROWS)
    expect(await r.get(7), value(7))
    expect(await r.get(MISSING), None)
    expect(await r.mget(1, MISSING, 3), [value(1), None, value(3)])
    expect(await r.exists(1, 1, MISSING), 2)
    expect(await r.strlen(7), len(value(7)))
    expect(await r.getrange(7, 0, 4), value(7)[:5])
    expect(await r.type(7), b"string")
    expect(await r.ttl(7), -1)
    expect(sorted([int(key) async for key in r.scan_iter()]), list(range(ROWS)))
    assert "redis_version" in await r.info()
    await expect_error(ReadOnlyError, r.set(1, "x"))
    await expect_error(ResponseError, r.execute_command("NOSUCHCOMMAND"))
    expect(await asyncio.gather(*map(r.get, range(100))), [value(key) for key in range(100)])


async def transactions(r):
    pipe = r.pipeline()
    for key in keys(3000):
        pipe.get(key)
    expect_values(await pipe.execute(), keys(3000))
    await expect_error(ReadOnlyError, r.pipeline().get(7).set(1, "x").execute())
    async with r.pipeline() as pipe:
        await pipe.watch("7")
        expect(await pipe.get(7), value(7))
        pipe.multi()
        expect(await pipe.get(7).exists(MISSING).execute(), [value(7), 0])
    expect(await r.transaction(lambda pipe: (pipe.multi(), pipe.get(3)), "3", "4"), [value(3)])
    expect(await r.get(7), value(7))


async def pipeline(r, count):
    for transaction in (False, True):
        pipe = r.pipeline(transaction=transaction)
        for key in keys(count):
            pipe.get(key)
        expect_values(await pipe.execute(), keys(count))


async def main(socket, port, *count):
    for r in (redis.Redis(unix_socket_path=socket), redis.Redis(host="127.0.0.1", port=int(port))):
        async with r:
            if count:
                return await pipeline(r, int(count[0]))
            await reads(r)
            await transactions(r)


asyncio.run(main(*sys.argv[1:]))
