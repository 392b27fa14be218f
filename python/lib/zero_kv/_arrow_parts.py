"""Casts Arrow arrays to the types of columns, and lends their buffers to the compiled code. pyarrow is imported only when
it is needed."""

from __future__ import annotations

import json
import re
from typing import Any

from zero_kv._arrays import key_buffers, plain
from zero_kv._typed_rows import times_as_text
from zero_kv.errors import BakeFailed

ArrayParts = tuple[Any, Any, Any]
"""A byte for each element, which is zero for null, or `None`; offsets of 64 bits, or `None`; and data."""

_FIXED = {
    "bool": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "date": "date32",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LIST = re.compile(r"list\((.*?)(?:,(\d+))?\)")


def array_parts(array: Any, name: str, kind: str, where: str, is_value: bool) -> ArrayParts:
    """Return the buffers of an array that is cast to the type of a column.

    `where` names the rows of the array, for messages. `is_value` is whether the array has the values of an untyped
    table, which are not numbers.
    """
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    kind = kind.removesuffix("?")
    array = plain(array)
    try:
        if kind == "list(text)":
            offsets, data = _parts(_json_of_texts(array), "text")
        else:
            offsets, data = _list_parts(array, kind) if kind.startswith("list(") else _parts(array, kind)
        valid = array.is_valid().cast(pyarrow.uint8()) if array.null_count else None
    except pyarrow.ArrowNotImplementedError as error:
        hint = "name the columns of a typed table, or convert it" if is_value else "convert it, or leave it out"
        found = f"{where}: column {name!r} has the Arrow type {array.type}, where {kind} was expected: {hint}"
        raise BakeFailed(found) from error
    except pyarrow.ArrowInvalid as error:
        raise BakeFailed(f"{where}: column {name!r} is {kind}: {error}") from error
    return None if valid is None else _items(valid), offsets, data


def _parts(array: Any, kind: str) -> tuple[Any, Any]:
    """Return the offsets and the data of an array without lists."""
    import pyarrow

    if kind in ("text", "bytes"):
        if pyarrow.types.is_time(array.type):
            array = times_as_text(array)
        # A cast to text checks that bytes are valid UTF-8.
        return key_buffers(array.cast(pyarrow.large_string() if kind == "text" else pyarrow.large_binary()))[1:]
    return None, _items(array.cast(_arrow_type(kind, array.type)))


def _arrow_type(kind: str, found: Any) -> Any:
    import pyarrow

    if kind in _FIXED:
        return getattr(pyarrow, _FIXED[kind])()
    if kind.startswith("timestamp"):
        unit = kind.partition("(")[2].removesuffix(")") or "us"
        return pyarrow.timestamp(unit, found.tz if pyarrow.types.is_timestamp(found) else None)
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        raise ValueError(f"the type is {kind!r}, which Arrow columns cannot be converted to")
    return pyarrow.decimal128(int(decimal[1]), int(decimal[2]))


def _items(array: Any) -> memoryview:
    """Return the bytes of the elements of an array of fixed length, starting at the offset of the array."""
    held, len_bytes = array.buffers()[1], array.type.bit_width // 8
    if held is None or len(array) == 0:
        return memoryview(b"")
    return memoryview(held.slice(len_bytes * array.offset, len_bytes * len(array))).cast("B")


def _list_parts(array: Any, kind: str) -> tuple[Any, Any]:
    """Return the offsets, in elements, and the elements of an array of lists."""
    import pyarrow

    found = _LIST.fullmatch(kind)
    element, size = found.groups() if found else (kind, None)
    is_fixed = pyarrow.types.is_fixed_size_list(array.type)
    if not is_fixed:
        # Also converts views and strings of lists, or raises an exception.
        kept = array.type.value_type if _is_list(array.type) else _arrow_type(element, array.type)
        array = array.cast(pyarrow.large_list(kept))
    # As in `bake`, null is NaN in a list of floats.
    is_float = element in ("f32", "f64")
    if array.flatten().null_count and not is_float:
        raise pyarrow.ArrowInvalid(
            "an element of a list is null, where the elements of a list need values: fill it, or leave the row out"
        )
    if is_fixed:
        length = array.type.list_size
        if size is not None and int(size) != length:
            raise pyarrow.ArrowInvalid(f"the lists have {length} elements, where {size} were expected")
        elements = array.values.slice(array.offset * length, len(array) * length)
        ends = None if size is not None else pyarrow.array(range(0, len(array) * length + 1, length), pyarrow.int64())
    else:
        ends = pyarrow.Array.from_buffers(pyarrow.int64(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset)
        first, last = (ends[0].as_py(), ends[len(array)].as_py()) if len(array) else (0, 0)
        elements = array.values.slice(first, last - first)
    # Null lists may have null elements.
    elements = elements.cast(_arrow_type(element, elements.type))
    if is_float and elements.null_count:
        elements = elements.fill_null(float("nan"))
    return None if ends is None else memoryview(_items(ends)).cast("q"), _items(elements)


def _json_of_texts(array: Any) -> Any:
    """Return an array with the JSON of each list of texts, in the spelling that tables store."""
    import pyarrow

    lists = array.cast(pyarrow.large_list(pyarrow.large_string()))
    if lists.flatten().null_count:
        raise pyarrow.ArrowInvalid(
            "an element of a list is null, where the elements of a list need values: fill it, or leave the row out"
        )
    json_of = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    texts = [None if texts is None else json_of(texts) for texts in lists.to_pylist()]
    return pyarrow.array(texts, pyarrow.large_string())


def _is_list(kind: Any) -> bool:
    from pyarrow import types  # type: ignore[import-untyped, unused-ignore]

    views = (types.is_list_view, types.is_large_list_view)
    return any(matches(kind) for matches in (types.is_list, types.is_large_list, *views))
