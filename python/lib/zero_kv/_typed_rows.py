"""Converts DataFrames and pyarrow objects to rows of typed tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zero_kv._arrays import checked
from zero_kv.errors import BakeFailed

_BATCH_ROWS = 8192
_Typed = tuple[Iterator[Any], list[tuple[str, str]], str | None]


def typed_rows(
    rows: Any, key: str | None, types: Mapping[str, str] | None, wanted: Sequence[str] | None = None
) -> _Typed:
    """Return an iterator over pairs of key and columns, the columns' names and types, and the name of the key.

    `wanted` are the names of the columns, by default all except the key.
    """
    if isinstance(rows, (str, bytes, os.PathLike)):
        raise TypeError("rows are a path, where rows were expected: bake text files with the command baker")
    arrow = arrow_of(rows, None if key is None or wanted is None else [key, *wanted])
    if arrow is None:
        if not types:
            raise ValueError("types are missing, where rows without Arrow types need a type for each column: pass types")
        pairs = iter(rows.items() if hasattr(rows, "items") else rows)
        return pairs, [(name, kind) for name, kind in types.items() if name != key], key
    schema, batches = arrow
    names = list(schema.names)
    key = names[0] if key is None else key
    types = {} if types is None else types
    for name in (key, *types, *(wanted or ())):
        if names.count(name) != 1:
            raise ValueError(f"the column {name!r} was requested, where the columns are {names}")
    fields = [field for field in schema if field.name != key and (wanted is None or field.name in wanted)]
    if wanted is not None:
        fields.sort(key=lambda field: wanted.index(field.name))
    columns = [(field.name, types.get(field.name) or type_of(field)) for field in fields]
    return _pairs(batches, key, columns), columns, key


def arrow_of(rows: Any, columns: list[str] | None = None) -> tuple[Any, Iterable[Any]] | None:
    """Return the schema and the record batches of an object with Arrow columns.

    The batches of LazyFrames, datasets, readers, and streams are read one by one. Other columns than `columns` of a
    LazyFrame or a dataset are not read.
    """
    if isinstance(rows, Batches):
        return rows.arrow()
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas" and hasattr(rows, "columns"):
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        rows = pyarrow.Table.from_pandas(rows, preserve_index=False)
    elif package == "polars" and hasattr(rows, "collect_schema") and hasattr(rows, "collect_batches"):
        return _lazy_batches(rows if columns is None else rows.select(columns))
    elif package == "polars" and hasattr(rows, "to_arrow") and hasattr(rows, "columns"):
        rows = rows.to_arrow()
    elif package == "pyarrow" and hasattr(rows, "scanner"):
        # Few batches are read ahead, because row groups can be large.
        rows = rows.scanner(columns=columns, batch_size=_BATCH_ROWS, batch_readahead=4, fragment_readahead=1).to_reader()
    elif package == "pyarrow" and type(rows).__name__ == "Scanner":
        rows = rows.to_reader()
    elif package not in ("pandas", "polars", "pyarrow") and hasattr(rows, "__arrow_c_stream__"):
        import pyarrow

        rows = pyarrow.RecordBatchReader.from_stream(rows)
    elif package != "pyarrow" or not hasattr(rows, "schema"):
        return None
    if hasattr(rows, "to_batches"):
        # The batches share dictionaries, which are checked once.
        return rows.schema, checked(rows, "rows").to_batches(max_chunksize=_BATCH_ROWS)
    return rows.schema, checked_batches(rows if hasattr(rows, "read_next_batch") else [rows])


def checked_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Return record batches, each of which is checked."""
    for number, batch in enumerate(batches, 1):
        yield checked(batch, f"batch {number}")


def _lazy_batches(rows: Any) -> tuple[Any, Iterable[Any]]:
    """Return the schema and the record batches of a Polars LazyFrame, which is evaluated in streaming mode."""
    schema = rows.collect_schema().to_frame().to_arrow().schema

    def batches() -> Iterator[Any]:
        for frame in rows.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
            yield from frame.to_arrow().cast(schema).to_batches(max_chunksize=_BATCH_ROWS)

    return schema, batches()


class Batches:
    """An iterator of frames or record batches with the same columns, as one object with Arrow columns."""

    def __init__(self, first: Any, rest: Iterator[Any]) -> None:
        self.first = first
        self.items = itertools.chain([first], rest)

    def arrow(self) -> tuple[Any, Iterable[Any]]:
        """Return the schema and the record batches."""
        found = arrow_of(self.first)
        assert found is not None
        schema = found[0]

        def batches() -> Iterator[Any]:
            for number, item in enumerate(self.items, 1):
                arrow = arrow_of(item)
                names = None if arrow is None else arrow[0].names
                if arrow is None or names != schema.names:
                    found = f"of type {type(item).__name__}" if names is None else f"with the columns {names}"
                    raise BakeFailed(
                        f"item {number} of the iterator is {found}, where a batch with the columns {schema.names} was "
                        "expected: select these columns in each batch"
                    )
                for batch in arrow[1]:
                    yield batch if batch.schema.equals(schema) else batch.cast(schema)

        return schema, batches()


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
            cells = [cells_of(part.column(name), kind.removesuffix("?")) for name, kind in columns]
            yield from zip(part.column(key).to_pylist(), zip(*cells, strict=True), strict=True)


def cells_of(array: Any, kind: str) -> list[Any]:
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
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    valid = array.is_valid().to_pylist()
    is_fixed = pyarrow.types.is_fixed_size_list(array.type)
    elements = _numbers(array.flatten(), element)
    if elements.null_count:
        raise ValueError(
            "an element of a list is null, where the elements of a list need values: fill it, or drop the row"
        )
    if is_fixed:
        lens: list[int] = [array.type.list_size if is_valid else 0 for is_valid in valid]
    else:
        lens = [length or 0 for length in pyarrow.compute.list_value_length(array).to_pylist()]
    items, cells, end = elements.to_numpy(zero_copy_only=False), [], 0
    for is_valid, length in zip(valid, lens, strict=True):
        cells.append(items[end : end + length] if is_valid else None)
        end += length
    return cells
