"""Makes each partition of a DataFrame one shard, and bakes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from zero_kv._native import Entry, divide_slots, divide_slots_by_length, measure_slots
from zero_kv._shards import arrow_slots, buffers_of, check_kind, field_of, kind_of_keys, typed_columns, write_shard

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession  # type: ignore[import-not-found, unused-ignore]

SLOT_COUNT = 16384
SLOTS_COLUMN = "_zero_kv_slots"
"""The column with the slots of the shard of a row."""


@dataclass(frozen=True)
class ShardBake:
    """What each task needs to bake its rows."""

    url: str
    key: str
    kind: str
    """The kind of the keys: "u64" or "bytes"."""
    value: str | None
    types: dict[str, str] | None
    """The columns of a typed table."""
    options: dict[str, Any]

    @classmethod
    def of_schema(
        cls,
        schema: Any,
        url: str,
        key: str,
        value: str | None,
        columns: Sequence[str] | None,
        types: Mapping[str, str] | None,
        keys: str,
        options: dict[str, Any],
    ) -> Self:
        """Return the bake of a DataFrame with this schema."""
        arrow = arrow_schema(schema)
        kind = _kind(arrow, key, keys)
        if value is not None:
            if columns is not None or types is not None:
                raise ValueError(f"value is {value!r}, where columns or types are given, too: pass one or the other")
            field_of(arrow, value, "value")
            return cls(url, key, kind, value, None, options)
        if columns is None:
            columns = [name for name in arrow.names if name not in (key, SLOTS_COLUMN)]
        unknown = [name for name in types or () if name not in columns]
        if unknown:
            raise ValueError(f"types has {unknown[0]!r}, where one of the columns was expected: {list(columns)}")
        return cls(url, key, kind, None, dict(typed_columns(arrow, key, columns, types)), options)

    @property
    def columns(self) -> list[str]:
        """The columns that the bake reads."""
        return [self.key, *([self.value] if self.value is not None else self.types or [])]

    def write(self, batches: Iterable[Any], shard: range) -> Entry:
        """Bake the rows of a shard, and upload the file."""
        columns = None if self.types is None else list(self.types)
        return write_shard(
            batches,
            shard,
            self.url,
            key=self.key,
            value=self.value,
            columns=columns,
            types=self.types,
            keys=self.kind,
            **self.options,
        )

    def write_partition(self, batches: Iterator[Any]) -> Entry | None:
        """Bake the rows of a task, which belong to one shard. Return `None` if there are none."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return None
        number = first.column(first.schema.names.index(SLOTS_COLUMN))[0].as_py()
        return self.write(itertools.chain([first], rows), _decode(number))

    def measure(self, batches: Iterator[Any]) -> bytes:
        """Return the lengths of the rows of each slot, which `divide_slots_by_length` reads."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return bytes(8 * SLOT_COUNT)
        batches = itertools.chain([first], rows)
        parts, has_numbers, columns = buffers_of(batches, first.schema, self.key, self.kind, self.value, self.types)
        return bytes(memoryview(measure_slots(parts, has_numbers, columns)))


def arrow_schema(schema: Any) -> Any:
    """Return the Arrow schema of a DataFrame's schema."""
    from pyspark.sql.pandas.types import to_arrow_schema  # type: ignore[import-not-found, unused-ignore]

    return to_arrow_schema(schema, timezone="UTC")


def _kind(arrow: Any, key: str, keys: str) -> str:
    check_kind(keys, ("auto", "u64", "bytes"))
    return kind_of_keys(field_of(arrow, key, "key").type, keys)


def quoted(name: str) -> str:
    """Return Spark's expression of a column."""
    return "`" + name.replace("`", "``") + "`"


def numbered(df: DataFrame, columns: list[str]) -> DataFrame:
    """Return some columns, in this order, named by their positions: `mapInArrow` fails if a name has a dot or a backtick."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    return df.select(*[functions.col(quoted(name)).alias(str(position)) for position, name in enumerate(columns)])


def equal_shards(count: int) -> list[range]:
    """Return the slots of shards with equal numbers of slots."""
    return [range(first, last + 1) for first, last in divide_slots(count)]


def shards_of_length(df: DataFrame, bake: ShardBake, len_max_bytes: int) -> list[range]:
    """Return the slots of as few shards as possible whose files have at most this length. The columns of `df` are those of
    `numbered`."""

    def measure(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        lens = bake.measure(batch.rename_columns(bake.columns) for batch in batches)
        yield pyarrow.RecordBatch.from_pydict({"lens": [lens]})

    measured = df.mapInArrow(measure, "lens binary").collect()
    lens = [bytes(row.lens) for row in measured]
    return [range(first, last + 1) for first, last in divide_slots_by_length(lens, len_max_bytes)]


def partition_by_shard(df: DataFrame, column: str, key: str, keys: str, shards: list[range]) -> DataFrame:
    """Add the column with the slots of shards, and make each partition one shard. `column` has the keys, and messages call
    it `key`."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    kind = _kind(arrow_schema(df.schema), column, keys)
    df = df.withColumn(SLOTS_COLUMN, _shard_function(key, kind, shards)(functions.col(quoted(column))))
    numbers = functions.array(*[functions.lit(_encode(shard)) for shard in shards])
    # Positions count from 1.
    position = functions.array_position(numbers, functions.col(SLOTS_COLUMN)).cast("int")
    return _repartition(df, len(shards), position)


def _repartition(df: DataFrame, count: int, position: Column) -> DataFrame:
    """Make partition N - 1 of the rows with position N."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    if hasattr(df, "repartitionById"):
        return df.repartitionById(count, position - 1)
    # Before version 4.1, Spark partitions rows only by the hash of a value.
    values = functions.array(*map(functions.lit, hashed_values(df.sparkSession, count)))
    return df.repartition(count, functions.element_at(values, position))


def hashed_values(spark: SparkSession, count: int) -> list[int]:
    """Return a number for each of `count` partitions that Spark's hash function maps to the partition."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    found: dict[int, int] = {}
    end = 16 * count
    while len(found) < count:
        numbers = spark.range(end).select(functions.col("id").cast("int").alias("value"))
        hashed = functions.pmod(functions.hash("value"), functions.lit(count)).alias("partition")
        found = {row["partition"]: row["value"] for row in numbers.select("value", hashed).collect()}
        end *= 4
    return [found[partition] for partition in range(count)]


def _encode(shard: range) -> int:
    """Return the slots of a shard as one number, which the rows of the shard have."""
    return shard.start * SLOT_COUNT + shard.stop - 1


def _decode(number: int) -> range:
    first, last = divmod(number, SLOT_COUNT)
    return range(first, last + 1)


def _shard_function(key: str, kind: str, shards: list[range]) -> Callable[[Column], Column]:
    """Return a function of Spark from keys to the numbers of their shards."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    firsts, numbers = [shard.start for shard in shards], [_encode(shard) for shard in shards]

    def numbers_of(keys: Any) -> Any:
        import numpy

        if keys.null_count:
            message = f"the column {key!r} is null in {keys.null_count} rows of a batch, where each row needs a key: filter"
            raise ValueError(f"{message} these rows")
        try:
            found = arrow_slots(keys, kind)
        except ValueError as error:
            raise ValueError(f"the column {key!r} has a key that is not of kind {kind}: {error}") from error
        at = numpy.searchsorted(firsts, found.to_numpy(), side="right") - 1
        return numpy.asarray(numbers, dtype=numpy.int32)[at]

    def of_arrow(keys: Any) -> Any:
        return pyarrow.array(numbers_of(keys))

    def of_pandas(keys: Any) -> Any:
        import pandas  # type: ignore[import-untyped, unused-ignore]

        if keys.isna().any():
            raise ValueError(f"the column {key!r} is null in some rows, where each row needs a key: filter these rows")
        return pandas.Series(numbers_of(pyarrow.Array.from_pandas(keys)))

    # Spark reads the kind of a function from its types, which must not be text.
    if hasattr(functions, "arrow_udf"):
        of_arrow.__annotations__ = {"keys": pyarrow.Array, "return": pyarrow.Array}
        made: Callable[[Column], Column] = functions.arrow_udf(of_arrow, "int")
    else:
        import pandas

        of_pandas.__annotations__ = {"keys": pandas.Series, "return": pandas.Series}
        made = vars(functions)["pandas_udf"](of_pandas, "int")
    return made
