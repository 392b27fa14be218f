"""Lookups with arrays of keys and arrays of values. NumPy and pyarrow are imported only when they are needed."""

from __future__ import annotations

import datetime
import itertools
from typing import Any, Literal

from zero_kv._native import (
    LookupTable,
    Table,
    fill_arrow,
    fill_fixed,
    fill_neighbors_arrow,
    fill_neighbors_fixed,
    fill_ranges_arrow,
    fill_ranges_fixed,
    write_keys,
)
from zero_kv.errors import KeyKind

_KEY_DTYPES = {"i64": "int64", "date": "datetime64[D]", "timestamp": "datetime64[us]"}
"""The dtypes of keys that are numbers of 64 bits."""
_KEY_ARROW = {"u64": "uint64", "i64": "int64", "date": "date32", "ipv4": "uint32"}


def get_many(table: LookupTable[Any, Any], keys: Any, dtype: Any) -> Any:
    """Implement `get_many` with a dtype, or with keys from pyarrow or Polars."""
    if dtype is None:
        return _arrow(table, to_arrow(keys))
    dtype = _fixed_dtype(dtype)
    values, marks = fill_fixed(table, keys, dtype.itemsize)
    return _fixed(values, dtype), _marks(marks)


def neighbor_many(table: LookupTable[Any, Any], keys: Any, dtype: Any, is_floor: bool) -> Any:
    """Implement `floor_many` and `ceiling_many` with a dtype, or with keys of which some can be null."""
    if dtype is None and is_arrow(keys):
        return _neighbors_arrow(table, to_arrow(keys), is_floor)
    from zero_kv._keys import present_columns

    present, valid = present_columns(keys)
    if dtype is None:
        return spread((table.floor_many if is_floor else table.ceiling_many)(present), valid)
    dtype = _fixed_dtype(dtype)
    key_type, numbers, values, marks = fill_neighbors_fixed(table, present, dtype.itemsize, is_floor)
    arrays = key_array(key_type, numbers), _fixed(values, dtype), _marks(marks)
    return tuple(spread_array(array, valid) for array in arrays)


def cover_many(table: LookupTable[Any, Any], keys: Any, dtype: Any) -> Any:
    """Implement `cover_many` with a dtype, or with keys of which some can be null."""
    if dtype is None and is_arrow(keys):
        return _ranges_arrow(table, to_arrow(keys))
    from zero_kv._keys import present_columns

    present, valid = present_columns(keys)
    if dtype is None:
        return spread(table.cover_many(present), valid)
    dtype = _fixed_dtype(dtype)
    key_type, firsts, lasts, values, marks = fill_ranges_fixed(table, present, dtype.itemsize)
    ends = key_array(key_type, firsts), key_array(key_type, lasts)
    arrays = *ends, _fixed(values, dtype), _marks(marks)
    return tuple(spread_array(array, valid) for array in arrays)


class Requested:
    """The keys and the result type of a call of the asyncio client, which gets lists from the server."""

    def __init__(self, keys: Any, dtype: Any) -> None:
        self._dtype: Any = None if dtype is None else _fixed_dtype(dtype)
        self._is_arrow = dtype is None and is_arrow(keys)
        self._chunk_lens = [len(chunk) for chunk in keys.chunks] if self._is_arrow and hasattr(keys, "chunks") else None
        self._given = keys
        self._valid: Any = None

    def keys(self, key_type: str) -> Any:
        """Return the keys that are not null, for a table with keys of this type."""
        from zero_kv._keys import present_of_type

        keys, self._valid = present_of_type(self._given, key_type)
        return keys

    @property
    def is_list(self) -> bool:
        """Whether the result is a list of values."""
        return not self._is_arrow and self._dtype is None

    def values(self, values: list[Any]) -> Any:
        """Return the result of `get_many`."""
        values = spread(values, self._valid)
        if self.is_list:
            return values
        if not self._is_arrow:
            return self._fixed(values)
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        found = pyarrow.array(values, type=pyarrow.binary())
        if self._chunk_lens is None:
            return found
        ends = list(itertools.accumulate(self._chunk_lens))
        chunks = [found[end - count : end] for end, count in zip(ends, self._chunk_lens, strict=True)]
        return pyarrow.chunked_array(chunks, type=pyarrow.binary())

    def rows(self, rows: list[tuple[Any, bytes] | None], key_type: str) -> Any:
        """Return the result of `floor_many` and `ceiling_many`."""
        rows = spread(rows, self._valid)
        if self.is_list:
            return rows
        values = [None if row is None else row[1] for row in rows]
        keys = [None if row is None else row[0] for row in rows]
        if self._is_arrow:
            import pyarrow

            return neighbor_keys(key_type, keys), pyarrow.array(values, type=pyarrow.binary())
        return neighbor_array(key_type, keys), *self._fixed(values)

    def ranges(self, ranges: list[tuple[Any, Any, bytes] | None], key_type: str) -> Any:
        """Return the result of `cover_many`."""
        ranges = spread(ranges, self._valid)
        if self.is_list:
            return ranges
        firsts, lasts, values = ([None if found is None else found[part] for found in ranges] for part in range(3))
        if self._is_arrow:
            import pyarrow

            ends = neighbor_keys(key_type, firsts), neighbor_keys(key_type, lasts)
            return *ends, pyarrow.array(values, type=pyarrow.binary())
        return neighbor_array(key_type, firsts), neighbor_array(key_type, lasts), *self._fixed(values)

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


def neighbor_keys(key_type: str, keys: list[Any]) -> Any:
    """Return keys, some of which are `None`, as an Arrow array."""
    import pyarrow

    if key_type == "ipv4":
        keys = [None if key is None else int(key) for key in keys]
    if key_type in _KEY_ARROW:
        return pyarrow.array(keys, type=getattr(pyarrow, _KEY_ARROW[key_type])())
    if key_type == "timestamp":
        return pyarrow.array(keys, type=pyarrow.timestamp("us"))
    return written_keys(key_type, pyarrow.array(write_keys(key_type, keys), type=pyarrow.binary()))


def neighbor_array(key_type: str, keys: list[Any]) -> Any:
    """Return keys, some of which are `None`, as a NumPy array, with zero for `None`."""
    import numpy

    if key_type == "ipv4":
        return numpy.array([int(key or 0) for key in keys], dtype=numpy.uint32)
    # No keys have no type.
    dtype = "uint64" if key_type == "u64" or not keys else _KEY_DTYPES.get(key_type)
    if dtype is None:
        raise KeyKind(
            f"the table's keys are {key_type}, where a dtype requires numbers, dates, or times: pass a pyarrow array of keys"
        )
    if dtype.startswith("datetime64"):
        return numpy.array([datetime.date(1970, 1, 1) if key is None else key for key in keys], dtype=dtype)
    return numpy.array([key or 0 for key in keys], dtype=dtype)


def is_arrow(keys: Any) -> bool:
    """Return whether keys are an array of pyarrow or Polars."""
    return type(keys).__module__.partition(".")[0] in ("pyarrow", "polars")


def is_masked(keys: Any) -> bool:
    """Return whether keys are a masked array of NumPy."""
    return type(keys).__module__.split(".")[:2] == ["numpy", "ma"]


def is_pandas(keys: Any) -> bool:
    """Return whether keys are a Series, an index, or an array of pandas."""
    return type(keys).__module__.partition(".")[0] == "pandas"


def check_is_column(keys: Any) -> None:
    """Raise `TypeError` for a frame or a table. Its items are the names of columns, or whole columns, and not keys."""
    package, _, _ = type(keys).__module__.partition(".")
    # A Series of pandas has its labels as attributes, too, which its class does not have.
    is_frame = any(hasattr(type(keys), name) for name in ("columns", "schema", "collect_schema"))
    if package in ("pandas", "polars", "pyarrow") and is_frame:
        raise TypeError(
            f"the keys are of type {package}.{type(keys).__name__}, where one column of keys was expected: choose a column, as "
            'in frame["id"]'
        )


def present_keys(keys: Any) -> tuple[Any, Any]:
    """Return the keys that are not null, and a NumPy array of Booleans that are true for these keys, or `None` if no
    key is null. Keys of pyarrow, Polars, and pandas become a NumPy array, or a list.
    """
    if is_pandas(keys):
        return _present_of_pandas(keys)
    if is_arrow(keys):
        keys = whole_array(keys)
        valid = keys.is_valid().to_numpy(zero_copy_only=False) if keys.null_count else None
        return dense_keys(keys.drop_null()), valid
    if not is_masked(keys):
        return keys, None
    import numpy

    if keys.ndim != 1:
        return numpy.asarray(keys), None  # A lookup rejects it.
    masked = numpy.ma.getmaskarray(keys)
    return keys.compressed(), (~masked if masked.any() else None)


def _present_of_pandas(keys: Any) -> tuple[Any, Any]:
    check_is_column(keys)
    if not hasattr(keys, "isna") or hasattr(type(keys), "levels"):
        return list(keys), None  # A lookup rejects it.
    import numpy

    valid = ~numpy.asarray(keys.isna())
    present = keys if valid.all() else keys[valid]
    # Integers become floats if pandas has no value for some of them. The items of a list of floats can be found.
    is_float = getattr(keys.dtype, "kind", "") == "f"
    return present.tolist() if is_float else present.to_numpy(), None if valid.all() else valid


def dense_keys(keys: Any) -> Any:
    """Return the keys of an Arrow array without nulls, as NumPy array or list."""
    import pyarrow

    check_exact(keys)
    if pyarrow.types.is_integer(keys.type):
        return keys.to_numpy(zero_copy_only=False)
    objects = keys.to_pylist()
    return [tuple(key.values()) for key in objects] if pyarrow.types.is_struct(keys.type) else objects


def spread(results: list[Any], valid: Any) -> list[Any]:
    """Return results for all keys, with `None` for null keys, from the results for the others."""
    if valid is None:
        return results
    left = iter(results)
    return [next(left) if is_valid else None for is_valid in valid.tolist()]


def spread_array(array: Any, valid: Any) -> Any:
    """Return an array for all keys, with zero for null keys, from the array for the others."""
    if valid is None:
        return array
    import numpy

    found = numpy.zeros((len(valid), *array.shape[1:]), array.dtype)
    found[valid] = array
    return found


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


def to_arrow(keys: Any) -> Any:
    """Convert a Polars Series to a pyarrow array, and check an array of pyarrow."""
    check_is_column(keys)
    if type(keys).__module__.partition(".")[0] == "polars":
        keys = keys.to_arrow()
    return checked(keys, "the keys")


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
    from zero_kv._keys import key_column

    column, valid = key_column(keys)
    return _binary(len(keys), fill_arrow(table, column, valid))


def _neighbors_arrow(table: LookupTable[Any, Any], keys: Any, is_floor: bool) -> Any:
    """Return the keys and the values of the nearest rows."""
    column, valid = _arrow_column(keys)
    key_type, numbers, texts, values = fill_neighbors_arrow(table, column, is_floor)
    return _rows_arrow(key_type, [(numbers, texts)], values, len(keys), valid)


def _ranges_arrow(table: LookupTable[Any, Any], keys: Any) -> Any:
    """Return the first keys, the last keys, and the values of ranges."""
    column, valid = _arrow_column(keys)
    key_type, firsts, lasts, values = fill_ranges_arrow(table, column)
    return _rows_arrow(key_type, [firsts, lasts], values, len(keys), valid)


def _arrow_column(keys: Any) -> Any:
    import pyarrow

    from zero_kv._keys import key_column

    keys = keys.combine_chunks() if isinstance(keys, pyarrow.ChunkedArray) else keys
    return key_column(keys)


def _rows_arrow(key_type: str, keys: list[Any], parts: Any, count: int, valid: Any) -> Any:
    """Return arrays of the keys of rows, each of which are numbers or parts of an array, and of their values."""
    import pyarrow

    present = count if valid is None else sum(valid)
    values = _binary(present, parts)
    arrays = []
    for numbers, texts in keys:
        if numbers is None:
            arrays.append(written_keys(key_type, _binary(present, texts)))
        else:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            arrays.append(pyarrow.array(key_array(key_type, numbers), mask=missing))
    arrays.append(values)
    if valid is None:
        return tuple(arrays)
    kept = pyarrow.array([True if is_valid else None for is_valid in valid])
    return tuple(with_nulls(kept, array) for array in arrays)


def is_plain(key_type: str) -> bool:
    """Return whether the keys of a table are numbers or bytes."""
    return key_type in ("u64", "bytes")


def key_array(key_type: str, numbers: Any) -> Any:
    """Return a buffer of keys that are numbers as a NumPy array."""
    import numpy

    array = numpy.asarray(memoryview(numbers)).view(numpy.uint64)
    if key_type == "ipv4":
        return array.astype(numpy.uint32)
    return array.view(_KEY_DTYPES.get(key_type, "uint64"))


def written_keys(key_type: str, keys: Any) -> Any:
    """Return an Arrow array of the written form of keys: text, unless it can have other bytes."""
    import pyarrow

    return keys if "," in key_type or key_type == "bytes" else keys.cast(pyarrow.string())


def with_nulls(keys: Any, found: Any) -> Any:
    """Return an Arrow array that is null where the keys are null, and has the elements of `found` elsewhere."""
    if not keys.null_count:
        return found
    import pyarrow
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    valid = keys.is_valid()
    positions = pyarrow.compute.cumulative_sum(valid.cast(pyarrow.int64()))
    return found.take(pyarrow.compute.if_else(valid, pyarrow.compute.subtract(positions, 1), None))


def whole_array(keys: Any) -> Any:
    """Return the keys of a pyarrow array, a chunked array, or a Polars Series as one pyarrow array of a plain type."""
    return _whole(to_arrow(keys))


def _whole(keys: Any) -> Any:
    import pyarrow

    keys = _plain_keys(keys)
    return keys.combine_chunks() if isinstance(keys, pyarrow.ChunkedArray) else keys


def plain(array: Any) -> Any:
    """Return an Arrow array or a chunked array without a dictionary, run ends, views of text and bytes, or an extension
    type, which most of Arrow's functions do not accept. UUIDs become text, as in bakes of Parquet files.
    """
    import pyarrow
    from pyarrow import types

    if isinstance(array, pyarrow.ChunkedArray):
        chunks = [plain(chunk) for chunk in array.chunks]
        return pyarrow.chunked_array(chunks, type=plain_type(array.type))
    if is_uuid(array.type):
        texts = [None if uuid is None else str(uuid) for uuid in array.to_pylist()]
        return pyarrow.array(texts, pyarrow.large_string())
    if isinstance(array, pyarrow.ExtensionArray):
        return plain(array.storage)
    if types.is_dictionary(array.type):
        return pyarrow.DictionaryArray.from_arrays(array.indices, plain(array.dictionary)).dictionary_decode()
    if types.is_run_end_encoded(array.type):
        import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

        try:
            return pyarrow.compute.run_end_decode(array)
        except pyarrow.ArrowNotImplementedError:
            return pyarrow.array(array.to_pylist(), plain_type(array.type))
    kind = plain_type(array.type)
    return array if kind == array.type else array.cast(kind)


def plain_type(kind: Any) -> Any:
    """Return the Arrow type of the arrays that `plain` returns for arrays of a type."""
    import pyarrow
    from pyarrow import types

    if is_uuid(kind):
        return pyarrow.large_string()
    if isinstance(kind, pyarrow.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pyarrow.large_string()
    return pyarrow.large_binary() if types.is_binary_view(kind) else kind


def is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def _plain_keys(keys: Any) -> Any:
    """Return the keys as an array of a plain type. Booleans are numbers, as Python's are."""
    import pyarrow

    keys = plain(keys)
    return keys.cast(pyarrow.uint8()) if pyarrow.types.is_boolean(keys.type) else keys


def check_exact(keys: Any) -> None:
    """Reject floats."""
    import pyarrow

    if pyarrow.types.is_floating(keys.type):
        raise TypeError(
            "the keys are an array of floats, which may have been rounded: cast it, as in keys.cast(pyarrow.uint64())"
        )


def key_buffers(keys: Any) -> tuple[Any, Any, Any]:
    """Return the numbers of an Arrow array without nulls, or the offsets and bytes of its keys."""
    import pyarrow

    if pyarrow.types.is_integer(keys.type):
        return array_bytes(keys.cast(pyarrow.uint64()), 1, 8, "Q"), None, None
    check_exact(keys)
    return None, *text_buffers(keys.cast(pyarrow.large_binary()))


def text_buffers(array: Any) -> tuple[memoryview, memoryview]:
    """Return the offsets, which have 32 or 64 bits, and the bytes of an Arrow array of text or bytes without nulls."""
    from pyarrow import types

    is_large = types.is_large_string(array.type) or types.is_large_binary(array.type)
    offset_len_bytes = 8 if is_large else 4
    held = array.buffers()[1]
    if held and len(array):
        held = held.slice(offset_len_bytes * array.offset, offset_len_bytes * (len(array) + 1))
    ends = memoryview(held if held and len(array) else bytes(offset_len_bytes)).cast("q" if is_large else "i")
    # If the array is a slice, its elements are only this part of the data.
    return ends, memoryview(array.buffers()[2] or b"").cast("B")[ends[0] : ends[-1]]


def _binary(count: int, parts: Any) -> Any:
    """Return an Arrow array of binary values."""
    import pyarrow

    bits, offsets, data, null_count, is_large = parts
    kind = pyarrow.large_binary() if is_large else pyarrow.binary()
    buffers = [pyarrow.py_buffer(part) for part in (bits, offsets, data)]
    return pyarrow.Array.from_buffers(kind, count, buffers, null_count)


def array_bytes(array: Any, buffer: int, item_len_bytes: int, code: Literal["B", "Q"]) -> memoryview:
    """Return the items of an Arrow array as memory, starting at the offset of the array."""
    held = array.buffers()[buffer]
    if held is None or len(array) == 0:
        return memoryview(b"").cast(code)
    items = held.slice(item_len_bytes * array.offset, item_len_bytes * len(array))
    return memoryview(items).cast(code)
