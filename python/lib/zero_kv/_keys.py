"""Makes columns of keys of arrays, which the compiled code reads without a Python object for each key. NumPy and pyarrow
are imported only when they are needed.
"""

from __future__ import annotations

from typing import Any

from zero_kv._arrays import (
    array_bytes,
    check_exact,
    check_is_column,
    is_arrow,
    is_masked,
    is_pandas,
    is_plain,
    is_uuid,
    plain,
    present_keys,
    text_buffers,
    to_arrow,
)
from zero_kv._native import Keys

KeyColumn = tuple[Any, ...]
"""A name and what it has: `("objects", list)`, `("unsigned", numbers)`, `("short", numbers)`, `("signed", numbers)`,
`("times", counts, nanoseconds_per_unit)`, `("text", offsets, data)`, `("bytes", offsets, data)`, `("uuids", data)`,
`("fixed", data, bytes_per_key)`, `("padded", data, bytes_per_key)`, `("characters", code_points, characters_per_key,
array)`, or `("parts", columns, count)` for keys of several parts."""

_NANOS_PER_UNIT = {
    "W": 604_800_000_000_000,
    "D": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


def key_column(keys: Any) -> tuple[KeyColumn, Any]:
    """Return the keys that are not null, and a list of Booleans that are true for them, or `None` if no key is null.

    The column is the same for all key types: a call may find another type than the one that the client knows.
    """
    if isinstance(keys, (str, bytes, bytearray)):
        raise TypeError(f"keys are of type {type(keys).__name__}, where many keys were expected")
    if isinstance(keys, (list, tuple)):
        return ("objects", list(keys)), None
    column, valid = _column(_of_pandas(keys) if is_pandas(keys) else keys)
    return column, None if valid is None else valid.tolist()


def present_columns(keys: Any) -> tuple[Any, Any]:
    """Return what `present_keys` returns, without a Python object for each key if the array has none."""
    if is_pandas(keys):
        check_is_column(keys)
        if not hasattr(keys, "isna") or hasattr(type(keys), "levels") or not _has_arrow(keys.dtype):
            return present_keys(keys)
        keys = _of_pandas(keys)
    if not is_arrow(keys):
        return present_keys(keys)
    column, valid = _column(keys)
    return Keys(column), valid


def present_of_type(keys: Any, key_type: str) -> tuple[Any, Any]:
    """Return what `present_keys` returns. If the table's keys are neither numbers nor bytes, the keys are `Keys`,
    because objects do not show which bytes are a value, and which are its written form.
    """
    return present_keys(keys) if is_plain(key_type) else present_columns(keys)


def _column(keys: Any) -> tuple[KeyColumn, Any]:
    """Return the keys that are not null, and a NumPy array of Booleans that are true for them, or `None`."""
    if is_arrow(keys):
        return _of_arrow(to_arrow(keys))
    valid = None
    if is_masked(keys):
        import numpy

        masked = numpy.ma.getmaskarray(keys)
        if masked.any() and keys.ndim == 1:
            keys, valid = keys.compressed(), ~masked
    if type(keys).__module__.partition(".")[0] == "numpy" and hasattr(keys, "dtype"):
        return _of_numpy(keys), valid
    return ("objects", list(keys)), None


def _has_arrow(dtype: Any) -> bool:
    """Return whether an array of pandas with this dtype becomes an array of pyarrow."""
    import numpy

    return not isinstance(dtype, numpy.dtype)


def _of_pandas(keys: Any) -> Any:
    """Return the keys of a Series, an index, or an array of pandas as an array of NumPy or pyarrow, or as a list."""
    check_is_column(keys)
    if not _has_arrow(keys.dtype):
        return list(keys) if keys.dtype.hasobject else keys.to_numpy()
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    return pyarrow.array(keys, from_pandas=True)


def _of_numpy(keys: Any) -> KeyColumn:
    import numpy

    if keys.ndim != 1:
        raise ValueError(f"keys have {keys.ndim} dimensions, where 1 was expected")
    kind = keys.dtype.kind
    if kind == "u" and keys.dtype.itemsize == 4:
        return "short", numpy.ascontiguousarray(keys, numpy.uint32)
    if kind in "ub":
        return "unsigned", numpy.ascontiguousarray(keys, numpy.uint64)
    if kind == "i":
        return "signed", numpy.ascontiguousarray(keys, numpy.int64)
    if kind == "M":
        counts = numpy.ascontiguousarray(keys.astype(keys.dtype.newbyteorder("="), copy=False)).view(numpy.int64)
        return "times", counts, nanos_per_unit(keys.dtype)
    if kind == "f":
        raise TypeError("the keys are an array of floats, which may have been rounded: convert it, as in keys.astype(\"int64\")")
    if kind in "SUV" and not keys.dtype.names and keys.dtype.itemsize:
        keys = numpy.ascontiguousarray(keys.astype(keys.dtype.newbyteorder("="), copy=False))
        if kind == "U":
            return "characters", keys.view(numpy.uint32), keys.dtype.itemsize // 4, keys
        return "padded" if kind == "S" else "fixed", keys.view(numpy.uint8), keys.dtype.itemsize
    return "objects", keys.tolist()


def nanos_per_unit(dtype: Any) -> int:
    """Return the length of the unit of a dtype of times in nanoseconds."""
    import numpy

    unit, count = numpy.datetime_data(dtype)
    if unit not in _NANOS_PER_UNIT:
        raise TypeError(f'the keys have the dtype {dtype}, where days to nanoseconds were expected: keys.astype("datetime64[D]")')
    return count * _NANOS_PER_UNIT[unit]


def _of_arrow(keys: Any) -> tuple[KeyColumn, Any]:
    import pyarrow

    if isinstance(keys, pyarrow.ChunkedArray):
        keys = keys.combine_chunks()
    are_uuids = is_uuid(keys.type)
    keys = keys.storage if are_uuids else plain(keys)
    valid = keys.is_valid().to_numpy(zero_copy_only=False) if keys.null_count else None
    keys = keys.drop_null() if keys.null_count else keys
    if are_uuids:
        return ("uuids", array_bytes(keys, 1, 16, "B")), valid
    if not pyarrow.types.is_struct(keys.type):
        return _dense_of_arrow(keys), valid
    parts = []
    for part in keys.flatten():
        column, is_valid = _of_arrow(part)
        if is_valid is not None:
            # A key with a part that is null is null.
            return ("objects", [tuple(key.values()) for key in keys.to_pylist()]), valid
        parts.append(column)
    return ("parts", parts, len(keys)), valid


def _dense_of_arrow(keys: Any) -> KeyColumn:
    """Return the keys of an Arrow array of a plain type without nulls."""
    from pyarrow import types

    check_exact(keys)
    if types.is_integer(keys.type) or types.is_boolean(keys.type) or types.is_date(keys.type) or types.is_timestamp(keys.type):
        return _of_numpy(keys.to_numpy(zero_copy_only=False))
    is_text = types.is_string(keys.type) or types.is_large_string(keys.type)
    if types.is_fixed_size_binary(keys.type) and keys.type.byte_width:
        return "fixed", array_bytes(keys, 1, keys.type.byte_width, "B"), keys.type.byte_width
    if is_text or types.is_binary(keys.type) or types.is_large_binary(keys.type):
        return "text" if is_text else "bytes", *text_buffers(keys)
    return "objects", keys.to_pylist()
