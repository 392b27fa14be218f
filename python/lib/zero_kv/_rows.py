"""Chooses how rows of many types become the pairs that the compiled code bakes."""

from __future__ import annotations

import datetime
import decimal
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zero_kv._typed_rows import Batches, arrow_of, cells_of, type_of, typed_rows

_BATCH_ROWS = 8192
_VALUE = "value"
"""The name of the column of rows without column names."""
_UNTYPED = ("text", "bytes")
_NUMPY_KINDS = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float32": "f32",
    "float64": "f64",
}


@dataclass
class Rows:
    """Rows for the compiled code."""

    pairs: Iterator[Any]
    """Pairs of key and value, or of key and columns."""
    columns: list[tuple[str, str]] | None = None
    """The names and types of the columns of a typed table."""
    key_name: str | None = None
    """The name of the key's column."""


def rows_of(
    rows: Any,
    key: str | None,
    value: str | Sequence[str] | None,
    typed: bool,
    types: Mapping[str, str] | None,
    base_schema: Callable[[], Mapping[str, str] | None] | None,
) -> Rows:
    """Return the rows of an object that `bake` accepts."""
    if isinstance(rows, (str, bytes, os.PathLike)):
        raise TypeError("rows are a path, where rows were expected: bake text files with the command baker")
    wanted = [value] if isinstance(value, str) and (typed or types is not None) else value
    if (arrays := _arrays(rows)) is not None:
        if key is not None or value is not None:
            raise TypeError("key and value name columns, which a pair of arrays does not have: leave them out")
        return _array_rows(*arrays, typed, types)
    if isinstance(rows, Iterator) and not hasattr(rows, "read_next_batch"):
        first = next(rows, None)
        if first is None:
            rows = []
        elif not isinstance(first, (tuple, list)) and _is_batch(first):
            rows = Batches(first, rows)
        else:
            rows = itertools.chain([first], rows)
    names = _column_names(rows)
    if names is None:
        if key is not None and types is None or value is not None:
            raise TypeError(
                f"key and value name columns, which an object of type {type(rows).__name__} does not have: leave them out, "
                "or pass a DataFrame"
            )
        return _pair_rows(rows, key, typed, types, base_schema)
    if wanted is None and not typed and types is None:
        key, wanted = _choose_columns(names, key)
    if typed or types is not None or not isinstance(wanted, str):
        for name in (*([] if key is None else [key]), *(wanted or ())):
            if names.count(name) != 1:
                raise ValueError(f"the column {name!r} was requested, where the columns are {names}")
        return Rows(*typed_rows(rows, key, types, wanted))
    if key is None:
        left = [name for name in names if name != wanted]
        if names.count(wanted) != 1 or len(left) != 1:
            key, wanted = _choose_columns(names, None, wanted)
        else:
            key = left[0]
    for what, name in (("key", key), ("value", wanted)):
        if names.count(name) != 1:
            raise ValueError(f"{what} is {name!r}, where one of the columns was expected: {names}")
    return _column_rows(rows, key, wanted)


def _is_batch(item: Any) -> bool:
    package = type(item).__module__.partition(".")[0]
    return package in ("pandas", "polars", "pyarrow") and _column_names(item) is not None


def _arrays(rows: Any) -> tuple[Any, Any] | None:
    """Return the keys and the values of a pair of arrays."""
    if not isinstance(rows, (tuple, list)) or len(rows) != 2:
        return None
    keys, values = rows
    if not hasattr(values, "ndim") or not hasattr(values, "shape") or not hasattr(values, "__len__"):
        return None
    if isinstance(keys, (int, str, bytes)) or not hasattr(keys, "__len__"):
        return None
    return keys, values


def _array_rows(keys: Any, values: Any, typed: bool, types: Mapping[str, str] | None) -> Rows:
    import numpy

    values = numpy.asarray(values)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"the values are an array with {values.ndim} dimensions, where a matrix with one row for each key was expected: "
            "call values.reshape(len(keys), -1)"
        )
    if len(keys) != len(values):
        raise ValueError(
            f"there are {len(keys)} keys and {len(values)} values, where one value for each key was expected: pass arrays "
            "of the same length"
        )
    kind = _NUMPY_KINDS.get(values.dtype.name)
    if kind is None or values.ndim == 2 and kind == "bool":
        raise TypeError(
            f"the values have the dtype {values.dtype}, where integers or floats were expected: convert them, as in "
            'values.astype("float32")'
        )
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    key_list = keys.tolist() if hasattr(keys, "tolist") else list(keys)
    is_packed = values.ndim == 2 and not typed and types is None
    if types is not None and len(types) != 1:
        raise ValueError(f"types are {dict(types)}, where one type for the column of the matrix was expected")
    if is_packed:
        return Rows(zip(key_list, values, strict=True))
    column = f"list({kind},{values.shape[1]})" if values.ndim == 2 else kind
    cells = values if values.ndim == 2 else values.tolist()
    columns = list(types.items()) if types else [(_VALUE, column)]
    return Rows(zip(key_list, ((cell,) for cell in cells), strict=True), columns)


def _pair_rows(
    rows: Any,
    key: str | None,
    typed: bool,
    types: Mapping[str, str] | None,
    base_schema: Callable[[], Mapping[str, str] | None] | None,
) -> Rows:
    if types is None and typed and base_schema is not None:
        types = dict(base_schema() or {})
    pairs: Iterator[Any] = iter(rows.items() if hasattr(rows, "items") else rows)
    first = next(pairs, None)
    pairs = iter(()) if first is None else itertools.chain([first], pairs)
    cell = first[1] if isinstance(first, (tuple, list)) and len(first) == 2 else None
    if types is None and not typed and cell is not None:
        old = None if base_schema is None else base_schema()
        if old is not None:
            types = dict(old)
        elif (kind := _kind_of(cell)) is not None:
            return Rows((_as_row(pair, False) for pair in pairs), [(_VALUE, kind)])
        elif isinstance(cell, Mapping):
            raise ValueError(_needs_types(cell))
    if types is not None and len(types) == 1:
        is_list = next(iter(types.values())).startswith("list(")
        pairs = (_as_row(pair, is_list) for pair in pairs)
    if types is None and not typed:
        return Rows(pairs)
    if typed and types is None and isinstance(cell, Mapping):
        raise ValueError(_needs_types(cell))
    return Rows(*typed_rows(pairs, key, types))


def _as_row(pair: Any, is_list: bool) -> Any:
    """Return a pair of key and columns for a pair of key and cell. `is_list` is whether the only column has lists."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or isinstance(pair[1], Mapping):
        return pair
    cell = pair[1]
    if isinstance(cell, (tuple, list)):
        is_row = len(cell) == 1 and (cell[0] is None or isinstance(cell[0], (tuple, list)) or hasattr(cell[0], "__array__"))
        return pair if is_row or not is_list else (pair[0], (cell,))
    return pair[0], (cell,)


def _needs_types(cells: Mapping[Any, Any]) -> str:
    types = {str(name): _kind_of(cell) or ("bytes" if isinstance(cell, bytes) else "text?") for name, cell in cells.items()}
    return (
        "the values are mappings, where the types of the columns are missing: pass types with a type for each column, such "
        f"as types={types}"
    )


def _kind_of(cell: Any) -> str | None:
    """Return the type of a column for an object that is neither bytes nor text."""
    if type(cell) is bool:
        return "bool"
    if type(cell) is int:
        return "i64"
    if type(cell) is float:
        return "f64"
    if isinstance(cell, datetime.datetime):
        return "timestamp(ns)" if hasattr(cell, "nanosecond") else "timestamp(us)"
    if isinstance(cell, datetime.date):
        return "date"
    if isinstance(cell, decimal.Decimal):
        _, digits, exponent = cell.as_tuple()
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return f"decimal(38,{min(scale, 38)})"
    return None


def _column_names(rows: Any) -> list[Any] | None:
    """Return the names of the columns of an object with columns."""
    package = type(rows).__module__.partition(".")[0]
    if isinstance(rows, Batches):
        return _column_names(rows.first)
    if package == "polars" and hasattr(rows, "collect_schema"):
        return list(rows.collect_schema().names())
    if package in ("pandas", "polars") and hasattr(rows, "columns"):
        return list(rows.columns)
    if package == "pyarrow" and hasattr(rows, "schema"):
        return list(rows.schema.names)
    if package == "pyarrow" and hasattr(rows, "projected_schema"):
        return list(rows.projected_schema.names)
    if package not in ("pandas", "polars", "pyarrow") and hasattr(rows, "__arrow_c_stream__"):
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        return list(pyarrow.RecordBatchReader.from_stream(rows).schema.names)
    return None


def _choose_columns(columns: list[Any], key: str | None, value: str | None = None) -> tuple[Any, Any]:
    """Return the columns of the key and of the value if there is one choice."""
    for what, name in (("key", key), ("value", value)):
        if name is not None and columns.count(name) != 1:
            raise ValueError(f"{what} is {name!r}, where one of the columns was expected: {columns}")
    left = [column for column in columns if column not in (key, value)]
    if len(columns) != 2 or len(left) != (2 if key is None and value is None else 1):
        raise ValueError(
            f"the columns are {columns}: choose with key and value; value can be a list of names, and typed=True bakes all "
            "columns; reset_index() makes a column of a pandas index"
        )
    if key is None:
        key = left.pop(0)
    return key, left.pop() if value is None else value


def _column_rows(rows: Any, key: str, value: str) -> Rows:
    """Return the rows of two columns."""
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas" and rows[value].dtype == object:
        cell = next((cell for cell in rows[value] if cell is not None), None)
        if cell is None or isinstance(cell, (bytes, str, memoryview, bytearray)) or hasattr(cell, "__array__"):
            return Rows(zip(rows[key], rows[value], strict=True))
    if package == "polars" and not hasattr(rows, "collect_batches"):
        rows = rows.select(key, value)
    found = arrow_of(rows[[key, value]] if package == "pandas" else rows, [key, value])
    assert found is not None
    schema, batches = found
    field = schema.field(value)
    kind = type_of(field)
    if kind.removesuffix("?") in _UNTYPED or kind.startswith("list("):
        return Rows(_pairs(batches, key, value, kind.removesuffix("?")))
    return Rows(*typed_rows(_Columns(schema, batches), key, None, [value]))


class _Columns(Batches):
    """A schema and its batches, of which the first one may have been read."""

    def __init__(self, schema: Any, batches: Iterable[Any]) -> None:
        self.found = schema, batches

    def arrow(self) -> tuple[Any, Iterable[Any]]:
        return self.found


def _pairs(batches: Iterable[Any], key: str, value: str, kind: str) -> Iterator[tuple[Any, Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            yield from zip(part.column(key).to_pylist(), cells_of(part.column(value), kind), strict=True)
