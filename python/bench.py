"""Lookups per second from Python: Zero-KV in several ways, redis-py, lmdb, and a dict, all with the same rows.

    cargo build --release && pip install ./python[test] && python python/bench.py

All ways look up the same random keys, which are all in the table. The ways take turns in each round, and the result is
the best round of each way. Ways with hot keys look up 1,000 of these keys again and again, from the cache of the client
if it has one. The cache of redis-py accepts only Redis as the server. If coredis is installed, its cache is measured
with both servers. The time includes the whole call in Python and creating the objects of the values. The lookups run in
one thread of one process, and servers run in other processes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import platform
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio.from_thread
import lmdb
import numpy
import pyarrow
import redis
from redis.cache import CacheConfig

import zero_kv

BATCH_KEYS = 256
HOT_KEYS = 1_000
CACHE_BYTES = 16 << 20
Way = Callable[[list[int]], int]
"""Looks keys up and returns their number."""


@contextmanager
def served(command: list[str], path: str) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while True:
            assert process.poll() is None, f"{command[0]} ended"
            try:
                redis.Redis(unix_socket_path=path).ping()
                break
            except redis.ConnectionError:
                time.sleep(0.01)
        try:
            yield
        finally:
            process.terminate()


def each(get: Callable[[Any], Any]) -> Way:
    def ask(keys: list[Any]) -> int:
        for key in keys:
            get(key)
        return len(keys)

    return ask


def batches(get_many: Callable[[Any], Any], length: int = BATCH_KEYS, of: Callable[[list[int]], Any] = list) -> Way:
    parts: dict[int, list[Any]] = {}

    def ask(keys: list[int]) -> int:
        if id(keys) not in parts:
            parts[id(keys)] = [of(keys[start : start + length]) for start in range(0, len(keys), length)]
        for part in parts[id(keys)]:
            get_many(part)
        return len(keys)

    return ask


def few(way: Way, count: int) -> Way:
    """Look up fewer keys, for ways with slow lookups."""
    some: list[list[int]] = []

    def ask(keys: list[int]) -> int:
        if not some:
            some.append(keys[:count])
        return way(some[0])

    return ask


def hot(way: Way, count: int) -> Way:
    """Look up the same `HOT_KEYS` keys again and again, `count` keys in all. The first round fills the caches of clients."""
    some: list[list[int]] = []

    def ask(keys: list[int]) -> int:
        if not some:
            some.append((keys[:HOT_KEYS] * (count // HOT_KEYS + 1))[:count])
        return way(some[0])

    return ask


def awaited(client: zero_kv.AsyncClient, loop: asyncio.AbstractEventLoop, tasks: int) -> Way:
    async def some(keys: list[int]) -> None:
        for key in keys:
            await client.get(key)

    async def all_of(keys: list[int]) -> None:
        await asyncio.gather(*(some(keys[task::tasks]) for task in range(tasks)))

    def ask(keys: list[int]) -> int:
        loop.run_until_complete(all_of(keys))
        return len(keys)

    return ask


def zero_kv_ways(stack: ExitStack, folder: pathlib.Path, rows: dict[int, bytes], programs: pathlib.Path) -> dict[str, Way]:
    path, value_len = str(folder / "zero-kv.sock"), len(next(iter(rows.values())))
    zero_kv.bake(rows, folder / "table.db")
    stack.enter_context(served([str(programs / "kv_store"), "--db", str(folder / "table.db"), "--socket", path], path))
    direct, client = zero_kv.Direct(path), stack.enter_context(zero_kv.Client(path))
    cached = stack.enter_context(zero_kv.Client(path, cache=CACHE_BYTES))
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    aio = zero_kv.AsyncClient(path)
    stack.callback(lambda: loop.run_until_complete(aio.close()))
    cached_aio = zero_kv.AsyncClient(path, cache=CACHE_BYTES)
    stack.callback(lambda: loop.run_until_complete(cached_aio.close()))

    def array(keys: list[int]) -> Any:
        return numpy.array(keys, numpy.uint64)

    def fixed(keys: Any) -> Any:
        return direct.get_many(keys, dtype=f"V{value_len}")

    return {
        "Direct: table[key]": each(direct.__getitem__),
        "Direct: get_many, list of 256": batches(direct.get_many),
        "Direct: get_many, NumPy to list, 256": batches(direct.get_many, of=array),
        "Direct: get_many, NumPy to NumPy, 256": batches(fixed, of=array),
        "Direct: get_many, NumPy to NumPy, 10,000": batches(fixed, 10_000, of=array),
        "Direct: get_many, Arrow to Arrow, 10,000": batches(
            direct.get_many, 10_000, of=lambda keys: pyarrow.array(keys, pyarrow.uint64())
        ),
        "open(file)[key]": each(zero_kv.open(folder / "table.db").__getitem__),
        "Client: get": few(each(client.get), 20_000),
        "Client: get_many of 256": batches(client.get_many),
        "AsyncClient: get, 100 tasks": few(awaited(aio, loop, 100), 20_000),
        "Client with a cache: get, 1,000 hot keys": hot(each(cached.get), 100_000),
        "Client with a cache: get_many of 256, 1,000 hot keys": hot(batches(cached.get_many), 100_000),
        "AsyncClient with a cache: get, 1,000 hot keys": hot(awaited(cached_aio, loop, 1), 100_000),
        **redis_ways("kv_store", path, str),
        **coredis_ways(stack, "kv_store", path),
    }


def redis_ways(server: str, path: str, name: Callable[[int], str]) -> dict[str, Way]:
    client = redis.Redis(unix_socket_path=path)

    def pipelined(keys: list[int]) -> None:
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.get(name(key))
        pipeline.execute()

    return {
        f"redis-py to {server}: get": few(each(lambda key: client.get(name(key))), 10_000),
        f"redis-py to {server}: pipeline of 256": few(batches(pipelined), 50_000),
        f"redis-py to {server}: mget of 256": batches(lambda keys: client.mget([name(key) for key in keys])),
    }


def coredis_ways(stack: ExitStack, server: str, path: str) -> dict[str, Way]:
    """Return the ways of coredis, which is a Redis client whose cache also accepts a server other than Redis."""
    try:
        import coredis
        from coredis.patterns.cache import LRUCache
    except ImportError:
        return {}
    portal = stack.enter_context(anyio.from_thread.start_blocking_portal())

    def connect(cache: Any) -> Any:
        return stack.enter_context(portal.wrap_async_context_manager(coredis.Redis(unix_socket_path=path, cache=cache)))

    def ask(client: Any) -> Way:
        async def get_each(keys: list[int]) -> None:
            for key in keys:
                await client.get(str(key))

        def ask(keys: list[int]) -> int:
            portal.call(get_each, keys)
            return len(keys)

        return hot(ask, 20_000)

    return {
        f"coredis to {server}: get, 1,000 hot keys": ask(connect(None)),
        f"coredis to {server}, cache: get, 1,000 hot keys": ask(connect(LRUCache())),
    }


def redis_server_ways(stack: ExitStack, folder: pathlib.Path, rows: dict[int, bytes]) -> dict[str, Way]:
    program = shutil.which("redis-server")
    if program is None:
        return {}
    path = str(folder / "redis.sock")
    stack.enter_context(served([program, "--port", "0", "--unixsocket", path, "--save", ""], path))
    client = redis.Redis(unix_socket_path=path)
    client.mset({str(key): value for key, value in rows.items()})
    # The cache of redis-py accepts only Redis as the server.
    cached = redis.Redis(unix_socket_path=path, protocol=3, cache_config=CacheConfig())
    return redis_ways("redis-server", path, str) | coredis_ways(stack, "redis-server", path) | {
        "redis-py to redis-server, cache_config: get, 1,000 hot keys": hot(each(lambda key: cached.get(str(key))), 20_000),
        "redis-py to redis-server, cache_config: mget of 256, 1,000 hot keys": hot(
            batches(lambda keys: cached.mget([str(key) for key in keys])), 20_000
        ),
    }


def lmdb_ways(stack: ExitStack, folder: pathlib.Path, rows: dict[int, bytes]) -> dict[str, Way]:
    environment = stack.enter_context(lmdb.open(str(folder / "lmdb"), map_size=1 << 30))
    with environment.begin(write=True) as transaction:
        for key, value in sorted(rows.items()):
            transaction.put(key.to_bytes(8, "big"), value)
    transaction = stack.enter_context(environment.begin(buffers=False))
    cursor = transaction.cursor()
    return {
        "lmdb: get in one transaction": each(lambda key: transaction.get(key.to_bytes(8, "big"))),
        "lmdb: getmulti of 256": batches(lambda keys: cursor.getmulti([key.to_bytes(8, "big") for key in keys])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=26)
    parser.add_argument("--lookups", type=int, default=100_000, help="lookups of each way in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    default = pathlib.Path(__file__).resolve().parents[1] / "target" / "release"
    parser.add_argument("--programs", type=pathlib.Path, default=os.environ.get("ZERO_KV_BIN", default))
    options = parser.parse_args()

    rng = random.Random(options.seed)
    rows = {rng.getrandbits(64): rng.randbytes(options.value_bytes) for _ in range(options.rows)}
    asked = rng.choices(list(rows), k=options.lookups)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = pathlib.Path(name)
        ways: dict[str, Way] = {
            **zero_kv_ways(stack, folder, rows, pathlib.Path(options.programs)),
            **redis_server_ways(stack, folder, rows),
            **lmdb_ways(stack, folder, rows),
            "dict: get": each(rows.get),
        }
        best = dict.fromkeys(ways, 0.0)
        for _ in range(options.rounds):
            for way, ask in ways.items():
                began = time.perf_counter()
                count = ask(asked)
                best[way] = max(best[way], count / (time.perf_counter() - began))
    python = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{python}, {options.rows:,} rows of {options.value_bytes} bytes, best of {options.rounds} rounds\n")
    print("| way | lookups per second |\n| --- | ---: |")
    for way, rate in best.items():
        print(f"| {way} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
