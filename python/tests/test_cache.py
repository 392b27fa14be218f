"""Clients with a cache: no request for hot keys, and no value of an old table once its replacement is announced."""

from __future__ import annotations

import asyncio
import multiprocessing
import pathlib
import pickle
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import zero_kv
from support import LOOPS, PROGRAMS, Server, cluster_of, serving, wait_until

COUNT = 300
CACHE_BYTES = 1 << 20


def rows_of(generation: int) -> dict[int, bytes]:
    """Return rows whose values name their generation."""
    return {key: f"{generation} {key} {'x' * (key % 50)}".encode() for key in range(COUNT)}


def generation_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.split()[0])


def swap_to(server: Server, rows: Any, **options: Any) -> None:
    with zero_kv.Client(server.path) as client:
        before = int(client.info()["generation"])
        zero_kv.bake(rows, server.file, **options)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: int(client.info()["generation"]) > before)


def requests_of(server: Server) -> int:
    """Return the number of keys that were requested."""
    with zero_kv.Client(server.path) as client:
        info = client.info()
        return int(info["requests_get"]) + int(info["requests_get_columns"])


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    zero_kv.bake(rows_of(1), tmp_path / "t.db")
    with serving(tmp_path / "t.db") as server:
        yield server


def test_hot_keys_need_no_request(server: Server) -> None:
    with zero_kv.Client(server.path, cache=CACHE_BYTES) as client:
        values = list(rows_of(1).values())
        assert client.get_many(range(COUNT)) == values and client.get(COUNT) is None
        before = requests_of(server)
        for _ in range(3):
            assert client.get(7) == client[7] == client.get_bytes(7) == values[7]
            assert client.get_many(range(COUNT)) == client.get_bytes_many(range(COUNT)) == values
            assert client.get_many(numpy.arange(COUNT)) == values
            assert client.get(COUNT, "default") == "default"
        assert requests_of(server) == before
        swap_to(server, rows_of(2))
        wait_until(lambda: generation_of(client.get(7)) == 2)
        assert client.get_many(range(COUNT)) == list(rows_of(2).values())


@pytest.mark.parametrize("loop", LOOPS)
def test_hot_keys_of_an_asyncio_client_need_no_request(loop: str, server: Server) -> None:
    async def run() -> None:
        async with zero_kv.AsyncClient(server.path, cache=CACHE_BYTES) as client:
            values = list(rows_of(1).values())
            # The second request repeats the request for the type of the keys, after the state is known.
            for _ in range(2):
                assert await client.get_many(range(COUNT)) == values and await client.get(COUNT) is None
            before = requests_of(server)
            for _ in range(3):
                assert await client.get(7) == await client.get_bytes(7) == values[7]
                assert await client.get_many(range(COUNT)) == await client.get_bytes_many(range(COUNT)) == values
                assert await client.get(COUNT, "default") == "default"
            assert requests_of(server) == before
            await asyncio.to_thread(swap_to, server, rows_of(2))
            while generation_of(await client.get(7)) != 2:
                await asyncio.sleep(0)
            assert await client.get_many(range(COUNT)) == list(rows_of(2).values())

    LOOPS[loop](run())


def test_an_asyncio_client_returns_no_old_value_after_the_notice_has_arrived(server: Server) -> None:
    """The event loop does not run between the swap and the call, so it has not read the notice."""

    async def run() -> None:
        async with zero_kv.AsyncClient(server.path, cache=CACHE_BYTES) as client:
            for generation in range(2, 12):
                for _ in range(3):
                    assert generation_of(await client.get(7)) == generation - 1
                swap_to(server, rows_of(generation))
                connection = client._connection
                assert connection is not None
                wait_until(connection._has_unread)
                assert generation_of(await client.get(7)) == generation

    asyncio.run(run())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_event_loop_does_not_wait_for_notices(loop: str, server: Server) -> None:
    async def run() -> None:
        async with zero_kv.AsyncClient(server.path, cache=CACHE_BYTES) as client:
            for _ in range(2):
                assert await client.get(7) == rows_of(1)[7]
            before = requests_of(server)
            for _ in range(3):
                assert await client.get(7) == rows_of(1)[7]
            assert requests_of(server) == before

    # A socket with this time-out waits for bytes, and then counts as one with unread bytes.
    socket.setdefaulttimeout(0.2)
    try:
        LOOPS[loop](run())
    finally:
        socket.setdefaulttimeout(None)


def test_rows_of_typed_tables_are_cached(tmp_path: pathlib.Path) -> None:
    def bake(names: list[str], path: pathlib.Path) -> None:
        rows = {key: {name: key for name in names} for key in range(10)}
        zero_kv.bake(rows, path, types={name: "u32" for name in names})

    async def run(address: str) -> None:
        async with zero_kv.AsyncClient(address, cache=CACHE_BYTES) as client:
            for _ in range(2):
                assert (await client.get(7))["age"] == 7
            before = requests_of(server)
            assert [row["age"] for row in await client.get_many([7])] == [7]
            assert requests_of(server) == before

    bake(["age"], tmp_path / "t.db")
    with serving(tmp_path / "t.db") as server, zero_kv.Client(server.path, cache=CACHE_BYTES) as client:
        asyncio.run(run(server.path))
        assert client[7]["age"] == 7 and client.get_bytes(7) is not None
        before = requests_of(server)
        assert client[7]["age"] == 7 and [row["age"] for row in client.get_many([7, 7])] == [7, 7]
        assert requests_of(server) == before
        bake(["age", "size"], tmp_path / "new.db")
        (tmp_path / "new.db").rename(tmp_path / "t.db")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "size" in dict(client[7]))
        assert client[7]["size"] == 7


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_generations_never_decrease_while_tables_are_replaced(kind: str, server: Server) -> None:
    swaps, is_over, problems = 12, threading.Event(), []

    def check(newest: int, values: list[bytes | None], keys: range) -> int:
        generations = [generation_of(value) for value in values]
        if min(generations) < newest or max(generations) > swaps:
            problems.append((newest, generations))
        if values != [rows_of(generation)[key] for generation, key in zip(generations, keys, strict=True)]:
            problems.append(values)
        return max(generations)

    def thread() -> None:
        # A client with one thread has one connection.
        with zero_kv.Client(server.path, cache=30_000) as client:
            newest, step = 0, 0
            while not is_over.is_set():
                step += 1
                keys = range(step % 100, step % 100 + 20)
                newest = check(newest, client.get_many(keys), keys)
                newest = check(newest, [client.get(7)], range(7, 8))

    async def tasks() -> None:
        async with zero_kv.AsyncClient(server.path, cache=30_000) as client:

            async def read(first: int) -> None:
                newest = 0
                while not is_over.is_set():
                    keys = range(first, first + 20)
                    newest = check(newest, await client.get_many(keys), keys)
                    newest = check(newest, [await client.get(7)], range(7, 8))
                    assert client._cache is not None and client._cache.held_bytes <= 30_000
                    await asyncio.sleep(0)

            await asyncio.gather(*(read(first) for first in range(5)))

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    works: list[Callable[[], Any]] = [thread] * 4 if kind == "threads" else [lambda: asyncio.run(tasks())]
    workers = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    try:
        for generation in range(2, swaps + 1):
            swap_to(server, rows_of(generation))
    finally:
        is_over.set()
        for worker in workers:
            worker.join()
    assert not problems


def test_threads_share_a_cache(server: Server) -> None:
    with zero_kv.Client(server.path, cache=CACHE_BYTES) as client:
        client.get_many(range(COUNT))
        before = requests_of(server)
        barrier = threading.Barrier(4)

        def read() -> None:
            barrier.wait()
            for _ in range(50):
                assert client.get_many(range(COUNT)) == list(rows_of(1).values())

        workers = [threading.Thread(target=read) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert requests_of(server) == before


def _read_in_child(client: Any, results: Any) -> None:
    results.put([client.get(7), client.get(7), client.get_many(range(COUNT)) == list(rows_of(1).values())])


def test_a_child_process_has_its_own_cache(server: Server) -> None:
    context = multiprocessing.get_context("fork")
    with zero_kv.Client(server.path, cache=CACHE_BYTES) as client:
        assert client.get(7) == rows_of(1)[7]
        is_over = threading.Event()

        def read() -> None:
            while not is_over.is_set():
                client.get(7)

        # Another thread may have locked the cache during the fork.
        worker = threading.Thread(target=read)
        worker.start()
        try:
            for _ in range(5):
                results = context.Queue()
                child = context.Process(target=_read_in_child, args=(client, results))
                child.start()
                assert results.get(timeout=60) == [rows_of(1)[7], rows_of(1)[7], True]
                child.join()
        finally:
            is_over.set()
            worker.join()


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_client_of_a_cluster_has_a_cache(kind: str, tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "t.db"
    zero_kv.bake(rows_of(1), whole)
    with cluster_of(whole, 3) as cluster:
        loop = asyncio.new_event_loop()
        make: Any = zero_kv.ClusterClient if kind == "blocking" else zero_kv.AsyncClusterClient
        client = make(cluster.addresses(), cache=CACHE_BYTES)

        def call(result: Any) -> Any:
            return result if kind == "blocking" else loop.run_until_complete(result)

        def requests() -> int:
            return sum(requests_of(node) for node in cluster.servers.values())

        try:
            for _ in range(2):
                assert call(client.get_many(range(COUNT))) == list(rows_of(1).values())
            before = requests()
            for key in range(0, COUNT, 10):
                assert call(client.get(key)) == rows_of(1)[key]
            assert call(client.get_many(range(COUNT))) == list(rows_of(1).values())
            assert requests() == before
            # One node after another replaces its table.
            zero_kv.bake(rows_of(2), whole)
            for position, file in enumerate(cluster.files):
                node = cluster.servers[f"p{position}"]
                with zero_kv.Client(node.path) as direct:
                    generation = int(direct.info()["generation"])
                    merge = [PROGRAMS / "baker", "merge", whole, "--quiet", "--slots", file.stem, "-o", file]
                    subprocess.run(merge, check=True)
                    node.process.send_signal(signal.SIGHUP)
                    wait_until(lambda: int(direct.info()["generation"]) > generation)
            wait_until(lambda: call(client.get_many(range(COUNT))) == list(rows_of(2).values()))
            assert call(client.get_many(range(COUNT))) == list(rows_of(2).values())
        finally:
            if kind == "asyncio":
                loop.run_until_complete(client.close())
            loop.close()


def test_a_change_of_slots_invalidates(tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "t.db"
    zero_kv.bake(rows_of(1), whole)
    with cluster_of(whole, 2) as cluster:
        client = zero_kv.ClusterClient(cluster.addresses(), cache=CACHE_BYTES)
        for _ in range(2):
            assert client.get_many(range(COUNT)) == list(rows_of(1).values())
        before = requests_of(cluster.servers["p0"])
        assert client.get_many(range(COUNT)) == list(rows_of(1).values())
        assert requests_of(cluster.servers["p0"]) == before
        # The topology has another number, and the same nodes.
        cluster.write_topology(2)
        wait_until(lambda: client.get_many(range(COUNT)) == [] or requests_of(cluster.servers["p0"]) > before)
        assert client.get_many(range(COUNT)) == list(rows_of(1).values())


def test_arguments(server: Server) -> None:
    for client in (zero_kv.Client, zero_kv.AsyncClient):
        with pytest.raises(TypeError, match="'cache'"):
            asyncio.run(_use(client, server.path, "64 MiB"))
        with pytest.raises(OverflowError):
            asyncio.run(_use(client, server.path, -1))
    with zero_kv.Client(server.path, cache=0) as client:
        assert client.get(7) == client.get(7) == rows_of(1)[7]
        assert requests_of(server) >= 2
    with pickle.loads(pickle.dumps(zero_kv.Client(server.path, cache=1000))) as client:
        assert client.get(7) == rows_of(1)[7]
    copy = pickle.loads(pickle.dumps(zero_kv.AsyncClient(server.path, cache=1000)))
    assert asyncio.run(copy.get(7)) == rows_of(1)[7]


async def _use(make: Any, address: str, cache: Any) -> Any:
    client = make(address, cache=cache)
    return client.get(7) if isinstance(client, zero_kv.Client) else await client.get(7)
