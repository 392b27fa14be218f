"""Tables and clients behave as Python's mappings do."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pytest

import zero_kv
from conftest import ROWS
from support import Server, check_facts

IMPOSSIBLE: list[Any] = [2**64, -1, None, "seven", b"seven", 1.5, float("nan"), b"x" * 70_000, "\ud800", 10**5000, (1,), object]


@contextlib.contextmanager
def opened(kind: str, server: Server, **options: Any) -> Iterator[Any]:
    """Yield a table or a client with the rows of a server."""
    if kind == "open":
        with zero_kv.open(server.file, **options) as table:
            yield table
    elif kind == "direct":
        with zero_kv.Direct(server.path, **options) as direct:
            yield direct
    elif kind == "published":
        zero_kv.publish(server.file, f"file://{server.file.parent}/published")
        url, cache = f"file://{server.file.parent}/published", server.file.parent / "cache"
        with zero_kv.Published(url, cache=cache, **options) as published:
            yield published
    else:
        with zero_kv.Client(server.path, **options) as client:
            yield client


KINDS = ["open", "direct", "published", "client"]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_no_table_has_are_missing(kind: str, server: Server) -> None:
    with opened(kind, server) as table:
        for key in IMPOSSIBLE:
            assert key not in table and table.get(key) is None and table.get(key, 7) == 7, key
            assert table.get_bytes(key, 7) == 7
            with pytest.raises(KeyError) as missing:
                table[key]
            assert missing.value.args[0] is key
        expected = [ROWS[2], *[None] * len(IMPOSSIBLE), ROWS[4]]
        assert table.get_many([2, *IMPOSSIBLE, 4]) == table.get_bytes_many(iter([2, *IMPOSSIBLE, 4])) == expected
        assert table.get_many(["a", "b"]) == [None, None] and table.get_many([None]) == [None]
        assert table.get_many([]) == []
        # As in a dict, a float that is a whole number is equal to the int.
        assert 2.0 in table and table.get_many([2.0, 3.5]) == [ROWS[2], None]
        assert table.get_many(numpy.array([4, -4, 6])) == [ROWS[4], None, ROWS[6]]
        values, found = table.get_many([2, -1, None, 8], dtype="V10")
        assert values[0].tobytes() == ROWS[2] and found.tolist() == [True, False, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_arrow_keys_that_no_table_has_are_missing(kind: str, server: Server) -> None:
    with opened(kind, server) as table:
        for keys in (pyarrow.array([2, -1, None, 6]), pyarrow.chunked_array([[2, -1], [None, 6]], pyarrow.int64())):
            assert table.get_many(keys).to_pylist() == [ROWS[2], None, None, ROWS[6]]
        assert table.get_many(pyarrow.array(["a", None])).to_pylist() == [None, None]
        assert table.get_many(pyarrow.array(["", "x" * 70_000])).to_pylist() == [None, None]
        assert table.get_many(pyarrow.nulls(2)).to_pylist() == [None, None]
        values, found = table.get_many(pyarrow.array([2, None]), dtype="V10")
        assert found.tolist() == [True, False] and values[0].tobytes() == ROWS[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_strict_table_raises_typed_errors(kind: str, server: Server) -> None:
    errors = {2**64: OverflowError, -1: OverflowError, None: TypeError, "seven": zero_kv.KeyKind, 1.5: TypeError}
    with opened(kind, server, strict=True) as table:
        assert table.strict
        for key, error in errors.items():
            for look_up in (table.get, table.__getitem__, table.__contains__, lambda key: table.get_many([key])):
                with pytest.raises(error):
                    look_up(key)
        with pytest.raises(zero_kv.KeyKind, match="key 1 is of another kind"):
            table.get_many([2, b"3"])
        with pytest.raises(OverflowError, match="key 0 is -1"):
            table.get_many(pyarrow.array([-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_objects_that_a_dict_rejects_are_type_errors(kind: str, server: Server) -> None:
    with opened(kind, server) as table:
        with pytest.raises(TypeError, match="the key is of type list.*: call get_many with many keys"):
            table.get([1, 2])
        with pytest.raises(TypeError, match=r"the key is of type slice.*: call range\(start, end\)"):
            table[1:5]
        with pytest.raises(TypeError, match=r"the key is of type bytearray.*: convert it with bytes\(key\)"):
            table.get(bytearray(b"1"))
        with pytest.raises(TypeError, match=r"an array of floats.*keys.astype"):
            table.get_many(numpy.array([1.0]))


@pytest.mark.parametrize("kind", KINDS)
def test_iteration_and_length_are_those_of_a_mapping(kind: str, server: Server) -> None:
    with opened(kind, server) as table:
        assert isinstance(table, collections.abc.Mapping)
        assert len(table) == len(ROWS) and list(table) == list(ROWS) and list(reversed(table)) == list(ROWS)[::-1]
        assert list(table.keys()) == list(ROWS) and list(table.values()) == list(ROWS.values())
        assert dict(table.items()) == ROWS and list(reversed(table.items())) == list(ROWS.items())[::-1]
        assert 2 in table.keys() and 3 not in table.keys() and None not in table.keys()
        assert (2, ROWS[2]) in table.items() and (2, b"") not in table.items() and ROWS[2] in table.values()
        assert 2 in table and table[2] == ROWS[2]


@pytest.mark.parametrize("kind", ["open", "direct", "client"])
def test_use_after_close_raises_an_exception(kind: str, server: Server) -> None:
    with opened(kind, server) as table:
        rows = None if kind == "client" else table.items()
    for call in (
        lambda: table[2],
        lambda: table.get(2),
        lambda: table.get(None),
        lambda: 2 in table,
        lambda: table.get_many([2]),
        lambda: table.get_many([None]),
        lambda: len(table),
        lambda: list(table),
        lambda: list(table.items()),
        lambda: table.floor(2),
        lambda: table.first(),
        lambda: table.get_bytes(2),
        lambda: table.get_many([2], dtype="V10"),
    ):
        with pytest.raises(zero_kv.Closed, match="is closed"):
            call()
    assert "closed" in repr(table)
    table.close()
    if rows is not None:
        assert list(rows) == list(ROWS.items()), "rows that exist remain valid"


def test_close_unmaps_the_file(numbers: pathlib.Path) -> None:
    maps = pathlib.Path("/proc/self/maps")
    with zero_kv.open(numbers):
        assert str(numbers) in maps.read_text()
    assert str(numbers) not in maps.read_text()


def test_rows_have_positions_slices_and_a_representation(numbers: pathlib.Path) -> None:
    rows, expected = zero_kv.open(numbers).items(), list(ROWS.items())
    assert rows[0] == expected[0] and rows[-1] == expected[-1] and rows[7] == expected[7]
    assert list(rows[10:20]) == expected[10:20] and list(rows[-3:]) == expected[-3:] and list(rows[10:20][2:4]) == expected[12:14]
    assert list(rows[5000:]) == [] and list(rows[20:10]) == [] and list(rows[:]) == expected
    assert zero_kv.open(numbers).keys()[3] == 6 and zero_kv.open(numbers).range(10, 20)[1] == expected[6]
    for position in (2000, -2001, 2**70):
        with pytest.raises((IndexError, TypeError)):
            rows[position]
    with pytest.raises(TypeError, match="the position is of type str"):
        rows["a"]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="the step is 2, where 1 was expected"):
        rows[::2]
    assert repr(rows[:2]) == "<zero_kv.Rows, 2 rows: [(0, b'value of 0'), (2, b'value of 2')]>"
    assert repr(rows).startswith("<zero_kv.Rows, 2000 rows: [(0, b'value of 0'), ") and repr(rows).endswith(", ...]>")
    zero_kv.bake({key: bytes(10**6) for key in range(20)}, numbers)
    assert len(repr(zero_kv.open(numbers).items())) < 1000


def test_facts_about_a_server_have_types(server: Server) -> None:
    with zero_kv.Client(server.path) as client:
        info = client.info()
        assert info["rows"] == 2000 and info["direct"] is True and info["keys"] == "u64"
        assert isinstance(info["service_us_p99"], float) and isinstance(info["digest"], str) and len(info["digest"]) == 32
        check_facts(info)
        assert asyncio.run(zero_kv.AsyncClient(server.path).info()).keys() == info.keys()


def test_calls_fail_soon_without_a_server_and_recover_with_it(server: Server) -> None:
    client = zero_kv.Client(server.path)
    assert client.get(2) == ROWS[2]
    server.stop()
    begun = time.monotonic()
    with pytest.raises(zero_kv.NotRunning):
        client.get(2)
    default = time.monotonic() - begun
    with pytest.raises(zero_kv.NotRunning):
        asyncio.run(zero_kv.AsyncClient(server.path).get(2))
    begun = time.monotonic()
    with pytest.raises(zero_kv.NotRunning):
        zero_kv.Client(server.path, reconnect_timeout=30)
    first_connection = time.monotonic() - begun
    assert default < 30 and first_connection < 30, "a server that does not run is no time-out"
    server.start()
    assert client.get(2) == ROWS[2] and len(client) == len(ROWS)


def test_help_shows_real_defaults() -> None:
    script = "import zero_kv; help(zero_kv)"
    text = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "timeout=30.0" in text and "strict=False" in text and "reconnect_timeout=2.0" in text
    signatures = [line for line in text.splitlines() if line.lstrip(" |").startswith(("Client(", "Direct(", "open(", "Published("))]
    assert len(signatures) == 4, signatures
    assert not [line for line in signatures if "..." in line or "Ellipsis" in line or "into(" in line], signatures
    assert zero_kv.__version__.count(".") == 2
