"""Makes each partition of a DataFrame of Spark one shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from zero_kv._engine import SLOTS_COLUMN, ShardBake, encode, kind_of_key, shard_numbers
from zero_kv._native import divide_slots_by_length
from zero_kv._typed_rows import Key, names_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession  # type: ignore[import-not-found, unused-ignore]


def arrow_schema(schema: Any) -> Any:
    """Return the Arrow schema of a DataFrame's schema."""
    from pyspark.sql.pandas.types import to_arrow_schema  # type: ignore[import-not-found, unused-ignore]

    return to_arrow_schema(schema, timezone="UTC")


def quoted(name: str) -> str:
    """Return Spark's expression of a column."""
    return "`" + name.replace("`", "``") + "`"


def numbered(df: DataFrame, columns: list[str]) -> DataFrame:
    """Return some columns, in this order, named by their positions: `mapInArrow` fails if a name has a dot or a backtick."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    return df.select(*[functions.col(quoted(name)).alias(str(position)) for position, name in enumerate(columns)])


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


def partition_by_shard(df: DataFrame, columns: Key, key: Key, keys: str, shards: list[range]) -> DataFrame:
    """Add the column with the slots of shards, and make each partition one shard. `columns` have the keys, and messages
    call them `key`."""
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    kind = kind_of_key(arrow_schema(df.schema), columns, keys)
    found = [functions.col(quoted(column)) for column in names_of(columns)]
    df = df.withColumn(SLOTS_COLUMN, _shard_function(key, kind, shards)(*found))
    numbers = functions.array(*[functions.lit(encode(shard)) for shard in shards])
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


def _shard_function(key: Key, kind: str, shards: list[range]) -> Callable[..., Column]:
    """Return a function of Spark from keys, or the parts of keys, to the numbers of their shards."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyspark.sql import functions  # type: ignore[import-not-found, unused-ignore]

    numbers_of = shard_numbers(key, kind, shards)

    def of_arrow(*keys: Any) -> Any:
        return pyarrow.array(numbers_of(*keys))

    def of_pandas(*keys: Any) -> Any:
        import pandas  # type: ignore[import-untyped, unused-ignore]

        for name, column in zip(names_of(key), keys, strict=True):
            if column.isna().any():
                where = f"the column {name!r} is null in some rows"
                raise ValueError(f"{where}, where each row needs a key: filter these rows")
        return pandas.Series(numbers_of(*map(pyarrow.Array.from_pandas, keys)))

    # Spark reads the kind of a function from its types, which must not be text.
    if hasattr(functions, "arrow_udf"):
        of_arrow.__annotations__ = {"keys": pyarrow.Array, "return": pyarrow.Array}
        made: Callable[..., Column] = functions.arrow_udf(of_arrow, "int")
    else:
        import pandas

        of_pandas.__annotations__ = {"keys": pandas.Series, "return": pandas.Series}
        made = vars(functions)["pandas_udf"](of_pandas, "int")
    return made
