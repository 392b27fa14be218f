"""Converts rows of many types to pairs of key and value, or of key and columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from zero_kv._native import Report, bake_rows, open
from zero_kv._progress import BakeProgress, Display
from zero_kv._rows import rows_of


def bake(
    rows: Any,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] | None = None,
    value: str | Sequence[str] | None = None,
    typed: bool = False,
    types: Mapping[str, str] | None = None,
    cast: bool = False,
    keys: str = "auto",
    ranges: Sequence[str] | Literal[True] | None = None,
    cidr: str | Literal[True] | None = None,
    overlaps: str | None = None,
    layout: str = "fast",
    duplicates: str = "error",
    base: str | os.PathLike[str] | None = None,
    memory_bytes: int | None = None,
    threads: int | None = None,
    min_rows: int = 0,
    max_shrink_percent: int | None = None,
    allow_empty: bool = False,
    allow_key_type_change: bool = False,
    progress: bool | Callable[[BakeProgress], object] = False,
) -> Report:
    """Bake rows into the file at `path`. An existing file is replaced only after the new file is complete.

    `rows` is one of:

    - a dict or another mapping, an iterable of pairs of a key and a value, or a pandas Series
    - a pair of arrays: one key for each row, and a matrix, whose rows are the values
    - a pandas or Polars DataFrame, a Polars LazyFrame, a pyarrow table, record batch, reader, or dataset, or another object
      with the Arrow stream interface; or an iterator of DataFrames or record batches
    - the path of a Parquet file, which ends with `.parquet`

    LazyFrames, datasets, readers, and iterators are read in batches, so they can be larger than the memory. `key` and
    `value` name columns. They are optional if there are two columns: the first one has the keys. A named index of a
    pandas DataFrame is its first column, and the key unless `key` names another column, also in a Parquet file or a pyarrow
    table that was made from the DataFrame.

    Keys are all `int` (0 to 2**64 - 1), or all `bytes` or `str`; or they have another type, and keep its order: negative
    numbers (`i64`), addresses of `ipaddress` (`ip`), `uuid.UUID`, `datetime.date`, `datetime.datetime` (`timestamp`, in UTC if
    it has no time zone), or a tuple of 2 to 8 such parts. The type is that of the first key, or of the column. `keys` names
    it for text, such as `keys="ip"`, `"uuid"`, `"hex"`, or `"bytes,date"` for keys of two parts; `keys="i64"` takes negative
    numbers after others, `keys="ipv4"` stores addresses as numbers, and `keys="u64"` also accepts text with decimal numbers.
    `key` can be a list of columns, such as `["country", "city"]`, which are the parts of the key.

    Values are `bytes`, `str` (encoded as UTF-8), or objects with the buffer protocol. Rows of a matrix, and lists of numbers
    in a column, are stored as their packed elements, such as 4 bytes for each float32. If the values are `int`, `float`,
    `bool`, dates, times, or decimals, or if `value` is a list of names, the table is typed. Its column has the name of the
    column of `rows`, or `value`.

    With `typed` or `types`, the table is typed: its rows have columns with names and types. `types` maps names of
    columns to types, such as `{"price": "f32", "name": "text?"}`; a type that ends with `?` allows null. The columns of
    DataFrames and pyarrow objects become the columns of the table, with the types that they have in Arrow; `types`
    overrides the types of some of them. If all lists of a column have one length, the type has this length, unless rows
    are read once, from a LazyFrame, a reader, or an iterator. `key` names the column with the keys, by default the
    first. In other rows, each value is a mapping from names to cells, or a tuple in the order of `types`, and `types`
    has all columns; by default, they are the columns of `base`. Cells are objects of the types of `TypedRow`. A float
    is rounded to the width of its column. An `int` can be the days of a date, or the units of a timestamp, since
    1970-01-01, and `str` can be the text of a date, a timestamp, or a decimal.

    With `ranges` or `cidr`, the table has ranges, in which `cover` finds the one that contains a key. `ranges` are the
    names of two columns, with the first and the last key of each range, and `cidr` is the name of a column with blocks
    of addresses, such as `"192.0.2.0/24"` or `ipaddress.ip_network("192.0.2.0/24")`. `key` then names the columns of
    the parts before them, which all keys of a range have in common, and `keys` is the type of the keys, by default `ip`
    for blocks. For rows without columns, `ranges=True` takes keys that are tuples of these parts, the first, and the
    last key, such as `{(1, 9): b"one"}`, and `cidr=True` takes blocks, such as `{"10.0.0.0/8": b"ten"}`. `overlaps` is
    the policy for keys of several ranges: `"error"`, the default of `ranges`; `"first"` or `"last"`, the row that comes
    first or last; or `"narrowest"`, the default of `cidr`. Adjacent ranges with equal values become one row.

    `layout` is `"fast"`, or `"compact"` for a smaller file, whose keys must be numbers.

    Rows may be in any order. `duplicates` is the policy for rows with equal keys: `"error"`, `"first"`, or `"last"`.
    `base` is an older table, which may be `path`. A row of `base` is added if no new row has its key. In a typed table,
    the columns of `base` are matched by name: added columns are null in the old rows, which are converted to changed
    types only with `cast`. Rows that do not fit in `memory_bytes`, by default half of the machine's memory, are sorted on
    disk in the directory of `path`.

    A table without rows does not replace a table with rows unless `allow_empty` is set. A table with keys of
    another type does not replace the old table unless `allow_key_type_change` is set. A table that has lost more than
    `max_shrink_percent` percent of the old table's rows does not replace the old table. A table with fewer than
    `min_rows` rows is rejected. Each of these cases raises `BakeFailed`.

    With `progress=True`, a progress bar is shown with tqdm if it is installed, and otherwise as text on standard error. A
    callable is called with a `BakeProgress` about 20 times per second. Its exceptions stop the bake and are raised.

    A server that serves `path` loads the new file automatically. Other threads run during a bake, and Ctrl-C stops it. A
    bake that fails or is stopped leaves no files behind.

    Text that looks like IP addresses or UUIDs, and is baked as bytes, causes a `UserWarning`: pass `keys="ip"` or
    `keys="uuid"`.

    Raises `BakeFailed` if the rows cannot be baked, and `TypeError` or `OverflowError` for an invalid key or value; the
    message has the number of the row, counted from 1. Also raises any exception that `rows` raises, and `OSError` if
    the file cannot be written.

    >>> bake({128512: "GRINNING FACE"}, "names.db").rows  # doctest: +SKIP
    1
    """
    schema_of_base = None if base is None else lambda: open(base, verify="touch").schema()
    form = _range_form(ranges, cidr, overlaps)
    found = rows_of(rows, _key_columns(key, ranges, cidr), value, typed, types, schema_of_base)
    if form is not None and form[0] == "ends" and ranges is not True:
        found = found.without_last_part()
    if cast and found.columns is None:
        raise ValueError("cast is given, which converts the columns of a typed table: pass typed=True or types")
    display = Display(progress) if progress else None
    report = None
    try:
        report = bake_rows(
            found.pairs,
            os.fspath(path),
            found.key_type if keys == "auto" else keys,
            form,
            layout,
            duplicates,
            None if base is None else os.fspath(base),
            memory_bytes,
            threads,
            (min_rows, max_shrink_percent, allow_empty, allow_key_type_change),
            None if found.columns is None else (found.columns, found.key_name, cast),
            display,
        )
    finally:
        if display is not None:
            display.close(report is not None)
    return report


def _range_form(ranges: Any, cidr: Any, overlaps: str | None) -> tuple[str, str] | None:
    """Return how keys state ranges, and the policy for ranges that overlap. A table of single keys has none."""
    if ranges is None and cidr is None:
        if overlaps is not None:
            raise ValueError("overlaps is given, which is a policy for ranges: pass ranges or cidr, too")
        return None
    if ranges is not None and cidr is not None:
        raise ValueError("ranges and cidr are given, where one of them was expected: pass the one that the rows have")
    if cidr is not None:
        if cidr is not True and not isinstance(cidr, str):
            raise TypeError(f"cidr is {cidr!r}, where the name of a column or True was expected")
        return "blocks", overlaps or "narrowest"
    if ranges is not True and (isinstance(ranges, str) or len(ranges) != 2):
        expected = 'two names of columns, such as ("start", "end"), or True was expected'
        raise ValueError(f"ranges is {ranges!r}, where {expected}")
    return "ends", overlaps or "error"


def _key_columns(key: str | Sequence[str] | None, ranges: Any, cidr: Any) -> str | Sequence[str] | None:
    """Return the columns of the parts of keys, followed by those of ranges."""
    last = [] if ranges is None or ranges is True else list(ranges)
    last += [] if cidr is None or cidr is True else [cidr]
    if not last:
        return key
    return [*([key] if isinstance(key, str) else key or []), *last]
