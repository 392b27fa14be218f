"""Chooses how rows of many types become the pairs that the compiled code bakes."""

from __future__ import annotations

import datetime
import decimal
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zero_kv._arrays import is_masked
from zero_kv._typed_rows import (
    Batches,
    Key,
    cells_of,
    key_cells,
    known_columns,
    names_of,
    needed_arrow_of,
    parts_of,
    type_of,
    typed_rows,
    types_of_keys,
    with_index,
)

_VALUE = "value"
"""The name of the column of rows without column names."""
_UNTYPED = ("text", "bytes")
_OBJECT_KEYS = {"IPv4Address": "ip", "IPv6Address": "ip", "IPv4Network": "ip", "IPv6Network": "ip", "UUID": "uuid"}
"""The key types of objects, by the names of their classes."""
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
    """The name of the key's column, or the names of the columns of its parts, with commas between them."""
    key_type: str = "auto"
    """The type of the keys. A part is `auto` if the first row decides about it."""

    def without_last_part(self) -> Rows:
        """Return the same rows, for keys that end with the last key of a range, which is no part of the keys."""
        name = None if self.key_name is None else self.key_name.rpartition(",")[0]
        # For rows without columns, `auto` stands for all parts.
        return replace(self, key_name=name, key_type=self.key_type.rpartition(",")[0] or self.key_type)


def rows_of(
    rows: Any,
    key: str | Sequence[str] | None,
    value: str | Sequence[str] | None,
    typed: bool,
    types: Mapping[str, str] | None,
    base_schema: Callable[[], Mapping[str, str] | None] | None,
) -> Rows:
    """Return the rows of an object that `bake` accepts."""
    if key is not None and not isinstance(key, str):
        key = list(key)
        key = key[0] if len(key) == 1 else key
    if isinstance(rows, (str, bytes, os.PathLike)):
        rows = _file_rows(os.fsdecode(rows))
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
            rows = Batches(first, rows, key)
            key = rows.key if rows.key != value else key
        else:
            rows = itertools.chain([first], rows)
    rows, index = with_index(rows, key)
    key = index if index != value else key
    rows, object_types = _with_text_keys(rows, key)
    found = _rows_of_columns(rows, key, value, wanted, typed, types, base_schema)
    if object_types:
        of_columns = found.key_type.split(",") if "," in found.key_type else [found.key_type] * len(object_types)
        parts = zip(object_types, of_columns, strict=True)
        found.key_type = ",".join(kind if kind != "auto" else other for kind, other in parts)
    return found


def _rows_of_columns(
    rows: Any,
    key: Key | None,
    value: str | Sequence[str] | None,
    wanted: Any,
    typed: bool,
    types: Mapping[str, str] | None,
    base_schema: Callable[[], Mapping[str, str] | None] | None,
) -> Rows:
    names = _column_names(rows)
    if names is None:
        if key is not None and types is None or value is not None:
            raise TypeError(
                f"key, value, ranges, and cidr name columns, which an object of type {type(rows).__name__} does not have: "
                "leave key and value out, give ranges=True or cidr=True, or pass a DataFrame"
            )
        return _pair_rows(rows, key, typed, types, base_schema)
    if wanted is None and not typed and types is None:
        key, wanted = _choose_columns(names, key)
    if typed or types is not None or not isinstance(wanted, str):
        for name in (*([] if key is None else names_of(key)), *(wanted or ())):
            if names.count(name) != 1:
                raise ValueError(f"the column {name!r} was requested, where the columns are {names}")
        return Rows(*typed_rows(rows, key, types, wanted, None if base_schema is None else base_schema()))
    if key is None:
        left = [name for name in names if name != wanted]
        if names.count(wanted) != 1 or len(left) != 1:
            key, wanted = _choose_columns(names, None, wanted)
        else:
            key = left[0]
    for what, name in (*(("key", name) for name in names_of(key)), ("value", wanted)):
        if names.count(name) != 1:
            raise ValueError(f"{what} is {name!r}, where one of the columns was expected: {names}")
    return _column_rows(rows, key, wanted)


def _with_text_keys(rows: Any, key: Key | None) -> tuple[Any, list[str]]:
    """Return a pandas DataFrame whose addresses and UUIDs, which Arrow has no type for, are text in the columns of the key,
    and the types of the parts of the key. They are empty if there are no such columns.
    """
    if type(rows).__module__.partition(".")[0] != "pandas" or not hasattr(rows, "columns"):
        return rows, []
    names = [rows.columns[0]] if key is None and len(rows.columns) else names_of(key or [])
    types = []
    for name in names:
        column = rows[name] if list(rows.columns).count(name) == 1 else None
        cells = column if column is not None and column.dtype == object else ()
        first = next((cell for cell in cells if cell is not None), None)
        kind = _OBJECT_KEYS.get(type(first).__name__, "auto")
        types.append(kind)
        if kind != "auto":
            rows = rows.assign(**{name: [None if cell is None else str(cell) for cell in rows[name]]})
    return rows, types if any(kind != "auto" for kind in types) else []


def _file_rows(path: str) -> Any:
    """Return the rows of a Parquet file."""
    if path.endswith(".parquet"):
        import pyarrow.dataset  # type: ignore[import-untyped, unused-ignore]

        return pyarrow.dataset.dataset(path)
    readers = {".csv": "scan_csv", ".ndjson": "scan_ndjson", ".jsonl": "scan_ndjson", ".json": "read_json"}
    reader = readers.get(os.path.splitext(path)[1], "scan_csv")
    raise TypeError(
        f"rows are the path {path!r}, where rows or the path of a Parquet file, with the ending .parquet, were expected: "
        f"read the file, as in polars.{reader}({path!r}), or bake it with the command `baker --typed`"
    )


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

    for what, array in (("keys", keys), ("values", values)):
        count = int(numpy.ma.getmaskarray(array).sum()) if is_masked(array) else 0
        if count and (what == "keys" or array.ndim == 2):
            raise ValueError(
                f"the {what} have {count} masked elements, where each element needs a value: leave their rows out, or "
                "fill them, as in array.filled(0)"
            )
    masked = numpy.ma.getmaskarray(values) if is_masked(values) else None
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
    key_list, key_type = _key_list(keys)
    is_packed = values.ndim == 2 and not typed and types is None
    if types is not None and len(types) != 1:
        raise ValueError(f"types are {dict(types)}, where one type for the column of the matrix was expected")
    if is_packed:
        return Rows(zip(key_list, values, strict=True), key_type=key_type)
    column = f"list({kind},{values.shape[1]})" if values.ndim == 2 else kind
    cells = values if values.ndim == 2 else values.tolist()
    if masked is not None and masked.any():
        # Masked values are null.
        cells, column = numpy.ma.masked_array(values, masked).tolist(), f"{column}?"
    columns = list(types.items()) if types else [(_VALUE, column)]
    return Rows(zip(key_list, ((cell,) for cell in cells), strict=True), columns, key_type=key_type)


def _key_list(keys: Any) -> tuple[list[Any], str]:
    """Return the keys of an array as objects, and their type."""
    kind = getattr(getattr(keys, "dtype", None), "kind", "O")
    if kind == "i" and len(keys) and keys.min() < 0:
        return keys.tolist(), "i64"
    if kind == "M" and type(keys).__module__.partition(".")[0] == "numpy":
        # Scalars of NumPy keep their unit, where `tolist` returns numbers for nanoseconds.
        return list(keys), "date" if keys.dtype.str.endswith("[D]") else "timestamp"
    return keys.tolist() if hasattr(keys, "tolist") else list(keys), "auto"


def _pair_rows(
    rows: Any,
    key: Key | None,
    typed: bool,
    types: Mapping[str, str] | None,
    base_schema: Callable[[], Mapping[str, str] | None] | None,
) -> Rows:
    if types is None and typed and base_schema is not None:
        types = dict(base_schema() or {})
    pairs: Iterator[Any]
    is_null = False
    if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "isna"):
        missing = _missing_of_series(rows)
        pairs, is_null = _series_pairs(rows, missing), bool(missing.any())
        cell = next((cell for _, cell in _series_pairs(rows, missing) if cell is not None), None)
    else:
        pairs = iter(rows.items() if hasattr(rows, "items") else rows)
        first = next(pairs, None)
        pairs = iter(()) if first is None else itertools.chain([first], pairs)
        cell = first[1] if isinstance(first, (tuple, list)) and len(first) == 2 else None
    if types is None and not typed and cell is not None:
        old = None if base_schema is None else base_schema()
        if old is not None:
            types = dict(old)
        elif (kind := _kind_of(cell)) is not None:
            return Rows((_as_row(pair, False) for pair in pairs), [(_VALUE, f"{kind}?" if is_null else kind)])
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


def _missing_of_series(series: Any) -> Any:
    """Return an array of Booleans that are true for the rows of a pandas Series without a value. NaN in a Series of floats
    is a value.
    """
    import numpy

    has_nan = isinstance(series.dtype, numpy.dtype) and series.dtype.kind == "f"
    return numpy.zeros(len(series), numpy.bool_) if has_nan else series.isna().to_numpy()


def _series_pairs(series: Any, missing: Any) -> Iterator[tuple[Any, Any]]:
    """Return the keys and the cells of a pandas Series as objects of Python, with `None` for missing cells."""
    import numpy

    for (key, cell), is_missing in zip(series.items(), missing, strict=True):
        yield key, None if is_missing else cell.item() if isinstance(cell, numpy.generic) else cell


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


def _choose_columns(columns: list[Any], key: Key | None, value: str | None = None) -> tuple[Any, Any]:
    """Return the columns of the key and of the value if there is one choice."""
    listed = [] if key is None else names_of(key)
    for what, name in (*(("key", name) for name in listed), ("value", value)):
        if name is not None and columns.count(name) != 1:
            raise ValueError(f"{what} is {name!r}, where one of the columns was expected: {columns}")
    left = [column for column in columns if column not in (*listed, value)]
    if len(columns) != max(len(listed), 1) + 1 or len(left) != (2 if key is None and value is None else 1):
        raise ValueError(
            f"the columns are {columns}: choose with key and value; value can be a list of names, and typed=True bakes all "
            "columns"
        )
    if key is None:
        key = left.pop(0)
    return key, left.pop() if value is None else value


def _column_rows(rows: Any, key: Key, value: str) -> Rows:
    """Return the rows of the columns of the key and of the value."""
    package = type(rows).__module__.partition(".")[0]
    names = names_of(key)
    if package == "pandas" and isinstance(key, str) and rows[value].dtype == object:
        cell = next((cell for cell in rows[value] if cell is not None), None)
        if cell is None or isinstance(cell, (bytes, str, memoryview, bytearray)) or hasattr(cell, "__array__"):
            is_negative = rows[key].dtype.kind == "i" and bool((rows[key] < 0).any())
            return Rows(zip(rows[key], rows[value], strict=True), key_type="i64" if is_negative else "auto")
    if package == "polars" and not hasattr(rows, "collect_batches"):
        rows = rows.select(*names, value)
    schema, batches = needed_arrow_of(rows[[*names, value]] if package == "pandas" else rows, [*names, value])
    field = schema.field(value)
    kind = type_of(field)
    if kind.removesuffix("?") in _UNTYPED or kind.startswith("list("):
        key_type = types_of_keys(schema, key, known_columns(rows, batches))
        return Rows(_pairs(batches, key, value, kind.removesuffix("?")), key_type=key_type)
    return Rows(*typed_rows(_Columns(schema, batches), key, None, [value]))


class _Columns(Batches):
    """A schema and its batches, of which the first one may have been read."""

    def __init__(self, schema: Any, batches: Iterable[Any]) -> None:
        self.found = schema, batches

    def arrow(self) -> tuple[Any, Iterable[Any]]:
        return self.found


def _pairs(batches: Iterable[Any], key: Key, value: str, kind: str) -> Iterator[tuple[Any, Any]]:
    for part, before in parts_of(batches):
        cells = cells_of(part.column(value), kind, value, before)
        yield from zip(key_cells(part, key), cells, strict=True)
