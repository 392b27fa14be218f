"""Arrow arrays with forged offsets, indexes, views, and text, as a damaged file or another library may have them.

Each array has buffers that are long enough, which `pyarrow.Array.from_buffers` checks. Arrow's functions do not check the
rest: casts of these arrays, and their cells, read memory that the arrays do not own.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

import zero_kv
from zero_kv._engine import shard_numbers

pyarrow = pytest.importorskip("pyarrow")

FAR = 2**31 - 1
NUMBERS = [1, 2, 3]


def ints(*numbers: int) -> Any:
    return pyarrow.py_buffer(struct.pack(f"<{len(numbers)}i", *numbers))


def longs(*numbers: int) -> Any:
    return pyarrow.py_buffer(struct.pack(f"<{len(numbers)}q", *numbers))


def view(index: int, offset: int) -> bytes:
    return struct.pack("<i4sii", 100, b"abcd", index, offset)


def forged_arrays() -> dict[str, Callable[[], Any]]:
    data, elements = pyarrow.py_buffer(b"abcdefghi"), pyarrow.array(range(9), pyarrow.int32())

    def of(kind: Any, *buffers: Any, children: Any = ()) -> Callable[[], Any]:
        return lambda: pyarrow.Array.from_buffers(kind, 3, [None, *buffers], children=[*children] or None)

    def indexed(values: Any) -> Callable[[], Any]:
        indexes = pyarrow.array([0, 2**30, -5], pyarrow.int32())
        return lambda: pyarrow.DictionaryArray.from_arrays(indexes, values, safe=False)

    return {
        "text that begins at a negative offset": of(pyarrow.large_string(), longs(0, -(2**40), 6, 9), data),
        "text that ends beyond the data": of(pyarrow.string(), ints(0, FAR, 6, 9), data),
        "text that ends before it begins": of(pyarrow.large_string(), longs(0, 6, 3, 9), data),
        "text that is not UTF-8": of(pyarrow.string(), ints(0, 3, 6, 9), pyarrow.py_buffer(b"\xff" * 9)),
        "bytes that end beyond the data": of(pyarrow.large_binary(), longs(0, 2**40, 6, 9), data),
        "views of a missing buffer": of(pyarrow.string_view(), pyarrow.py_buffer(view(7, 0) * 3)),
        "views beyond a buffer": of(pyarrow.binary_view(), pyarrow.py_buffer(view(0, 2**30) * 3), data),
        "indexes of missing text": indexed(pyarrow.array(["a", "b"])),
        "indexes of missing numbers": indexed(pyarrow.array([1, 2], pyarrow.uint64())),
        "lists that end beyond the elements": of(pyarrow.list_(pyarrow.int32()), ints(0, FAR, 6, 9), children=[elements]),
        "lists that begin at a negative offset": of(pyarrow.list_(pyarrow.int32()), ints(0, -FAR, 6, 9), children=[elements]),
        "lists that are longer than memory": of(
            pyarrow.large_list(pyarrow.int32()), longs(0, 2**40, 6, 9), children=[elements]
        ),
        "lists of forged lists": of(
            pyarrow.list_(pyarrow.list_(pyarrow.int32())),
            ints(0, 1, 2, 3),
            children=[of(pyarrow.list_(pyarrow.int32()), ints(0, FAR, 6, 9), children=[elements])()],
        ),
    }


class Stream:
    """An object of another package with the Arrow C interface."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("name", forged_arrays())
def test_forged_columns_are_rejected_before_they_are_read(name: str, tmp_path: pathlib.Path) -> None:
    forged = forged_arrays()[name]()
    path, url = tmp_path / "table.db", f"file://{tmp_path / 'table'}"
    as_keys = pyarrow.Table.from_arrays([forged, pyarrow.array(["x"] * 3)], names=["key", "value"])
    as_values = pyarrow.Table.from_arrays([pyarrow.array(NUMBERS), forged], names=["key", "value"])
    calls: list[Callable[[Any], Any]] = [
        lambda table: zero_kv.bake(table, path),
        lambda table: zero_kv.bake(table, path, value="value"),
        lambda table: zero_kv.bake(table, path, typed=True),
        lambda table: zero_kv.bake(Stream(table), path),
        lambda table: zero_kv.bake(iter(table.to_batches()), path),
        lambda table: zero_kv.bake(table.to_reader(), path, typed=True),
        lambda table: zero_kv.write_shard(table.to_batches(), range(16384), url, types={"value": "text"}),
        lambda table: zero_kv.write_shard(table, range(16384), url, value="value"),
    ]
    for table in (as_keys, as_values):
        for call in calls:
            with pytest.raises((ValueError, TypeError)) as error:
                call(table)
            # Some types of columns are rejected before the batch is read.
            assert any(text in str(error.value) for text in ("Arrow rejects", "has the Arrow type")), error.value
    assert not path.exists()


@pytest.mark.parametrize("name", forged_arrays())
def test_forged_keys_are_rejected_before_they_are_read(name: str, tmp_path: pathlib.Path) -> None:
    forged = forged_arrays()[name]()
    zero_kv.bake({"a": b"x"}, tmp_path / "bytes.db")
    zero_kv.bake({7: 1.5}, tmp_path / "numbers.db")
    by_bytes, by_number = zero_kv.open(tmp_path / "bytes.db"), zero_kv.open(tmp_path / "numbers.db")
    calls: list[Callable[[Any], Any]] = [
        by_bytes.get_many,
        by_bytes.floor_many,
        by_number.get_many,
        by_number.ceiling_many,
        by_number.columns,
        lambda keys: by_number.get_many(keys, dtype="S1"),
        zero_kv.slots,
        shard_numbers("key", "bytes", [range(16384)]),
    ]
    for keys in (forged, pyarrow.chunked_array([forged, forged])):
        for call in calls:
            with pytest.raises(ValueError, match="Arrow rejects the array"):
                call(keys)
