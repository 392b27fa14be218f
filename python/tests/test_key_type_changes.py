"""A server replaces its table by one whose keys have another type. Calls find the rows of the new table."""

from __future__ import annotations

import asyncio
import datetime
import functools
import pathlib
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import numpy
import pyarrow
import pytest

import zero_kv
from support import PROGRAMS, Cluster, Server, bake_text, cluster_of, serving, wait_until

TYPES = ["u64", "i64", "date", "ip", "uuid", "bytes", "u64"]
COUNT = 200


def key_of(key_type: str, number: int) -> Any:
    """Return a key of a type."""
    kinds: dict[str, Callable[[int], Any]] = {
        "date": lambda number: datetime.date.fromordinal(730_000 + number),
        "ip": lambda number: ip_address("10.0.0.0") + number,
        "uuid": lambda number: uuid.UUID(int=number),
        "bytes": lambda number: str(number).encode(),
    }
    return kinds.get(key_type, int)(number)


def bake(path: pathlib.Path, key_type: str, **options: Any) -> None:
    """Bake rows whose values name the type of the keys. The keys of `u64` and `i64` are equal numbers."""
    rows = {key_of(key_type, number): f"{key_type} {number}".encode() for number in range(COUNT)}
    zero_kv.bake(rows, path, keys=key_type, allow_key_type_change=True, **options)


def swap_to(key_type: str, server: Server) -> None:
    swap(server, lambda: bake(server.file, key_type))


def swap(server: Server, write: Callable[[], object]) -> None:
    with zero_kv.Client(server.path) as client:
        before = int(client.info()["generation"])
        write()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: int(client.info()["generation"]) > before)


@pytest.fixture
def server(tmp_path: pathlib.Path):
    bake(tmp_path / "t.db", "u64")
    with serving(tmp_path / "t.db", "--allow-key-type-change") as server:
        yield server


def checks(key_type: str) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Return calls of a client, and their results."""
    keys = [key_of(key_type, number) for number in range(COUNT)]
    values = [f"{key_type} {number}".encode() for number in range(COUNT)]
    rows = list(zip(keys, values, strict=True))
    if key_type == "bytes":
        rows.sort()
    return {
        "get": (lambda client: client.get(keys[7]), values[7]),
        "get_bytes": (lambda client: client.get_bytes(keys[8]), values[8]),
        "get_many": (lambda client: client.get_many(keys), values),
        "get_many of an iterator": (lambda client: client.get_many(iter(keys)), values),
        "get_bytes_many": (lambda client: client.get_bytes_many(keys), values),
        "contains": (lambda client: client.contains(keys[9]), True),
        "contains_many": (lambda client: client.contains_many(iter(keys)), [True] * COUNT),
        "floor": (lambda client: client.floor(keys[10]), (keys[10], values[10])),
        "ceiling_many": (lambda client: client.ceiling_many(iter(keys[:3])), list(zip(keys, values, strict=True))[:3]),
        "first": (lambda client: client.first(), rows[0]),
        "last": (lambda client: client.last(), rows[-1]),
        "count": (lambda client: client.count(rows[5][0], rows[9][0]), 4),
        "range": (lambda client: client.range(rows[5][0], rows[9][0]), rows[5:9]),
        "items": (lambda client: client.items(), rows),
        "keys": (lambda client: client.keys(), [key for key, _ in rows]),
    }


@pytest.mark.parametrize("name", checks("u64"))
def test_a_client_finds_the_rows_of_the_new_table(name: str, server: Server) -> None:
    with zero_kv.Client(server.path) as client:
        for key_type, following in zip(TYPES, TYPES[1:]):
            call, expected = checks(key_type)[name]
            result = call(client)
            assert (list(result) if isinstance(result, zero_kv.ClientRows) else result) == expected, key_type
            swap_to(following, server)


@pytest.mark.parametrize("name", checks("u64"))
def test_an_asyncio_client_finds_the_rows_of_the_new_table(name: str, server: Server) -> None:
    async def run() -> None:
        async with zero_kv.AsyncClient(server.path) as client:
            for key_type, following in zip(TYPES, TYPES[1:]):
                call, expected = checks(key_type)[name]
                result = call(client)
                found = [row async for row in result] if hasattr(result, "__aiter__") else await result
                assert found == expected, key_type
                await asyncio.to_thread(swap_to, following, server)

    asyncio.run(run())


def test_keys_that_the_old_table_could_not_have_are_found_in_the_new_one(server: Server) -> None:
    async def find_some(address: str) -> None:
        async with zero_kv.AsyncClient(address) as client:
            assert await client.get(-5) is None
            assert await client.get_many([-5, None]) == [None, None]
            zero_kv.bake({-5: b"minus five"}, server.file, keys="i64", allow_key_type_change=True)
            await asyncio.to_thread(reload)
            assert await client.get(-5) == b"minus five"
            zero_kv.bake({key_of("ip", 1): b"one"}, server.file, keys="ip", allow_key_type_change=True)
            await asyncio.to_thread(reload)
            assert await client.get_many([key_of("ip", 1), None]) == [b"one", None]
            zero_kv.bake({-5: b"minus five"}, server.file, keys="i64", allow_key_type_change=True)
            await asyncio.to_thread(reload)
            assert await client.contains_many([-5]) == [True]

    def reload() -> None:
        with zero_kv.Client(server.path) as client:
            before = int(client.info()["reload_done"])
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: int(client.info()["reload_done"]) > before)

    with zero_kv.Client(server.path) as client:
        assert client.get(-5) is None and -5 not in client and client.get_many([-5, None]) == [None, None]
        zero_kv.bake({-5: b"minus five"}, server.file, keys="i64", allow_key_type_change=True)
        reload()
        assert client.get(-5) == b"minus five" and -5 in client and client.get_many([-5]) == [b"minus five"]
        zero_kv.bake({key_of("ip", 1): b"one"}, server.file, keys="ip", allow_key_type_change=True)
        reload()
        assert client.get_many([None, key_of("ip", 1)]) == [None, b"one"]
        zero_kv.bake({5: b"five"}, server.file, keys="u64", allow_key_type_change=True)
        reload()
        assert list(client.range(3, 8)) == [(5, b"five")]
    asyncio.run(find_some(server.path))


def test_arrays_of_keys_find_the_rows_of_the_new_table(server: Server) -> None:
    numbers = numpy.arange(COUNT, dtype="int64")
    with zero_kv.Client(server.path) as client:
        for key_type in ["u64", "i64", "u64"]:
            expected = [f"{key_type} {number}".encode() for number in range(COUNT)]
            assert client.get_many(numbers) == expected
            assert client.get_many(pyarrow.array(numbers)).to_pylist() == expected
            values, found = client.get_many(numbers[:10], dtype="S5")
            assert values.tolist() == expected[:10] and found.all()
            swap_to("u64" if key_type == "i64" else "i64", server)


UUIDS = pyarrow.array([uuid.UUID(int=5).bytes, None, uuid.UUID(int=4).bytes], pyarrow.uuid())

# For each type: a key, a range that contains it, and Arrow keys, of which only the first has a row at or below it.
# UUIDs are keys of both types that follow each other: in a table of bytes, they are text.
ARROW: dict[str, tuple[Any, str, pyarrow.Array]] = {
    "u64": (5, "1,9", pyarrow.array([5, None, 0], pyarrow.uint64())),
    "ip": (ip_address("10.0.0.5"), "10.0.0.1,10.0.0.9", pyarrow.array(["10.0.0.5", None, "10.0.0.0"])),
    "date": (
        datetime.date(2026, 1, 5),
        "2026-01-01,2026-01-09",
        pyarrow.array([datetime.date(2026, 1, 5), None, datetime.date(2025, 12, 31)]),
    ),
    "uuid": (uuid.UUID(int=5), f"{uuid.UUID(int=5)},{uuid.UUID(int=9)}", UUIDS),
    "bytes": (str(uuid.UUID(int=5)).encode(), "", UUIDS),
}


METHODS = ["get_many", "columns", "floor_many", "floor_columns", "cover_many", "cover_columns"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_arrow_keys_find_the_rows_columns_and_ranges_of_the_new_table(
    kind: str, method: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "t.db"
    has_ranges = method.startswith("cover")

    def write(key_type: str) -> None:
        key, ends, _ = ARROW[key_type]
        if not has_ranges:
            rows = {key: {"name": key_type}}
            zero_kv.bake(rows, path, keys=key_type, types={"name": "text"}, allow_key_type_change=True)
            return
        options = ["--header", "--ranges", "start,end", "--types", "name:text", "--keys", key_type]
        bake_text(path, f"start,end,name\n{ends},{key_type}\n", *options, "--allow-key-type-change")

    def names(result: Any) -> list[str | None]:
        """Return the column `name`, which the bytes of a row end with."""
        if method.endswith("columns"):
            columns = result[1] if method == "floor_columns" else result
            found: list[str | None] = columns["name"].tolist()
            return found
        values = (result if method == "get_many" else result[-1]).to_pylist()
        return [value and next(name for name in ARROW if value.endswith(name.encode())) for value in values]

    async def check_asyncio(server: Server) -> None:
        async with zero_kv.AsyncClient(server.path) as client:
            for key_type, following in changes:
                keys = ARROW[key_type][2]
                call = getattr(client, method)
                found = await (call(keys, ["name"]) if method.endswith("columns") else call(keys))
                assert names(found) == [key_type, None, None]
                await asyncio.to_thread(swap, server, functools.partial(write, following))

    types = [key_type for key_type, (_, ends, _) in ARROW.items() if ends or not has_ranges]
    changes = list(zip([*types, *reversed(types)], [*types[1:], *reversed(types), types[0]], strict=True))
    write(types[0])
    with serving(path, "--allow-key-type-change") as server:
        if kind == "asyncio":
            asyncio.run(check_asyncio(server))
            return
        with zero_kv.Client(server.path) as client:
            for key_type, following in changes:
                keys = ARROW[key_type][2]
                call = getattr(client, method)
                found = call(keys, ["name"]) if method.endswith("columns") else call(keys)
                assert names(found) == [key_type, None, None]
                swap(server, functools.partial(write, following))


def test_an_iteration_that_has_returned_rows_is_an_error(tmp_path: pathlib.Path) -> None:
    def rows(key_type: str) -> None:
        rows = {number: b"x" * 3000 for number in range(100)}
        zero_kv.bake(rows, tmp_path / "t.db", keys=key_type, allow_key_type_change=True)

    rows("u64")
    with serving(tmp_path / "t.db", "--allow-key-type-change") as server, zero_kv.Client(server.path) as client:
        found = iter(client.items())
        assert next(found)[0] == 0
        swap(server, lambda: rows("i64"))
        with pytest.raises(zero_kv.KeyTypeChanged, match="no longer the one"):
            list(found)
        assert len(list(client.items())) == 100


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_no_call_misses_a_key_while_the_type_changes(kind: str, server: Server) -> None:
    """The keys of both tables are equal numbers, so each call must find all of them."""
    is_over = threading.Event()
    problems: list[Any] = []

    def check(found: list[bytes | None]) -> None:
        kinds = {None if value is None else value.split()[0] for value in found}
        if not kinds <= {b"u64", b"i64"}:
            problems.append(found)

    async def tasks() -> None:
        async with zero_kv.AsyncClient(server.path) as client:

            async def read() -> None:
                while not is_over.is_set():
                    check(await client.get_many(range(10)))
                    check([await client.get(7)])

            await asyncio.gather(*(read() for _ in range(8)))

    def thread(client: zero_kv.Client[Any, Any]) -> None:
        while not is_over.is_set():
            check(client.get_many(range(10)))
            check([client.get(7)])

    def guarded(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            problems.append(error)

    with zero_kv.Client(server.path) as client:
        work = [threading.Thread(target=guarded, args=(thread, client)) for _ in range(6)]
        if kind == "tasks":
            work = [threading.Thread(target=guarded, args=(lambda: asyncio.run(tasks()),))]
        for worker in work:
            worker.start()
        try:
            for key_type in ["i64", "u64"] * 4:
                swap_to(key_type, server)
        finally:
            is_over.set()
            for worker in work:
                worker.join()
    assert not problems


def swap_node(cluster: Cluster, position: int, whole: pathlib.Path) -> None:
    file = cluster.files[position]
    server = cluster.servers[f"p{position}"]
    with zero_kv.Client(server.path) as client:
        before = int(client.info()["generation"])
        merge = [PROGRAMS / "baker", "merge", whole, "--quiet", "--slots", file.stem, "-o", file, "--allow-key-type-change"]
        subprocess.run(merge, check=True)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: int(client.info()["generation"]) > before)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_client_of_a_cluster_finds_the_rows_of_the_new_table(kind: str, tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "t.db"
    bake(whole, "u64")
    with cluster_of(whole, 3, 0, "--allow-key-type-change") as cluster:
        loop = asyncio.new_event_loop()
        client: Any
        if kind == "blocking":
            client = zero_kv.ClusterClient(cluster.addresses())
        else:
            client = zero_kv.AsyncClusterClient(cluster.addresses())

        def get_many(numbers: range) -> list[bytes | None]:
            found = client.get_many(numbers)
            return found if kind == "blocking" else loop.run_until_complete(found)

        try:
            for key_type in ["u64", "i64", "u64"]:
                expected = [f"{key_type} {number}".encode() for number in range(COUNT)]
                assert get_many(range(COUNT)) == expected
                bake(whole, "u64" if key_type == "i64" else "i64")
                for position in range(3):
                    # While the nodes have tables with different types, a call for keys of all nodes fails.
                    if position == 1:
                        with pytest.raises(zero_kv.KeyTypeChanged):
                            get_many(range(COUNT))
                    swap_node(cluster, position, whole)
        finally:
            if kind == "asyncio":
                loop.run_until_complete(client.close())
            loop.close()


def test_a_table_in_direct_mode_finds_the_rows_of_the_new_table(server: Server) -> None:
    with zero_kv.Direct(server.path) as table:
        for key_type in ["u64", "i64", "u64"]:
            wait_until(lambda: table.key_type == key_type)
            assert table.get(7) == f"{key_type} 7".encode()
            assert table.get_many(range(COUNT)) == [f"{key_type} {number}".encode() for number in range(COUNT)]
            swap_to("u64" if key_type == "i64" else "i64", server)
