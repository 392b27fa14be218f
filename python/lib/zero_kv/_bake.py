"""Converts rows of many types to pairs of key and value, or of key and columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from zero_kv._native import Report, bake_rows, open
from zero_kv._typed_rows import typed_rows

_BATCH_ROWS = 8192


def bake(
    rows: Any,
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    value: str | None = None,
    typed: bool = False,
    types: Mapping[str, str] | None = None,
    cast: bool = False,
    keys: str = "auto",
    duplicates: str = "error",
    base: str | os.PathLike[str] | None = None,
    memory_bytes: int | None = None,
    threads: int | None = None,
    min_rows: int = 0,
    max_shrink_percent: int | None = None,
    allow_empty: bool = False,
    allow_key_kind_change: bool = False,
) -> Report:
    """Bake rows into the file at `path`. An existing file is replaced only after the new file is complete.

    `rows` is an iterable of pairs, a dict or another mapping, a pandas or Polars DataFrame, or a pyarrow table, record
    batch, or reader. For DataFrames and pyarrow objects, `key` and `value` name the columns. Both names are optional if
    there are two columns.

    Keys are all `int` (0 to 2**64 - 1), or all `bytes` or `str`; `keys="u64"` also accepts text with decimal numbers.
    Values are `bytes`, `str` (encoded as UTF-8), or objects with the buffer protocol, such as a row of a NumPy array.

    With `typed` or `types`, the table is typed: its rows have columns with names and types. `types` maps names of columns
    to types, such as `{"price": "f32", "name": "text?"}`; a type that ends with `?` allows null. The columns of DataFrames
    and pyarrow objects become the columns of the table, with the types that they have in Arrow; `types` overrides the
    types of some of them. `key` names the column with the keys, by default the first. In other rows, each value is a
    mapping from names to cells, or a tuple in the order of `types`, and `types` has all columns; by default, they are the
    columns of `base`. Cells are objects of the types of `TypedRow`. A float is rounded to the width of its column. An
    `int` can be the days of a date, or the units of a timestamp, since 1970-01-01, and `str` can be the text of a date, a
    timestamp, or a decimal.

    Rows may be in any order. `duplicates` is the policy for rows with equal keys: `"error"`, `"first"`, or `"last"`.
    `base` is an older table, which may be `path`. A row of `base` is added if no new row has its key. In a typed table,
    the columns of `base` are matched by name: added columns are null in the old rows, which are converted to changed
    types only with `cast`. Rows that do not fit in `memory_bytes`, by default half of the machine's memory, are sorted on
    disk in the directory of `path`.

    A table without rows does not replace a table with rows unless `allow_empty` is set. A table with the other kind of
    keys does not replace the old table unless `allow_key_kind_change` is set. A table that has lost more than
    `max_shrink_percent` percent of the old table's rows does not replace the old table. A table with fewer than
    `min_rows` rows is rejected. Each of these cases raises `BakeFailed`.

    A server that serves `path` loads the new file automatically. Other threads run during a bake, and Ctrl-C stops it.

    Raises `BakeFailed` if the rows cannot be baked, and `TypeError` or `OverflowError` for an invalid key or value; the
    message has the number of the row, counted from 1. Also raises any exception that `rows` raises, and `OSError` if
    the file cannot be written.

    >>> bake({128512: "GRINNING FACE"}, "names.db").rows  # doctest: +SKIP
    1
    """
    if not typed and types is None:
        if cast:
            raise ValueError("cast is given, which converts the columns of a typed table: pass typed=True or types")
        pairs, declared = _pairs(rows, key, value), None
    else:
        if value is not None:
            raise ValueError(f"value is {value!r}, where a typed table has several columns: pass key and types")
        if types is None and base is not None and not _has_columns(rows):
            types = dict(open(base, verify="touch").schema or {})
        pairs, columns, key_name = typed_rows(rows, key, types)
        declared = (columns, key_name, cast)
    return bake_rows(
        pairs,
        os.fspath(path),
        keys,
        duplicates,
        None if base is None else os.fspath(base),
        memory_bytes,
        threads,
        (min_rows, max_shrink_percent, allow_empty, allow_key_kind_change),
        declared,
    )


def _has_columns(rows: Any) -> bool:
    return _column_names(rows, type(rows).__module__.partition(".")[0]) is not None


def _pairs(rows: Any, key: str | None, value: str | None) -> Iterator[Any]:
    if isinstance(rows, (str, bytes, os.PathLike)):
        raise TypeError("rows are a path, where rows were expected: bake text files with the command baker")
    package = type(rows).__module__.partition(".")[0]
    columns = _column_names(rows, package)
    if columns is None:
        if key is not None or value is not None:
            raise TypeError(f"key and value name columns, which an object of type {type(rows).__name__} does not have")
        return iter(rows.items() if hasattr(rows, "items") else rows)
    key, value = _choose_columns(columns, key, value)
    if package == "pandas":
        return zip(rows[key], rows[value], strict=True)
    if package == "polars":
        return iter(rows.select(key, value).iter_rows(buffer_size=_BATCH_ROWS))
    return _arrow_pairs(rows, key, value)


def _column_names(rows: Any, package: str) -> list[Any] | None:
    if package in ("pandas", "polars") and hasattr(rows, "columns"):
        return list(rows.columns)
    if package == "pyarrow" and hasattr(rows, "schema"):
        return list(rows.schema.names)
    return None


def _choose_columns(columns: list[Any], key: str | None, value: str | None) -> tuple[Any, Any]:
    for name, column in (("key", key), ("value", value)):
        if column is not None and columns.count(column) != 1:
            raise ValueError(f"{name} is {column!r}, where one of the columns was expected: {columns}")
    left = [column for column in columns if column not in (key, value)]
    if key is not None and value is not None:
        return key, value
    if len(columns) != 2 or len(left) != (2 if key is None and value is None else 1):
        what = "choose with key and value; reset_index() makes a column of a pandas index"
        raise ValueError(f"the columns are {columns}: {what}")
    if key is None:
        key = left.pop(0)
    return key, left.pop() if value is None else value


def _arrow_pairs(rows: Any, key: str, value: str) -> Iterator[tuple[Any, Any]]:
    if hasattr(rows, "to_batches"):
        batches = rows.select([key, value]).to_batches(max_chunksize=_BATCH_ROWS)
    elif hasattr(rows, "read_next_batch"):
        batches = rows
    else:
        batches = [rows]
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            yield from zip(part.column(key).to_pylist(), part.column(value).to_pylist(), strict=True)
