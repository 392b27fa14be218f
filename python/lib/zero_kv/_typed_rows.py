"""Converts DataFrames and pyarrow objects to rows of typed tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zero_kv._arrays import checked, is_uuid, plain, plain_type
from zero_kv.errors import BakeFailed

_BATCH_ROWS = 8192
Key = str | list[str]
"""The name of the key's column, or the names of the columns of a key of several parts."""
_Typed = tuple[Iterator[Any], list[tuple[str, str]], str | None, str]


def typed_rows(
    rows: Any,
    key: Key | None,
    types: Mapping[str, str] | None,
    wanted: Sequence[str] | None = None,
    base: Mapping[str, str] | None = None,
) -> _Typed:
    """Return an iterator over pairs of key and columns, the columns' names and types, the name of the key, and the type of
    the keys.

    `wanted` are the names of the columns, by default all except the key. `base` are the columns of the table that the
    rows are added to.
    """
    arrow = arrow_of(rows, None if key is None or wanted is None else [*names_of(key), *wanted])
    if arrow is None:
        if not types:
            raise ValueError("types are missing, where rows without Arrow types need a type for each column: pass types")
        pairs = iter(rows.items() if hasattr(rows, "items") else rows)
        listed = () if key is None else names_of(key)
        columns = [(name, kind) for name, kind in types.items() if name not in listed]
        return pairs, columns, None if key is None else ",".join(listed), "auto"
    schema, batches = arrow
    names = list(schema.names)
    key = names[0] if key is None else key
    types = {} if types is None else types
    for name in (*names_of(key), *types, *(wanted or ())):
        if names.count(name) != 1:
            raise ValueError(f"the column {name!r} was requested, where the columns are {names}")
    fields = [field for field in schema if field.name not in names_of(key) and (wanted is None or field.name in wanted)]
    if wanted is not None:
        fields.sort(key=lambda field: wanted.index(field.name))
    columns = [(field.name, types.get(field.name) or type_of(field)) for field in fields]
    known = known_columns(rows, batches)
    if known is not None and len(set(names)) == len(names):
        columns = [
            (name, kind if name in types else _with_list_length(kind, known(name), (base or {}).get(name)))
            for name, kind in columns
        ]
    return _pairs(batches, key, columns), columns, ",".join(names_of(key)), types_of_keys(schema, key, known)


def names_of(key: Key) -> list[str]:
    """Return the names of the columns of a key."""
    return [key] if isinstance(key, str) else key


def types_of_keys(schema: Any, key: Key, known: Callable[[str], Iterable[Any]] | None) -> str:
    """Return the type of the keys. A part is `auto` if the first row decides about it.

    `known` returns the arrays of a column before the bake begins, unless rows can be read only once.
    """
    parts = [_type_of_part(schema.field(name).type, known and known(name)) for name in names_of(key)]
    return ",".join(parts)


def _type_of_part(kind: Any, arrays: Iterable[Any] | None) -> str:
    from pyarrow import types  # type: ignore[import-untyped, unused-ignore]

    if is_uuid(kind):
        return "uuid"
    kind = plain_type(kind)
    if types.is_timestamp(kind):
        return "timestamp"
    if types.is_date(kind):
        return "date"
    if types.is_signed_integer(kind) and arrays is not None:
        import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

        lowest = (pyarrow.compute.min(plain(array)).as_py() for array in arrays)
        return "i64" if any(number is not None and number < 0 for number in lowest) else "auto"
    return "auto"


def key_cells(batch: Any, key: Key) -> list[Any]:
    """Return the keys of a record batch: objects, or tuples of the objects of several columns."""
    cells = [plain(batch.column(name)).to_pylist() for name in names_of(key)]
    return cells[0] if isinstance(key, str) else list(zip(*cells, strict=True))


def with_index(rows: Any, key: Key | None) -> tuple[Any, Key | None]:
    """Return a pandas DataFrame whose named index is its first column, and which is the key unless another column is.
    Return other objects unchanged. The key of a pyarrow object that was a DataFrame is the column of its index.

    An index without a name is not a column. If it does not just number the rows, it may have the keys, so it is an
    error unless a column is the key.
    """
    package = type(rows).__module__.partition(".")[0]
    if package == "pyarrow" and key is None:
        schema = getattr(rows, "schema", None) or getattr(rows, "projected_schema", None)
        return rows, None if schema is None else index_of(schema)
    if package != "pandas" or not hasattr(rows, "columns") or not hasattr(rows, "index"):
        return rows, key
    index = rows.index
    names = [name for name in index.names if name is not None]
    if not names:
        if key is None and not hasattr(index, "step"):
            raise ValueError(
                "the DataFrame has an index without a name, which may have the keys: name it, as in "
                "df.rename_axis(\"id\"), to use it as the key, or choose a column with key"
            )
        return rows, key
    for name in names:
        if name in list(rows.columns) or names.count(name) > 1:
            raise ValueError(
                f"the DataFrame has an index and a column with the name {name!r}, so that the key is ambiguous: rename the "
                "index, as in df.rename_axis(\"id\"), or leave it out, as in df.reset_index(drop=True)"
            )
    if key is None and index.nlevels > 1:
        raise ValueError(
            f"the DataFrame has an index of {index.nlevels} levels, {list(index.names)}, where a key is one value: make a "
            "column with the key of each row, and choose it with key, or make its levels columns, as in df.reset_index(), and "
            "list them in key"
        )
    return rows.reset_index(), names[0] if key is None else key


def index_of(schema: Any) -> str | None:
    """Return the column of an Arrow schema that the index of a pandas DataFrame has become, as `baker` does with the
    metadata of Parquet. Return `None` if there is no index, or if the metadata is damaged.
    """
    try:
        levels = (schema.pandas_metadata or {}).get("index_columns")
    except (AttributeError, ValueError):
        return None
    found, ranges = [], []
    for level in levels if isinstance(levels, list) else []:
        if isinstance(level, str) and level in schema.names:
            found.append(level)
        elif isinstance(level, dict) and isinstance(level.get("name"), str):
            ranges.append(level["name"])
    if len(found) + len(ranges) > 1:
        raise ValueError(
            f"the rows have a pandas index of {len(found) + len(ranges)} levels, where a key is one value: choose the key "
            "column with key, or make a column with the key of each row"
        )
    if ranges:
        raise ValueError(
            f"the pandas index {ranges[0]!r} is a range of numbers, which is not among the columns {schema.names}: choose "
            "the key column with key, or make the index a column before you convert or write the DataFrame, as in "
            "df.reset_index()"
        )
    if found and re.fullmatch(r"__index_level_\d+__", found[0]):
        raise ValueError(
            f"the column {found[0]!r} is a pandas index without a name, which may have the keys: choose the key column with "
            "key, or name the index before you convert or write the DataFrame, as in df.rename_axis(\"id\")"
        )
    return found[0] if found else None


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
    elif _is_dataset(rows):
        rows = _scanner(rows, columns).to_reader()
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
    if hasattr(rows, "read_next_batch"):
        return rows.schema, checked_batches(rows)
    return rows.schema, list(checked_batches([rows]))


def _is_dataset(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pyarrow" and hasattr(rows, "scanner")


def _scanner(rows: Any, columns: list[str] | None) -> Any:
    # Few batches are read ahead, because row groups can be large.
    return rows.scanner(columns=columns, batch_size=_BATCH_ROWS, batch_readahead=4, fragment_readahead=1)


def needed_arrow_of(rows: Any, columns: list[str] | None = None) -> tuple[Any, Iterable[Any]]:
    """Return the result of `arrow_of`, or raise `TypeError` for an object without Arrow columns."""
    arrow = arrow_of(rows, columns)
    if arrow is None:
        kind = f"{type(rows).__module__}.{type(rows).__qualname__}"
        raise TypeError(
            f"rows are of type {kind}, where an object with Arrow columns was expected: pass a DataFrame or a table"
        )
    return arrow


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

    def __init__(self, first: Any, rest: Iterator[Any], key: Key | None) -> None:
        self.first, self.key = with_index(first, key)
        self.items = itertools.chain([self.first], (with_index(item, key)[0] for item in rest))

    def arrow(self) -> tuple[Any, Iterable[Any]]:
        """Return the schema and the record batches."""
        schema = needed_arrow_of(self.first)[0]

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

    arrow = plain_type(arrow)
    if types.is_boolean(arrow):
        return "bool"
    if types.is_integer(arrow):
        return f"{'i' if types.is_signed_integer(arrow) else 'u'}{arrow.bit_width}"
    if types.is_floating(arrow):
        return "f64" if arrow.bit_width == 64 else "f32"
    if types.is_string(arrow) or types.is_large_string(arrow):
        return "text"
    if types.is_time(arrow):
        return "text"
    if types.is_date(arrow):
        return "date"
    if types.is_timestamp(arrow):
        return f"timestamp({'ms' if arrow.unit == 's' else arrow.unit})"
    if types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_fixed_size_list(arrow):
        element = _element_kind(name, arrow.value_type)
        return "list(text)" if element == "text" else f"list({element},{arrow.list_size})"
    lists = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    if any(matches(arrow) for matches in lists):
        return f"list({_element_kind(name, arrow.value_type)})"
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return "bytes"
    raise ValueError(f"the column {name!r} has the Arrow type {arrow}, which no column can have: convert it, or leave it out")


def _element_kind(name: str, arrow: Any) -> str:
    """Return the type of the elements of lists. Booleans are stored as 1 and 0."""
    kind = _kind(name, arrow)
    return "u8" if kind == "bool" else kind


def _pairs(batches: Iterable[Any], key: Key, columns: list[tuple[str, str]]) -> Iterator[tuple[Any, Any]]:
    for part, before in parts_of(batches):
        cells = [cells_of(part.column(name), kind.removesuffix("?"), name, before) for name, kind in columns]
        yield from zip(key_cells(part, key), zip(*cells, strict=True), strict=True)


def parts_of(batches: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Return batches of limited length, and the number of rows before each."""
    before = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS), before + start
        before += batch.num_rows


def known_columns(rows: Any, batches: Any) -> Callable[[str], Iterable[Any]] | None:
    """Return a function that returns the arrays of a column before the bake begins, or `None` if rows can be read only
    once.
    """
    if isinstance(batches, list):
        return lambda name: (batch.column(name) for batch in batches)
    if _is_dataset(rows):
        return lambda name: (batch.column(0) for batch in _scanner(rows, [name]).to_batches())
    return None


def _with_list_length(kind: str, arrays: Iterable[Any], base: str | None) -> str:
    """Return the type of a column with the length of its lists of numbers if all of them have one length, unless the
    lists of the base can have other lengths.
    """
    found = re.fullmatch(r"(list\((?!text)[^,]*)(\)\??)", kind)
    if found is None or base is not None and base.removesuffix("?") == kind.removesuffix("?"):
        return kind
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    lengths: set[int] = set()
    for array in arrays:
        lengths.update(pyarrow.compute.unique(pyarrow.compute.list_value_length(plain(array)).drop_null()).to_pylist())
        if len(lengths) > 1:
            return kind
    length = lengths.pop() if lengths else 0
    return f"{found[1]},{length}{found[2]}" if length else kind


def cells_of(array: Any, kind: str, name: str, before: int) -> list[Any]:
    """Return the cells of an Arrow array: dates and timestamps as integers, and others as objects. `before` is the number
    of rows before the array.
    """
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    array = plain(array)
    if kind.startswith("list") and (pyarrow.types.is_nested(array.type)):
        try:
            return _lists(array, kind[len("list(") : -1].partition(",")[0])
        except _NullElement as error:
            raise BakeFailed(f"rows:{before + error.row + 1}: column {name!r} is {kind}: {error}") from None
    cells: list[Any] = _numbers(array, kind).to_pylist()
    return cells


def _numbers(array: Any, kind: str) -> Any:
    """Return an array of dates or timestamps as integers, of times as text, of short floats as 32-bit floats, and other
    arrays unchanged.
    """
    import pyarrow

    if kind == "date" and pyarrow.types.is_date(array.type):
        return array.cast(pyarrow.date32()).cast(pyarrow.int32())
    if kind.startswith("timestamp") and pyarrow.types.is_timestamp(array.type):
        unit = kind.partition("(")[2].removesuffix(")") or "us"
        return array.cast(pyarrow.timestamp(unit, array.type.tz)).cast(pyarrow.int64())
    if pyarrow.types.is_float16(array.type):
        return array.cast(pyarrow.float32())
    if pyarrow.types.is_time(array.type):
        return times_as_text(array)
    return array


def times_as_text(array: Any) -> Any:
    """Return times of the day as text, such as "19:09:38.000", as `baker` does with the times of Parquet, which has no
    unit longer than a millisecond.
    """
    import pyarrow

    if array.type == pyarrow.time32("s"):
        array = array.cast(pyarrow.time32("ms"))
    return array.cast(pyarrow.large_string())


class _NullElement(Exception):
    """A list has a null element, which its type does not have."""

    def __init__(self, lists: Any, is_integer: bool) -> None:
        remedy = ", or declare list(f64) with types, in which it is NaN" if is_integer else ""
        super().__init__(
            f"an element of the list is null, where the elements of a list need values: fill it, leave the row out{remedy}"
        )
        self.row = next((row for row, cells in enumerate(lists.to_pylist()) if cells is not None and None in cells), 0)


def elements_of(lists: Any, elements: Any, element: str) -> Any:
    """Return the elements of an Arrow array of lists. Null is NaN in a list of floats, and Booleans are 1 and 0."""
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    is_integer = pyarrow.types.is_integer(elements.type)
    if pyarrow.types.is_boolean(elements.type):
        elements = elements.cast(pyarrow.uint8())
    if not elements.null_count:
        return elements
    if is_integer and element in ("f32", "f64"):
        elements = elements.cast(pyarrow.float32() if element == "f32" else pyarrow.float64())
    if not pyarrow.types.is_floating(elements.type):
        raise _NullElement(lists, is_integer)
    return pyarrow.compute.fill_null(elements, pyarrow.scalar(float("nan"), elements.type))


def _lists(array: Any, element: str) -> list[Any]:
    """Return an Arrow array of lists as a list of NumPy arrays."""
    import pyarrow.compute

    valid = array.is_valid().to_pylist()
    is_fixed = pyarrow.types.is_fixed_size_list(array.type)
    elements = elements_of(array, _numbers(array.flatten(), element), element)
    if is_fixed:
        lens: list[int] = [array.type.list_size if is_valid else 0 for is_valid in valid]
    else:
        lens = [length or 0 for length in pyarrow.compute.list_value_length(array).to_pylist()]
    items, cells, end = elements.to_numpy(zero_copy_only=False), [], 0
    for is_valid, length in zip(valid, lens, strict=True):
        cells.append(items[end : end + length] if is_valid else None)
        end += length
    return cells
