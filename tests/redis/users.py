"""Logs in with redis-py, as its documentation shows. The argument is the address of a kv_store."""

import asyncio
import sys

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

address = sys.argv[1]
host, port = address.rsplit(":", 1)


def raises(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


for protocol in (2, 3):
    table = redis.Redis(host=host, port=int(port), username="alice", password="secret", protocol=protocol)
    assert table.get("user:1") == b"value"
    assert table.get("user:9") is None
    assert table.mget("user:1", "user:2") == [b"value", b"value"]
    raises(redis.exceptions.NoPermissionError, lambda: table.get("z"))
    raises(redis.exceptions.NoPermissionError, lambda: table.acl_list())
    two = redis.Redis.from_url(f"redis://two:b@{address}?protocol={protocol}")
    assert two.pipeline(transaction=True).get("x:1").get("x:2").execute() == [b"value", None]
    assert two.acl_whoami() in (b"two", "two")
    # Since redis-py 6.2, its exception for missing permissions is reported for the queued command.
    raises(redis.exceptions.ResponseError, lambda: two.pipeline(transaction=True).get("z").execute())
    # By default, redis-py repeats a rejected login after a pause.
    once = {"host": host, "port": int(port), "protocol": protocol, "retry": Retry(NoBackoff(), 0)}
    for wrong in (
        redis.Redis(username="alice", password="wrong", **once),
        redis.Redis(password="secret", **once),
        redis.Redis(**once),
    ):
        raises(redis.exceptions.AuthenticationError, lambda: wrong.get("user:1"))


async def log_in():
    client = redis.asyncio.Redis.from_url(f"redis://alice:secret@{address}")
    assert await client.get("user:1") == b"value"
    await client.aclose()


asyncio.run(log_in())
