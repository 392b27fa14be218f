"""Columns of typed tables over both clients."""

from __future__ import annotations

import asyncio
import pathlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import zero_kv
from support import BlockingCalls, Server, seeded, serving

pyarrow = pytest.importorskip("pyarrow")

TYPES = {"price": "f32", "stock": "i64?", "weight": "f32?", "name": "text?", "tags": "list(i16)"}


def rows(count: int = 500) -> dict[int, dict[str, Any]]:
    rng = seeded("typed clients")
    return {
        key: {
            "price": key / 4,
            "stock": rng.choice((None, key)),
            "weight": rng.choice((None, key / 2)),
            "name": rng.choice((None, f"item {key}")),
            "tags": [key % 7] * rng.randrange(3),
        }
        for key in range(0, 2 * count, 2)
    }


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    zero_kv.bake(rows(), tmp_path / "typed.db", types=TYPES, key="id")
    with serving(tmp_path / "typed.db") as server:
        yield server


@pytest.fixture(params=["client", "asyncio"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    if request.param == "asyncio":
        yield BlockingCalls(lambda: zero_kv.AsyncClient(server.path))
    else:
        with zero_kv.Client(server.path) as client:
            yield client


def test_clients_return_what_a_table_returns(client: Any, server: Server) -> None:
    table = zero_kv.open(server.file)
    assert client.schema() == table.schema() and client.schema().key_name == "id"
    keys = seeded("keys").choices(range(1100), k=400)
    assert client.get_rows(keys) == [table.get(key) for key in keys] and client.get_rows([]) == []
    assert client.get_row(2) == table[2] and client.get_row(3) is None and client.get_row(3, "none") == "none"
    assert isinstance(client.get_row(2), zero_kv.TypedRow)
    for columns in (["weight", "price"], ["price"]):
        found, expected = client.columns(keys, columns), table.columns(keys, columns)
        assert found.dtype == expected.dtype and numpy.array_equal(found, expected, equal_nan=True)
        out = numpy.empty_like(expected)
        assert client.columns(numpy.array(keys, numpy.uint64), columns, out=out) is out
        assert numpy.array_equal(out, expected, equal_nan=True)
    assert (client.columns(keys, ["stock"], fill=-1) == table.columns(keys, ["stock"], fill=-1)).all()
    found, expected = client.columns(keys, fill=0), table.columns(keys, fill=0)
    assert list(found) == list(expected)
    for name in found:
        assert found[name].tolist() == expected[name].tolist(), name
    assert client.columns(keys, ["tags", "name"], format="arrow") == table.columns(keys, ["tags", "name"], format="arrow")
    asked = pyarrow.array([2, None, 4, 5], pyarrow.uint64())
    assert client.columns(asked, format="arrow") == table.columns(asked, format="arrow")
    assert client.columns(asked, ["name"])["name"].tolist() == table.columns(asked, ["name"])["name"].tolist()
    assert client.columns(asked.drop_null(), ["price"], fill=0).tolist() == [[0.5], [1.0], [0.0]]
    assert client.columns([], ["price"]).shape == (0, 1)
    with pytest.raises(ValueError, match='no column "nothing"'):
        client.columns([2], ["nothing"])
    null = next(key for key, row in table.items() if row["stock"] is None)
    with pytest.raises(ValueError, match="column 'stock' has no value for 1 of 1 keys"):
        client.columns([null], ["stock"])
    with pytest.raises(TypeError, match="columns is a str"):
        client.columns([2], "price")


def test_gets_follow_tables_with_and_without_columns(server: Server) -> None:
    async def ask() -> None:
        async with zero_kv.AsyncClient(server.path) as client:
            for columns in (None, ["a"], ["b", "a"], None):
                if columns is None:
                    digest = zero_kv.bake({2: b"value"}, server.file).digest
                    expected: Any = b"value"
                else:
                    digest = zero_kv.bake({2: [1.5] * len(columns)}, server.file, types=dict.fromkeys(columns, "f32")).digest
                    expected = dict.fromkeys(columns, 1.5)
                while digest not in blocking.info().values():
                    pass
                # Idle connections know the columns of the table before.
                assert blocking.get(2) == blocking[2] == await client.get(2) == await client[2] == expected
                assert blocking.get_many([2, 3]) == await client.get_many([2, 3]) == [expected, None]
                assert await asyncio.gather(*(client.get(2) for _ in range(20))) == [expected] * 20
                assert isinstance(blocking.get_bytes(2), bytes) and blocking.get_bytes(2) == await client.get_bytes(2)
                assert blocking.floor(3) == blocking.last() == await client.floor(3) == await client.last() == (2, expected)
                assert blocking.ceiling_many([1, 3]) == await client.ceiling_many([1, 3]) == [(2, expected), None]

    with zero_kv.Client(server.path) as blocking:
        assert blocking.get(2)["price"] == 0.5
        asyncio.run(ask())


def test_a_table_without_columns_is_reported(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: "one"}, tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as blocking:
        for client in (blocking, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))):
            assert client.schema() is None
            for call in (lambda: client.columns([1], ["a"]), lambda: client.get_row(1), lambda: client.get_rows([1])):
                with pytest.raises(zero_kv.NotTyped, match="the table has no schema"):
                    call()


def test_byte_keys_select_rows(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"a": (1.5,), "bb": (2.5,)}, tmp_path / "table.db", types={"x": "f64"})
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as blocking:
        for client in (blocking, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))):
            assert client.columns(["bb", b"a", "c"], ["x"], fill=0).tolist() == [[2.5], [1.5], [0]]
            assert client.columns(pyarrow.array(["bb", "a"]), ["x"]).tolist() == [[2.5], [1.5]]


def replace(server: Server, client: zero_kv.Client, value: float, types: dict[str, str]) -> None:
    digest = zero_kv.bake({key: [value] * len(types) for key in range(300)}, server.file, types=types).digest
    while digest not in client.info().values():
        pass


def test_a_new_schema_is_requested_again(server: Server) -> None:
    other = {"weight": "f64", "price": "f32"}

    async def read() -> None:
        async with zero_kv.AsyncClient(server.path) as client:
            assert (await client.columns([2], ["price"])).tolist() == [[0.5]]
            replace(server, blocking, 7, other)
            # All tasks use one connection, on which the old columns are selected.
            found = await asyncio.gather(
                *(client.columns([key], [name]) for key in range(100) for name in ("price", "weight"))
            )
            assert all(matrix.tolist() == [[7]] for matrix in found)
            assert (await client.get_row(2)) == {"weight": 7, "price": 7}
            replace(server, blocking, 8, {"fresh": "f32"})
            assert (await client.columns([2], ["fresh"])).tolist() == [[8]]
            with pytest.raises(ValueError, match='no column "price"'):
                await client.columns([2], ["price"])

    with zero_kv.Client(server.path) as blocking:
        assert blocking.columns([2], ["price"]).tolist() == [[0.5]]
        asyncio.run(read())
        assert blocking.columns([2], ["fresh"]).tolist() == [[8]] and blocking.get_row(2) == {"fresh": 8}


def test_nearest_rows_have_the_schema_of_their_table(server: Server) -> None:
    """The server swaps between a table without columns, and two tables whose columns have another order."""
    kinds = [{"a": "f32", "b": "f32"}, {"b": "f32", "a": "f32"}, None]
    is_ended = threading.Event()

    def swap() -> None:
        try:
            with zero_kv.Client(server.path) as client:
                for number in range(30):
                    types = kinds[number % len(kinds)]
                    row: Any = b"12345678" if types is None else {"a": 1.5, "b": 2.5}
                    digest = zero_kv.bake({2: row}, server.file, types=types).digest
                    while digest not in client.info().values():
                        pass
                    swaps.append(digest)
        finally:
            is_ended.set()

    async def ask() -> None:
        async with zero_kv.AsyncClient(server.path) as client:
            while not is_ended.is_set():
                for found in (await client.floor(2), blocking.floor(2), *blocking.ceiling_many([2] * 10)):
                    assert found in ((2, {"a": 1.5, "b": 2.5}), (2, b"12345678"), first)
                    seen.add(type(found[1]))

    seen: set[type] = set()
    swaps: list[str] = []
    swap_thread = threading.Thread(target=swap)
    with zero_kv.Client(server.path) as blocking:
        first = blocking.floor(2)
        swap_thread.start()
        asyncio.run(ask())
        swap_thread.join()
    assert len(swaps) == 30 and seen == {bytes, zero_kv.TypedRow}


def test_tasks_with_different_columns_share_a_connection(server: Server) -> None:
    table = zero_kv.open(server.file)
    choices = [["price"], ["weight"], ["weight", "price"], ["price", "weight"]]

    async def ask() -> None:
        rng = seeded("tasks")
        async with zero_kv.AsyncClient(server.path) as client:
            calls = [(rng.choices(range(1100), k=rng.randrange(5)), rng.choice(choices)) for _ in range(300)]
            found = await asyncio.gather(*(client.columns(keys, columns) for keys, columns in calls))
            for (keys, columns), matrix in zip(calls, found, strict=True):
                assert numpy.array_equal(matrix, table.columns(keys, columns), equal_nan=True)
            assert pickle.loads(pickle.dumps(client)) is not None

    asyncio.run(ask())
