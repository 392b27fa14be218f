"""Bakes published tables with Ray: `pip install './python[ray]'`.

Requires this package in the Python environment of the workers. Rows of a dataset are divided by the slots of their keys.
One task bakes each shard and uploads it, and the driver commits all of them as one generation: readers see all rows or
none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zero_kv._engine import SLOT_COUNT, SLOTS_COLUMN, ShardBake, decode, equal_shards, missing_shards, shard_numbers
from zero_kv._native import Entry, Generation, newest_generation
from zero_kv._shards import commit
from zero_kv._typed_rows import names_of
from zero_kv.errors import ParentConflict

if TYPE_CHECKING:
    import ray.data  # type: ignore[import-not-found, import-untyped, unused-ignore]

__all__ = ["MEMORY_BYTES", "write"]

MEMORY_BYTES = 512 << 20
"""The default of the memory of a task, besides the rows that Ray passes to it."""


def write(
    dataset: ray.data.Dataset,
    url: str,
    key: str | Sequence[str],
    *,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    shards: int,
    keys: str = "auto",
    duplicates: str = "error",
    memory_bytes: int = MEMORY_BYTES,
    threads: int = 1,
    temp_dir: str | os.PathLike[str] | None = None,
    note: str | None = None,
    parent: int | None = None,
    canary: str | os.PathLike[str] | None = None,
    allow: str | Iterable[str] = (),
) -> Generation:
    """Publish the rows of a dataset as the next generation of the table at `url`.

    The arguments are those of `zero_kv.spark.write`. Ray passes all rows of a shard to its task at once, as Arrow arrays:
    choose `shards` so that the rows of a shard fit into the memory of a worker.

    Raises `ValueError` for bad arguments, the exceptions of Ray if a task fails, with the message of the task, and the
    exceptions of `zero_kv.commit`.
    """
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    options = {"duplicates": duplicates, "memory_bytes": memory_bytes, "threads": threads, "temp_dir": temp_dir}
    schema = dataset.schema()
    schema = None if schema is None else schema.base_schema
    if not isinstance(schema, pyarrow.Schema):
        raise ValueError(f"the schema of the dataset is {schema!r}, where Arrow columns were expected: make it with from_arrow")
    bake = ShardBake.of_schema(schema, url, key, value, columns, types, keys, options)
    newest = newest_generation(url)
    if parent is not None and parent != newest:
        raise ParentConflict(f"{url}: generation {newest} is the newest one, expected {parent}: check its rows first")
    numbers_of = shard_numbers(bake.key, bake.kind, equal_shards(shards))

    def add_shards(rows: Any) -> Any:
        rows = rows.select(bake.columns)
        keys = [rows.column(name).combine_chunks() for name in names_of(bake.key)]
        keys = [part.combine_chunks() if isinstance(part, pyarrow.ChunkedArray) else part for part in keys]
        return rows.append_column(SLOTS_COLUMN, pyarrow.array(numbers_of(*keys)))

    def bake_shard(rows: Any) -> Any:
        entry = bake.write(rows.to_batches(), decode(rows.column(SLOTS_COLUMN)[0].as_py()))
        return pyarrow.table({"entry": [entry.to_json()]})

    divided = dataset.map_batches(add_shards, batch_format="pyarrow", zero_copy_batch=True)
    written = divided.groupby(SLOTS_COLUMN).map_groups(bake_shard, batch_format="pyarrow").take_all()
    entries = [Entry.from_json(row["entry"]) for row in written]
    # All tasks have succeeded, so that the other shards have no rows.
    empty = missing_shards(entries)
    if not entries:
        entries, empty = [bake.write([], range(SLOT_COUNT))], []
    return commit(entries, url, empty=empty, note=note, parent=parent, canary=canary, allow=allow)
