"""Lookups with arrays of keys and arrays of values. NumPy and pyarrow are imported only when they are needed."""

from __future__ import annotations

from typing import Any, Literal

from zero_kv._native import Client, Direct, Table, fill_arrow, fill_fixed


def get_many(table: Table | Client, keys: Any, dtype: Any) -> Any:
    """Implement `get_many` with a dtype, or with keys from pyarrow or Polars."""
    if type(keys).__module__.partition(".")[0] == "polars":
        keys = keys.to_arrow()
    if dtype is None:
        return _arrow(table, keys)
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        if keys.null_count:
            raise ValueError(
                f"{keys.null_count} keys are null, which an array of values of fixed length cannot represent"
            )
        keys = keys.to_numpy(zero_copy_only=False) if hasattr(keys, "buffers") else keys.to_numpy()
    return _fixed(table, keys, dtype)


def _fixed(table: Table | Client, keys: Any, dtype: Any) -> Any:
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise TypeError(f"dtype is {dtype}, where a dtype of fixed length was expected")
    values, marks = fill_fixed(table, keys, dtype.itemsize)
    found = numpy.asarray(memoryview(marks)).view(numpy.bool_)
    shape = (len(found), *dtype.shape)
    return numpy.asarray(memoryview(values)).view(dtype.base).reshape(shape), found


def _arrow(table: Table | Client, keys: Any) -> Any:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    if isinstance(keys, pyarrow.ChunkedArray):
        # The snapshot makes all chunks use one version of the table.
        table = table.snapshot() if isinstance(table, Direct) else table
        chunks = [_arrow(table, chunk) for chunk in keys.chunks]
        if any(pyarrow.types.is_large_binary(chunk.type) for chunk in chunks):
            chunks = [chunk.cast(pyarrow.large_binary()) for chunk in chunks]
        return pyarrow.chunked_array(chunks, type=None if chunks else pyarrow.binary())
    if pyarrow.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    valid, count = None, len(keys)
    if keys.null_count:
        valid = _bytes(keys.is_valid().cast(pyarrow.uint8()), 1, 1, "B")
        keys = keys.drop_null()
    if pyarrow.types.is_integer(keys.type):
        keys = keys.cast(pyarrow.uint64())
        parts = fill_arrow(table, _bytes(keys, 1, 8, "Q"), None, None, valid)
    else:
        keys = keys.cast(pyarrow.large_binary())
        held = keys.buffers()[1]
        held = held.slice(8 * keys.offset, 8 * (len(keys) + 1)) if held and len(keys) else bytes(8)
        ends = memoryview(held).cast("q")
        # If the array is a slice, its keys are only this part of the data.
        used = memoryview(keys.buffers()[2] or b"").cast("B")[ends[0] : ends[-1]]
        parts = fill_arrow(table, None, ends, used, valid)
    bits, offsets, data, null_count, is_large = parts
    kind = pyarrow.large_binary() if is_large else pyarrow.binary()
    buffers = [pyarrow.py_buffer(part) for part in (bits, offsets, data)]
    return pyarrow.Array.from_buffers(kind, count, buffers, null_count)


def _bytes(array: Any, buffer: int, item_len_bytes: int, code: Literal["B", "Q"]) -> memoryview:
    """Return the items of an Arrow array as memory, starting at the offset of the array."""
    held = array.buffers()[buffer]
    if held is None or len(array) == 0:
        return memoryview(b"").cast(code)
    items = held.slice(item_len_bytes * array.offset, item_len_bytes * len(array))
    return memoryview(items).cast(code)
