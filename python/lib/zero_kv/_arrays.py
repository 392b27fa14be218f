"""Lookups with arrays of keys and arrays of values. NumPy and pyarrow are imported only when they are needed."""

from __future__ import annotations

import itertools
from typing import Any, Literal

from zero_kv._native import (
    LookupTable,
    Table,
    fill_arrow,
    fill_fixed,
    fill_neighbors_arrow,
    fill_neighbors_fixed,
)
from zero_kv.errors import KeyKind


def get_many(table: LookupTable[Any, Any], keys: Any, dtype: Any) -> Any:
    """Implement `get_many` with a dtype, or with keys from pyarrow or Polars."""
    keys = _to_arrow(keys)
    if dtype is None:
        return _arrow(table, keys)
    dtype = _fixed_dtype(dtype)
    values, marks = fill_fixed(table, _numpy_keys(keys, table.strict), dtype.itemsize)
    return _fixed(values, dtype), _marks(marks)


def neighbor_many(table: LookupTable[Any, Any], keys: Any, dtype: Any, is_floor: bool) -> Any:
    """Implement `floor_many` and `ceiling_many` with a dtype, or with keys from pyarrow or Polars."""
    keys = _to_arrow(keys)
    if dtype is None:
        return _neighbors_arrow(table, keys, is_floor)
    import numpy

    dtype = _fixed_dtype(dtype)
    numbers, values, marks = fill_neighbors_fixed(table, _numpy_keys(keys), dtype.itemsize, is_floor)
    return _fixed(numbers, numpy.dtype(numpy.uint64)), _fixed(values, dtype), _marks(marks)


class Requested:
    """The keys and the result type of a call of the asyncio client, which gets lists from the server."""

    def __init__(self, keys: Any, dtype: Any, strict: bool = True) -> None:
        keys = _to_arrow(keys)
        self._dtype: Any = None if dtype is None else _fixed_dtype(dtype)
        self._arrow = _whole(keys) if dtype is None and _is_arrow(keys) else None
        self._chunk_lens = [len(chunk) for chunk in keys.chunks] if hasattr(keys, "chunks") else None
        self.keys = keys if self._arrow is None else self._arrow.drop_null().to_pylist()
        if dtype is not None:
            self.keys = _numpy_keys(keys, strict)

    @property
    def is_list(self) -> bool:
        """Whether the result is a list of values."""
        return self._arrow is None and self._dtype is None

    def values(self, values: list[Any]) -> Any:
        """Return the result of `get_many`."""
        if self.is_list:
            return values
        if self._arrow is None:
            return self._fixed(values)
        found = self._binary(values)
        if self._chunk_lens is None:
            return found
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        ends = list(itertools.accumulate(self._chunk_lens))
        chunks = [found[end - count : end] for end, count in zip(ends, self._chunk_lens, strict=True)]
        return pyarrow.chunked_array(chunks, type=pyarrow.binary())

    def rows(self, rows: list[tuple[Any, bytes] | None]) -> Any:
        """Return the result of `floor_many` and `ceiling_many`."""
        if self._arrow is None and self._dtype is None:
            return rows
        values = [None if row is None else row[1] for row in rows]
        keys = [None if row is None else row[0] for row in rows]
        if self._arrow is not None:
            import pyarrow  # type: ignore[import-untyped, unused-ignore]

            kind = pyarrow.uint64() if pyarrow.types.is_integer(self._arrow.type) else pyarrow.binary()
            return with_nulls(self._arrow, pyarrow.array(keys, type=kind)), self._binary(values)
        if isinstance(next(iter(self.keys), None), (bytes, str)):
            raise KeyKind("the table's keys are bytes, where a dtype requires numbers: pass a pyarrow array of keys")
        import numpy

        return numpy.array([key or 0 for key in keys], dtype=numpy.uint64), *self._fixed(values)

    def _binary(self, values: list[bytes | None]) -> Any:
        import pyarrow

        return with_nulls(self._arrow, pyarrow.array(values, type=pyarrow.binary()))

    def _fixed(self, values: list[bytes | None]) -> Any:
        import numpy

        len_bytes = self._dtype.itemsize
        for position, value in enumerate(values):
            if value is not None and len(value) != len_bytes:
                raise ValueError(
                    f"the value of key {position} has {len(value)} bytes, where the dtype has {len_bytes}"
                )
        filled = b"".join(bytes(len_bytes) if value is None else value for value in values)
        found = numpy.array([value is not None for value in values], dtype=numpy.bool_)
        return _fixed(bytearray(filled), self._dtype), found


def checked(arrays: Any, what: str) -> Any:
    """Return Arrow arrays whose offsets, indexes, and text Arrow has checked.

    Arrow's functions read memory at these offsets without checking them, and arrays from a damaged file or another library
    can have any offsets. The Arrow C interface does not state the lengths of buffers, so they are as its caller says.
    """
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    try:
        arrays.validate(full=True)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{what}: Arrow rejects the array: {error}: create it again") from error
    return arrays


def _to_arrow(keys: Any) -> Any:
    """Convert a Polars Series to a pyarrow array, check an array of pyarrow, and return other keys unchanged."""
    if type(keys).__module__.partition(".")[0] == "polars":
        keys = keys.to_arrow()
    return checked(keys, "the keys") if _is_arrow(keys) else keys


def _is_arrow(keys: Any) -> bool:
    return type(keys).__module__.partition(".")[0] == "pyarrow"


def _numpy_keys(keys: Any, strict: bool = True) -> Any:
    """Convert a pyarrow array to a NumPy array, or to a list if it has nulls, and return other keys unchanged."""
    if not _is_arrow(keys):
        return keys
    if keys.null_count and not strict:
        return keys.to_pylist()
    if keys.null_count:
        raise ValueError(f"{keys.null_count} keys are null, which an array of values of fixed length cannot represent")
    return keys.to_numpy(zero_copy_only=False) if hasattr(keys, "buffers") else keys.to_numpy()


def _fixed_dtype(dtype: Any) -> Any:
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise TypeError(f"dtype is {dtype}, where a dtype of fixed length was expected")
    return dtype


def _fixed(values: Any, dtype: Any) -> Any:
    """Return a buffer as an array of values of a dtype."""
    import numpy

    return numpy.asarray(memoryview(values)).view(dtype.base).reshape((-1, *dtype.shape))


def _marks(marks: Any) -> Any:
    import numpy

    return numpy.asarray(memoryview(marks)).view(numpy.bool_)


def _arrow(table: LookupTable[Any, Any], keys: Any) -> Any:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    if isinstance(keys, pyarrow.ChunkedArray):
        # The snapshot makes all chunks use one version of the table.
        table = table.snapshot() if isinstance(table, Table) else table
        chunks = [_arrow(table, chunk) for chunk in keys.chunks]
        if any(pyarrow.types.is_large_binary(chunk.type) for chunk in chunks):
            chunks = [chunk.cast(pyarrow.large_binary()) for chunk in chunks]
        return pyarrow.chunked_array(chunks, type=None if chunks else pyarrow.binary())
    keys, valid = _decoded(keys), None
    if not table.strict:
        keys = _possible(keys)
    if keys.null_count:
        valid = _bytes(keys.is_valid().cast(pyarrow.uint8()), 1, 1, "B")
    return _binary(len(keys), fill_arrow(table, *key_buffers(keys.drop_null()), valid))


def _neighbors_arrow(table: LookupTable[Any, Any], keys: Any, is_floor: bool) -> Any:
    """Return the keys and the values of the nearest rows."""
    import pyarrow

    keys = _whole(keys)
    present = keys.drop_null()
    numbers, bytes_parts, value_parts = fill_neighbors_arrow(table, *key_buffers(present), is_floor)
    values = _binary(len(present), value_parts)
    if numbers is None:
        found = _binary(len(present), bytes_parts)
    else:
        buffers = [pyarrow.py_buffer(value_parts[0]), pyarrow.py_buffer(numbers)]
        found = pyarrow.Array.from_buffers(pyarrow.uint64(), len(present), buffers, values.null_count)
    return with_nulls(keys, found), with_nulls(keys, values)


def with_nulls(keys: Any, found: Any) -> Any:
    """Return an Arrow array that is null where the keys are null, and has the elements of `found` elsewhere."""
    if not keys.null_count:
        return found
    import pyarrow
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    valid = keys.is_valid()
    positions = pyarrow.compute.cumulative_sum(valid.cast(pyarrow.int64()))
    return found.take(pyarrow.compute.if_else(valid, pyarrow.compute.subtract(positions, 1), None))


def _whole(keys: Any) -> Any:
    """Return the keys of an Arrow array or a chunked array as one array."""
    import pyarrow

    return _decoded(keys.combine_chunks() if isinstance(keys, pyarrow.ChunkedArray) else keys)


def is_arrow(keys: Any) -> bool:
    """Return whether keys are an array of pyarrow or Polars."""
    return _is_arrow(keys) or type(keys).__module__.partition(".")[0] == "polars"


def whole_array(keys: Any) -> Any:
    """Return the keys of a pyarrow array, a chunked array, or a Polars Series as one pyarrow array."""
    return _whole(_to_arrow(keys))


def _decoded(keys: Any) -> Any:
    import pyarrow

    return keys.dictionary_decode() if pyarrow.types.is_dictionary(keys.type) else keys


def _possible(keys: Any) -> Any:
    """Return an Arrow array with null instead of negative numbers, which no table has as keys."""
    import pyarrow

    if not pyarrow.types.is_signed_integer(keys.type):
        return keys
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    low = pyarrow.compute.min(keys).as_py()
    if low is None or low >= 0:
        return keys
    is_negative = pyarrow.compute.less(keys, pyarrow.scalar(0, keys.type))
    return pyarrow.compute.if_else(is_negative, pyarrow.scalar(None, keys.type), keys)


def key_buffers(keys: Any) -> tuple[Any, Any, Any]:
    """Return the numbers of an Arrow array without nulls, or the offsets and bytes of its keys."""
    import pyarrow

    if pyarrow.types.is_integer(keys.type):
        return _bytes(keys.cast(pyarrow.uint64()), 1, 8, "Q"), None, None
    if pyarrow.types.is_floating(keys.type):
        raise TypeError(
            "the keys are an array of floats, which may have been rounded: cast it, as in keys.cast(pyarrow.uint64())"
        )
    keys = keys.cast(pyarrow.large_binary())
    held = keys.buffers()[1]
    held = held.slice(8 * keys.offset, 8 * (len(keys) + 1)) if held and len(keys) else bytes(8)
    ends = memoryview(held).cast("q")
    # If the array is a slice, its keys are only this part of the data.
    return None, ends, memoryview(keys.buffers()[2] or b"").cast("B")[ends[0] : ends[-1]]


def _binary(count: int, parts: Any) -> Any:
    """Return an Arrow array of binary values."""
    import pyarrow

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
