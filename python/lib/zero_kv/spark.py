"""Bakes and reads published tables with Apache Spark: `pip install './python[spark]'`.

Requires Spark 4, and this package in the Python environment of the executors.

Each row belongs to a shard, which is a range of slots. Spark shuffles the rows once, so that each task has the rows of
one shard. The task bakes them within its memory, and uploads the file under a name of its own. After all tasks have
succeeded, the driver commits their files as one generation: readers see all rows or none. Files of failed, repeated,
and speculative tasks stay in the store until `zkv gc` deletes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zero_kv._engine import SLOT_COUNT, SLOTS_COLUMN, ShardBake, equal_shards, needed_key
from zero_kv._native import Entry, Generation, newest_generation
from zero_kv._shards import commit
from zero_kv._spark_shards import arrow_schema, numbered, partition_by_shard, shards_of_length
from zero_kv._typed_rows import names_of
from zero_kv.errors import ParentConflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession  # type: ignore[import-not-found, unused-ignore]

__all__ = ["MEMORY_BYTES", "partition", "read", "register", "write"]

MEMORY_BYTES = 512 << 20
"""The default of the memory of a task."""


def write(
    df: DataFrame,
    url: str,
    key: str | Sequence[str],
    *,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    shards: int | None = None,
    shard_size: int | None = None,
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
    """Publish the rows of a DataFrame as the next generation of the table at `url`.

    `key` names the column with the keys: integers, text, binary, dates, or timestamps, without nulls. It can be a list,
    such as `["country", "city"]`, with the columns of the parts of the key. With `value`, the values are the text or the
    bytes of this column. Otherwise the table is typed: it has the columns `columns`, by default all others, with
    the types that they have in Spark, unless `types` has others, such as `{"price": "f32"}`.

    The table has `shards` shards with equal numbers of slots, 1 to 256, or with `shard_size` as few shards as possible
    whose files have at most this number of bytes. One of them is required. `shard_size` reads the DataFrame twice, so
    cache a DataFrame that is expensive or not deterministic.

    One task bakes each shard, with `threads` threads. `memory_bytes` is the memory of one task, and an executor runs
    several tasks at the same time. Rows that do not fit are sorted in `temp_dir` of the executor.

    `keys` and `duplicates` are arguments of `zero_kv.write_shard`, and `note`, `parent`, `allow`, and `canary` are those
    of `zero_kv.commit`. `canary` is a file of the driver.

    Raises `ValueError` for bad arguments, Spark's exceptions if a task fails repeatedly, with the message of the task,
    and the exceptions of `zero_kv.commit`.
    """
    if (shards is None) == (shard_size is None):
        raise ValueError(f"shards is {shards} and shard_size is {shard_size}, where exactly one of them was expected")
    options = {"duplicates": duplicates, "memory_bytes": memory_bytes, "threads": threads, "temp_dir": temp_dir}
    bake = ShardBake.of_schema(arrow_schema(df.schema), url, key, value, columns, types, keys, options)
    # A mistake in the URL, the credentials, and the parent is reported before Spark reads the rows.
    newest = newest_generation(url)
    if parent is not None and parent != newest:
        raise ParentConflict(f"{url}: generation {newest} is the newest one, expected {parent}: check its rows first")
    df = numbered(df, bake.columns)
    ranges = equal_shards(shards) if shards is not None else shards_of_length(df, bake, shard_size or 0)

    def bake_partition(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        entry = bake.write_partition(batch.rename_columns([*bake.columns, SLOTS_COLUMN]) for batch in batches)
        if entry is not None:
            yield pyarrow.RecordBatch.from_pydict({"entry": [entry.to_json()]})

    columns_of_key = needed_key(df.columns[: len(names_of(bake.key))])
    partitioned = partition_by_shard(df, columns_of_key, bake.key, keys, ranges)
    written = partitioned.mapInArrow(bake_partition, "entry string").collect()
    entries = [Entry.from_json(row.entry) for row in written]
    # All tasks have succeeded, so that the other shards have no rows.
    found = {entry.slots for entry in entries}
    empty = [shard for shard in ranges if shard not in found]
    if not entries:
        entries, empty = [bake.write([], range(SLOT_COUNT))], []
    return commit(entries, url, empty=empty, note=note, parent=parent, canary=canary, allow=allow)


def partition(df: DataFrame, key: str | Sequence[str], *, shards: int, keys: str = "auto") -> DataFrame:
    """Return a DataFrame with the same rows and one partition for each shard, for `df.write.format("zero_kv")`.

    The column `_zero_kv_slots` is added. The arguments are those of `write`.
    """
    key = needed_key(key)
    return partition_by_shard(df, key, key, keys, equal_shards(shards))


def register(spark: SparkSession) -> None:
    """Register the data source `zero_kv`: `spark.read.format("zero_kv")` and `df.write.format("zero_kv")`.

    To write, make one partition of each shard, and write in the mode `overwrite`, because a generation is a whole table:

        df = zero_kv.spark.partition(df, "id", shards=16)
        df.write.format("zero_kv").mode("overwrite").option("key", "id").save("s3://tables/users")

    The options have the names of the arguments of `write`: `key` and `columns` (separated by commas), `value`, `types`
    (such as `price:f32,name:text?`), `keys`, `duplicates`, `memory_bytes`, `threads`, `temp_dir`, `note`, `parent`,
    `canary`, and `allow` (separated by commas). For reading, they are the arguments of `read`.
    """
    from zero_kv._spark_source import ZeroKvDataSource

    spark.dataSource.register(ZeroKvDataSource)


def read(
    spark: SparkSession,
    url: str,
    *,
    generation: int | None = None,
    key: str | None = None,
    value: str = "value",
    key_type: str | None = None,
    temp_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return the rows of a published table as a DataFrame with one partition for each shard.

    The rows are those of the newest generation at the time of the call, or of `generation`. The column with the keys has
    the name `key`, by default the name that it had when it was baked, or "key". Tables without columns have the binary
    column `value`. Keys of several parts have a column for each part, and `key` and `key_type` have a name and a type
    for each part, separated by commas. Numeric keys are `bigint`; if some keys are 2**63 or greater, pass
    `key_type="decimal(20,0)"`. Keys of bytes are `binary`, unless `key_type` is "string". Columns of unsigned integers
    have the next wider type, and columns of `u64` are `decimal(20,0)`.

    Each task downloads its shard into `temp_dir` of the executor, by default the folder for temporary files, and
    verifies it.
    """
    register(spark)
    reader = spark.read.format("zero_kv").option("value", value)
    for name, option in (("generation", generation), ("key", key), ("key_type", key_type), ("temp_dir", temp_dir)):
        if option is not None:
            reader = reader.option(name, str(option))
    return reader.load(url)
