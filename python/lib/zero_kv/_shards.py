"""Bakes and publishes the shards of a table in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zero_kv._arrays import (
    check_is_column,
    is_plain,
    is_uuid,
    plain,
    plain_type,
    present_keys,
    spread_array,
    whole_array,
    with_nulls,
)
from zero_kv._arrow_parts import ArrayParts, array_parts
from zero_kv._keys import key_column
from zero_kv._native import Entry, Generation, Progress, commit_entries, fill_slots, upload_shard
from zero_kv._publish import allowed_changes, slot_bounds
from zero_kv._typed_rows import Key, arrow_of, checked_batches, index_of, names_of, type_of, with_index

_BATCH_ROWS = 16384
_Parts = tuple[int, ArrayParts, list[ArrayParts]]


def slots(keys: Any, *, kind: str = "auto") -> Any:
    """Return the slot of each key, as in Redis Cluster: 0 to 16383.

    `keys` is an array of pyarrow, Polars, pandas, or NumPy, or another iterable of keys. The result is an Arrow array of `uint16` for keys of pyarrow and Polars, in which null keys have null slots, a NumPy array for
    keys of pandas and NumPy, in which masked keys have masked slots, and otherwise a list.

    A number has the slot of its decimal text. With `kind="u64"`, text is a decimal number, so that "007" has the slot
    of 7. With `kind="bytes"`, and by default, text has the slot of its bytes, or of the bytes between the first `{` and
    the next `}`. With another key type, such as `kind="ip"`, keys are those of a table with this type, and have the slot of
    their written form.

    >>> slots([42, 128512])
    [8000, 1419]
    """
    if kind not in ("auto", "u64", "bytes"):
        return _typed_slots(keys, kind)
    package = type(keys).__module__.partition(".")[0]
    if package in ("pyarrow", "polars"):
        return arrow_slots(whole_array(keys), kind)
    if package == "pandas":
        check_is_column(keys)
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        return arrow_slots(pyarrow.Array.from_pandas(keys), kind).to_numpy(zero_copy_only=False)
    keys, valid = present_keys(keys)
    if kind == "u64":
        keys = [int(key) for key in keys]
    found = memoryview(fill_slots(keys, None, "bytes")).cast("B").cast("H")
    if package == "numpy":
        import numpy

        array = spread_array(numpy.asarray(found), valid)
        return array if valid is None else numpy.ma.masked_array(array, ~valid)
    return found.tolist()


def _typed_slots(keys: Any, key_type: str) -> Any:
    """Return the slots of keys that are neither numbers nor bytes."""
    import numpy

    column, valid = key_column(keys)
    found = numpy.asarray(memoryview(fill_slots(None, column, key_type)).cast("B").cast("H"))
    package = type(keys).__module__.partition(".")[0]
    if package in ("pyarrow", "polars"):
        import pyarrow

        slots = pyarrow.array(found, pyarrow.uint16())
        return slots if valid is None else with_nulls(pyarrow.array([True if kept else None for kept in valid]), slots)
    if valid is not None:
        raise ValueError(f"{valid.count(False)} keys are null, where each key needs a value")
    return found if package in ("numpy", "pandas") else found.tolist()


def arrow_slots(keys: Any, kind: str) -> Any:
    """Return the slots of a pyarrow array of keys."""
    import pyarrow

    kind = kind_of_keys(keys.type, kind)
    keys = _keys_of_kind(keys, kind)
    present = keys.drop_null()
    found = pyarrow.py_buffer(memoryview(fill_slots(None, key_column(present)[0], kind)))
    return with_nulls(keys, pyarrow.Array.from_buffers(pyarrow.uint16(), len(present), [None, found]))


def write_shard(
    batches: Any,
    slots: range,
    url: str,
    *,
    key: str | Sequence[str] | None = None,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    keys: str = "auto",
    duplicates: str = "error",
    memory_bytes: int | None = None,
    threads: int | None = None,
    temp_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Entry:
    """Bake the rows of some slots, and upload the file to the table at `url`. Return its entry, for `commit`.

    This is the function that the tasks of an engine such as Spark call, each with the rows of its own slots, in any
    order. Each call uploads a file with a name of its own, which readers do not see before `commit`. The files of failed
    and repeated tasks stay in the store until `zkv gc` deletes them.

    `batches` is an iterable of pyarrow record batches, which is read once, batch by batch, or a pyarrow table or reader,
    or a DataFrame of pandas or Polars. `slots` is a `range`, such as `range(0, 8192)`: a row with another slot raises
    `PublishFailed`. `key` names the column with the keys, by default the first, or is a list with the columns of the
    parts of the key.

    With `value`, the values are the bytes or the text of this column. Otherwise the table is typed: it has the columns
    `columns`, by default all of them, with the types that they have in Arrow, unless `types` has others: see `bake`.

    `keys` is a key type, such as `"u64"` or `"ip"`, or `"auto"`, which is `"u64"` for a column of integers, `"bytes"` for
    text and bytes, and otherwise the type of the column; with several columns, it has a type for each, such as
    `"bytes,date"`. All shards of a table need the same kind and the same columns. If an iterable has no batches, which
    have these types, then `keys`, and `types` with all columns unless `value` is given, are required.

    Rows that do not fit in `memory_bytes`, by default half of the machine's memory, are sorted in `temp_dir`, by default
    the folder for temporary files. The baked file is there, too, until it is uploaded. Engines run several tasks on a
    machine: give each task its share of `memory_bytes`, and `threads=1`. `duplicates` and `progress` are arguments of
    `bake` and `publish`.

    Raises `BakeFailed` if the rows cannot be baked, and otherwise the exceptions of `publish`.
    """
    if value is not None and (columns is not None or types is not None):
        raise ValueError(f"value is {value!r}, where columns or types are given, too: pass value, or columns and types")
    bounds = slot_bounds(slots)
    batches, wanted = with_index(batches, checked_key(key))
    schema, items = _batches_of(batches)
    if schema is None:
        if keys == "auto" or (value is None and not types):
            what = "keys, and value or types with all columns"
            raise ValueError(f"batches are empty, so that the table has no types: pass {what}")
    else:
        wanted = wanted or index_of(schema) or schema.names[0]
    declared = None if value is not None else typed_columns(schema, wanted, columns, types)
    kind = keys if schema is None else kind_of_columns(schema, wanted or "", keys)
    parts, has_numbers, _ = buffers_of(items, schema, wanted or "", kind, value, dict(declared or ()))
    typed = None if declared is None else (declared, None if wanted is None else ",".join(names_of(wanted)), False)
    limits = (duplicates, memory_bytes, threads)
    return upload_shard(parts, bounds, url, kind, has_numbers, typed, limits, temp_dir, progress)


def buffers_of(
    batches: Iterable[Any], schema: Any, key: Key, kind: str, value: str | None, types: Mapping[str, str] | None
) -> tuple[Iterator[_Parts], bool, list[tuple[str, str]] | None]:
    """Return the buffers of batches, whether the keys are an array of numbers, and the columns of a typed table."""
    if schema is None:
        return iter(()), False, None if value is not None else list((types or {}).items())
    if value is not None:
        field_of(schema, value, "value")
    has_numbers = kind == "u64" and isinstance(key, str) and _is_integer(field_of(schema, key, "key").type)
    columns = [(value, "bytes")] if value is not None else list((types or {}).items())
    return _parts(batches, key, kind, columns, value is not None), has_numbers, None if value is not None else columns


def commit(
    entries: Iterable[Entry | str | Mapping[str, Any]],
    url: str,
    *,
    empty: Iterable[range] = (),
    note: str | None = None,
    parent: int | None = None,
    canary: str | os.PathLike[str] | None = None,
    allow: str | Iterable[str] = (),
) -> Generation:
    """Publish the shards that `write_shard` has uploaded as the next generation of the table at `url`.

    This is the function that the driver of an engine calls once, after all tasks have succeeded. Readers see the whole
    generation, or nothing of it. `entries` are the results of `write_shard`, or their `to_json()` or `to_dict()`, in any
    order. `empty` are the ranges of slots that have no rows, and for which no task has called `write_shard`: shards
    without rows are added for them. Together, entries and `empty` must cover every slot exactly once, so that the rows
    of a lost task are an error.

    `note`, `parent`, `allow`, and `canary` are those of `publish`, except that canaries are not looked up before the commit:
    readers look them up before they use the generation.

    Raises `PublishFailed`, with the slots, if they are not covered exactly once, or if the store does not have a shard;
    `ParentConflict` if `parent` is not the newest generation; and `StoreFailed`.
    """
    return commit_entries(
        [_entry(entry) for entry in entries],
        [slot_bounds(slots) for slots in empty],
        url,
        canary,
        note or "",
        parent,
        allowed_changes(allow),
    )


def _entry(entry: Entry | str | Mapping[str, Any]) -> Entry:
    if isinstance(entry, Entry):
        return entry
    if isinstance(entry, str):
        return Entry.from_json(entry)
    if isinstance(entry, Mapping):
        return Entry.from_dict(dict(entry))
    raise TypeError(f"an entry is of type {type(entry).__name__}, where the result of write_shard was expected")


def _batches_of(batches: Any) -> tuple[Any, Iterable[Any]]:
    """Return the schema and the record batches. The schema is `None` if there is none."""
    arrow = arrow_of(batches)
    if arrow is not None:
        return arrow
    rest = iter(batches)
    for first in rest:
        if type(first).__module__.partition(".")[0] != "pyarrow" or not hasattr(first, "schema"):
            found = type(first).__name__
            raise TypeError(f"an item of batches is of type {found}, where a pyarrow RecordBatch was expected")
        return first.schema, checked_batches(_chain(first, rest))
    return None, ()


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    # The first batch can be released now.
    del first
    yield from rest


def checked_key(key: str | Sequence[str] | None) -> Key | None:
    """Return the name of the column of keys, or the names of the columns of several parts."""
    if key is None or isinstance(key, str):
        return key
    names = list(key)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"key is {key!r}, where the name of a column or a list of different names was expected")
    return names[0] if len(names) == 1 else names


def field_of(schema: Any, name: str, argument: str) -> Any:
    if schema.names.count(name) != 1:
        raise ValueError(f"{argument} is {name!r}, where one of the columns was expected: {schema.names}")
    return schema.field(name)


def typed_columns(
    schema: Any, key: Key | None, columns: Sequence[str] | None, types: Mapping[str, str] | None
) -> list[tuple[str, str]]:
    """Return the names and types of the columns of a typed table."""
    types = types or {}
    if columns is None:
        names = [] if key is None else names_of(key)
        columns = [name for name in (types if schema is None else schema.names) if name not in names]
    unknown = [name for name in types if name not in columns]
    if unknown:
        raise ValueError(f"types has {unknown[0]!r}, where one of the columns was expected: {list(columns)}")
    if schema is None:
        missing = [name for name in columns if name not in types]
        if missing:
            raise ValueError(f"batches are empty, so that the column {missing[0]!r} has no type: pass types")
        return [(name, types[name]) for name in columns]
    fields = [field_of(schema, name, "a column") for name in columns]
    return [(field.name, types.get(field.name) or type_of(field)) for field in fields]


def _is_integer(kind: Any) -> bool:
    from pyarrow import types  # type: ignore[import-untyped, unused-ignore]

    return bool(types.is_integer(plain_type(kind)))


def kind_of_columns(schema: Any, key: Key, wanted: str) -> str:
    """Return the type of the keys in columns of an Arrow schema."""
    fields = [field_of(schema, name, "key") for name in names_of(key)]
    if wanted == "auto" or isinstance(key, str):
        return ",".join(kind_of_keys(field.type, wanted) for field in fields)
    if len(wanted.split(",")) != len(fields):
        raise ValueError(f"keys is {wanted!r}, where a type for each column of the key was expected: {key}")
    return wanted


def keys_of_columns(columns: Sequence[Any], kind: str) -> Any:
    """Return the keys in an Arrow array, or the written form of keys whose parts are in several arrays."""
    import pyarrow
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import types

    if len(columns) == 1:
        return columns[0]
    parts = []
    for column, part in zip(columns, kind.split(","), strict=True):
        text = _keys_of_kind(column, part)
        text = text.cast(pyarrow.large_string()) if types.is_integer(text.type) else text
        text = text.cast(pyarrow.large_binary())
        for character in (b"\\", b","):
            text = pyarrow.compute.replace_substring(text, character, b"\\" + character)
        parts.append(text)
    return pyarrow.compute.binary_join_element_wise(*parts, pyarrow.scalar(b",", pyarrow.large_binary()))


def kind_of_keys(kind: Any, wanted: str) -> str:
    """Return the kind of the keys in an Arrow column."""
    from pyarrow import types

    if wanted != "auto":
        return wanted
    if is_uuid(kind):
        return "uuid"
    kind = plain_type(kind)
    if types.is_integer(kind):
        return "u64"
    if types.is_date(kind):
        return "date"
    if types.is_timestamp(kind):
        return "timestamp"
    text = (types.is_string, types.is_large_string)
    if any(matches(kind) for matches in (*text, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)):
        return "bytes"
    raise TypeError(f"the column of keys has the Arrow type {kind}, where integers, dates, timestamps, text, or bytes were expected: cast it")


def _keys_of_kind(keys: Any, kind: str) -> Any:
    """Return keys as numbers, or as text or bytes."""
    import pyarrow
    from pyarrow import types

    keys = plain(keys)
    if not is_plain(kind):
        # Keys become text. Times lose their zone first, because Arrow writes a zone in a form that keys do not have.
        if types.is_timestamp(keys.type):
            keys = keys.cast(pyarrow.timestamp("us", keys.type.tz)).cast(pyarrow.timestamp("us"))
        is_bytes = types.is_binary(keys.type) or types.is_large_binary(keys.type)
        return keys.cast(pyarrow.large_binary() if is_bytes else pyarrow.large_string())
    if kind == "u64":
        return keys if types.is_integer(keys.type) else _text(keys).cast(pyarrow.uint64())
    return keys.cast(pyarrow.large_string()) if types.is_integer(keys.type) else keys


def _text(keys: Any) -> Any:
    import pyarrow
    from pyarrow import types

    return keys if types.is_string(keys.type) else keys.cast(pyarrow.large_string())


def _parts(
    batches: Iterable[Any], key: Key, key_kind: str, columns: list[tuple[str, str]], is_untyped: bool
) -> Iterator[_Parts]:
    """Return the buffers of each batch."""
    before = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            where = f"rows {before + start + 1} to {before + start + part.num_rows}"
            held, kind = keys_of_columns([part.column(name) for name in names_of(key)], key_kind), "bytes"
            if not is_plain(key_kind):
                held = _keys_of_kind(held, key_kind)
            elif _is_integer(held.type):
                kind, held = ("u64", held) if key_kind == "u64" else (kind, _keys_of_kind(held, kind))
            cells = [array_parts(part.column(name), name, kind, where, is_untyped) for name, kind in columns]
            yield part.num_rows, array_parts(held, ",".join(names_of(key)), kind, where, False), cells
        before += batch.num_rows
