"""Converts DataFrames and pyarrow objects to rows of typed tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_BATCH_ROWS = 8192
_Typed = tuple[Iterator[Any], list[tuple[str, str]], str | None]


def typed_rows(rows: Any, key: str | None, types: Mapping[str, str] | None) -> _Typed:
    """Return an iterator over pairs of key and columns, the columns' names and types, and the name of the key."""
    if isinstance(rows, (str, bytes, os.PathLike)):
        raise TypeError("rows are a path, where rows were expected: bake text files with the command baker")
    arrow = arrow_of(rows)
    if arrow is None:
        if not types:
            raise ValueError("types are missing, where rows without Arrow types need a type for each column: pass types")
        pairs = iter(rows.items() if hasattr(rows, "items") else rows)
        return pairs, [(name, kind) for name, kind in types.items() if name != key], key
    schema, batches = arrow
    names = list(schema.names)
    key = names[0] if key is None else key
    types = {} if types is None else types
    for name in (key, *types):
        if names.count(name) != 1:
            raise ValueError(f"the column {name!r} was requested, where the columns are {names}")
    fields = [field for field in schema if field.name != key]
    columns = [(field.name, types.get(field.name) or type_of(field)) for field in fields]
    return _pairs(batches, key, columns), columns, key


def arrow_of(rows: Any) -> tuple[Any, Iterable[Any]] | None:
    """Return the schema and the record batches of an object with Arrow columns."""
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas" and hasattr(rows, "columns"):
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        rows = pyarrow.Table.from_pandas(rows, preserve_index=False)
    elif package == "polars" and hasattr(rows, "to_arrow"):
        rows = rows.to_arrow()
    elif package != "pyarrow" or not hasattr(rows, "schema"):
        return None
    if hasattr(rows, "to_batches"):
        return rows.schema, rows.to_batches(max_chunksize=_BATCH_ROWS)
    return rows.schema, rows if hasattr(rows, "read_next_batch") else [rows]


def type_of(field: Any) -> str:
    """Return the type of a column for an Arrow field."""
    return _kind(field.name, field.type) + ("?" if field.nullable else "")


def _kind(name: str, arrow: Any) -> str:
    from pyarrow import types  # type: ignore[import-untyped, unused-ignore]

    if types.is_dictionary(arrow):
        return _kind(name, arrow.value_type)
    if types.is_boolean(arrow):
        return "bool"
    if types.is_integer(arrow):
        return f"{'i' if types.is_signed_integer(arrow) else 'u'}{arrow.bit_width}"
    if types.is_floating(arrow):
        return "f64" if arrow.bit_width == 64 else "f32"
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return "text"
    if types.is_date(arrow):
        return "date"
    if types.is_timestamp(arrow):
        return f"timestamp({'ms' if arrow.unit == 's' else arrow.unit})"
    if types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_fixed_size_list(arrow):
        return f"list({_kind(name, arrow.value_type)},{arrow.list_size})"
    if types.is_list(arrow) or types.is_large_list(arrow):
        return f"list({_kind(name, arrow.value_type)})"
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return "bytes"
    raise ValueError(f"the column {name!r} has the Arrow type {arrow}, which no column can have: convert it, or leave it out")


def _pairs(batches: Iterable[Any], key: str, columns: list[tuple[str, str]]) -> Iterator[tuple[Any, Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            cells = [_cells(part.column(name), kind.removesuffix("?")) for name, kind in columns]
            yield from zip(part.column(key).to_pylist(), zip(*cells, strict=True), strict=True)


def _cells(array: Any, kind: str) -> list[Any]:
    """Return the cells of an Arrow array: dates and timestamps as integers, and others as objects."""
    import pyarrow

    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind.startswith("list") and (pyarrow.types.is_nested(array.type)):
        return _lists(array, kind[len("list(") : -1].partition(",")[0])
    cells: list[Any] = _numbers(array, kind).to_pylist()
    return cells


def _numbers(array: Any, kind: str) -> Any:
    """Return an array of dates or timestamps as integers, and other arrays unchanged."""
    import pyarrow

    if kind == "date" and pyarrow.types.is_date(array.type):
        return array.cast(pyarrow.date32()).cast(pyarrow.int32())
    if kind.startswith("timestamp") and pyarrow.types.is_timestamp(array.type):
        unit = kind.partition("(")[2].removesuffix(")") or "us"
        return array.cast(pyarrow.timestamp(unit, array.type.tz)).cast(pyarrow.int64())
    if pyarrow.types.is_float16(array.type):
        return array.cast(pyarrow.float32())
    return array


def _lists(array: Any, element: str) -> list[Any]:
    """Return an Arrow array of lists as a list of NumPy arrays, or as lists if elements are null."""
    import pyarrow

    valid = array.is_valid().to_pylist()
    is_fixed = pyarrow.types.is_fixed_size_list(array.type)
    elements = _numbers(array.flatten(), element)
    if elements.null_count:
        raise ValueError("an element of a list is null, where the elements of a list need values")
    if is_fixed:
        lens: list[int] = [array.type.list_size if is_valid else 0 for is_valid in valid]
    else:
        import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

        lens = [length or 0 for length in pyarrow.compute.list_value_length(array).to_pylist()]
    items, cells, end = elements.to_numpy(zero_copy_only=False), [], 0
    for is_valid, length in zip(valid, lens, strict=True):
        cells.append(items[end : end + length] if is_valid else None)
        end += length
    return cells
