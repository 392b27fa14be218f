"""redis-py's RedisCluster as a client of a cluster of kv_store. Arguments: a port, and the number of rows."""

import asyncio
import sys

import redis
import redis.asyncio

port, rows = int(sys.argv[1]), int(sys.argv[2])


def value(key):
    return f"value {key}".encode() if key < rows else None


def check(client):
    for key in range(0, rows + 50, 7):
        assert client.get(key) == value(key), key
    keys = list(range(0, rows + 50, 13))
    assert client.mget_nonatomic(keys) == [value(key) for key in keys]
    assert client.exists(*keys) == sum(key < rows for key in keys)
    pipeline = client.pipeline()
    for key in keys:
        pipeline.get(key)
    assert pipeline.execute() == [value(key) for key in keys]
    assert client.dbsize(target_nodes=redis.RedisCluster.PRIMARIES) == rows
    assert sorted(int(key) for key in client.scan_iter(count=500)) == list(range(rows))
    try:
        client.set(1, "x")
        raise AssertionError("a write succeeded")
    except redis.exceptions.RedisError as error:
        # redis-py finds no SET in the reply to COMMAND.
        assert "SET command doesn't exist" in str(error), error


for protocol in (2, 3):
    with redis.RedisCluster("127.0.0.1", port, protocol=protocol) as client:
        check(client)
        assert client.cluster_info(target_nodes=client.get_random_node())["cluster_state"] == "ok"
        assert len(client.get_primaries()) == 4 and len(client.get_replicas()) == 4

with redis.RedisCluster("127.0.0.1", port, read_from_replicas=True) as client:
    for key in range(rows + 50):
        assert client.get(key) == value(key), key


async def check_async():
    # redis-py opens a connection for each concurrent request, at most 100 for each node. If requests are sent before it has
    # read the topology, redis-py 8.1.0 sometimes closes their connections.
    client = await redis.asyncio.RedisCluster("127.0.0.1", port)
    keys = list(range(0, rows + 50, 3))
    for first in range(0, len(keys), 64):
        some = keys[first : first + 64]
        assert await asyncio.gather(*(client.get(key) for key in some)) == [value(key) for key in some]
    await client.aclose()


asyncio.run(check_async())
print("ok")
