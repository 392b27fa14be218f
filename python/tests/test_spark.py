"""Promises of `zero_kv.spark`, in one process of Spark. `spark_faults.py` has the tests with executors."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spark_support import FailsAlways, FailsFirst, session  # isort: skip

import pandas
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import zero_kv
import zero_kv.spark
from support import PROGRAMS, published, seeded
from test_shards import objects
from zero_kv import _spark_shards


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # A task may fail four times.
    spark = session("local[2,4]")
    yield spark
    spark.stop()


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/published/users"


def numbers(spark: SparkSession, rows: dict[int, bytes]) -> DataFrame:
    table = pyarrow.table({"id": pyarrow.array(rows, pyarrow.int64()), "v": list(rows.values())})
    return spark.createDataFrame(table)


def random_rows(name: str, count: int) -> dict[int, bytes]:
    rng = seeded(name)
    return {rng.getrandbits(rng.choice((8, 32, 63))): rng.randbytes(rng.randrange(41)) for _ in range(count)}


def test_a_published_table_has_the_rows_of_the_dataframe(
    spark: SparkSession, tmp_path: pathlib.Path, url: str
) -> None:
    rows = random_rows("spark rows", 5000)
    generation = zero_kv.spark.write(numbers(spark, rows), url, "id", value="v", shards=3, note="nightly", parent=0)
    assert (generation.number, generation.rows) == (1, len(rows))
    assert [name.partition("-")[0] for name in sorted(path.partition("/")[2] for path in objects(url, "data"))] == [
        "0",
        "10922",
        "5461",
    ]
    assert published(url, tmp_path) == rows
    read = zero_kv.spark.read(spark, url, key="id", value="v")
    assert read.rdd.getNumPartitions() == 3
    assert {row.id: bytes(row.v) for row in read.collect()} == rows
    # The bytes of the merged table are those of a bake of the same rows.
    zero_kv.bake(rows, tmp_path / "direct.db")
    with zero_kv.Published(url, cache=tmp_path / "cache2") as table:
        assert table.digest == zero_kv.open(tmp_path / "direct.db").digest


def test_typed_columns_are_published_and_read_back(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    noon, day = datetime.datetime(2020, 1, 2, 12), datetime.date(2020, 1, 2)
    columns = "user string, flag boolean, n int, big bigint, price decimal(10,2), x double, y float, day date, "
    columns += "at timestamp, name string, raw binary, vector array<float>, `odd``name, x` tinyint, `a.b` int"
    cells = [True, 1, 2**40, decimal.Decimal("1.25"), 0.5, 0.25, day, noon, "ä", bytearray(b"\xff"), [1.0, 2.0], 7, 8]
    rows = [("a", *cells), ("b", *[None] * len(cells)), ("{a}c", *cells)]
    df = spark.createDataFrame(rows, columns)
    zero_kv.spark.write(df, url, "user", types={"n": "i64?"}, shards=2)
    found = published(url, tmp_path)
    assert found[b"b"] == dict.fromkeys(df.columns[1:])
    assert found[b"a"]["n"] == 1 and found[b"a"]["vector"] == [1.0, 2.0] and found[b"a"]["odd`name, x"] == 7
    read = zero_kv.spark.read(spark, url, key_type="string")
    assert read.columns == df.columns and dict(read.dtypes)["n"] == "bigint"
    assert sorted(map(tuple, read.collect())) == sorted(rows)


def test_a_dataframe_without_rows_is_a_table(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    empty = spark.createDataFrame([], "id bigint, price float, name string")
    assert zero_kv.spark.write(empty, url, "id", shards=4).rows == 0
    with zero_kv.Published(url, cache=tmp_path / "cache") as table:
        assert (len(table), table.key_type, dict(table.schema() or {})) == (0, "u64", {"price": "f32?", "name": "text?"})
    assert zero_kv.spark.read(spark, url).collect() == []
    # Most of the shards have no rows.
    one = spark.createDataFrame([(42, 0.5, "x")], "id bigint, price float, name string")
    assert zero_kv.spark.write(one, url, "id", shards=16).rows == 1
    assert zero_kv.spark.read(spark, url).collect() == one.collect()
    assert zero_kv.spark.read(spark, url, generation=1).collect() == []


def test_shards_have_at_most_a_size(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    rows = random_rows("spark sizes", 20_000)
    df = numbers(spark, rows)
    zero_kv.spark.write(df, url, "id", value="v", shard_size=200_000)
    sizes = [path.stat().st_size for path in pathlib.Path(url.removeprefix("file://")).glob("data/*/*.zkv")]
    assert 3 <= len(sizes) <= 6 and max(sizes) <= 200_000, sizes
    assert published(url, tmp_path) == rows
    with pytest.raises(zero_kv.BakeFailed, match="shards of at most 5 bytes"):
        zero_kv.spark.write(df, url, "id", value="v", shard_size=5)


def test_the_data_source_writes_and_reads(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    zero_kv.spark.register(spark)
    df = spark.createDataFrame([(1, 0.5, "one"), (2, 1.5, None)], "id bigint, price double, name string")
    writer = zero_kv.spark.partition(df, "id", shards=4).write.format("zero_kv").mode("overwrite")
    writer = writer.option("key", "id").option("types", "price:f32,name:text?").option("note", "nightly")
    writer.save(url)
    assert published(url, tmp_path) == {1: {"price": 0.5, "name": "one"}, 2: {"price": 1.5, "name": None}}
    assert sorted(spark.read.format("zero_kv").load(url).collect()) == sorted(df.collect())
    with pytest.raises(Exception, match="generation 1 is the newest one, expected 0"):
        writer.option("parent", "0").save(url)
    unpartitioned = df.write.format("zero_kv").option("key", "id")
    with pytest.raises(Exception, match="one partition for each shard was expected"):
        unpartitioned.mode("overwrite").save(url)
    with pytest.raises(Exception, match='a generation is a whole table: mode."overwrite".'):
        unpartitioned.mode("append").save(url)
    with pytest.raises(Exception, match="the option 'colums' is unknown"):
        writer.option("colums", "price").save(url)
    assert objects(url, "manifests") == [f"{1:020}.json"]


def test_a_failed_attempt_is_repeated(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows("spark failures", 1000)
    monkeypatch.setattr(zero_kv.spark, "ShardBake", FailsFirst)
    zero_kv.spark.write(numbers(spark, rows), url, "id", value="v", shards=2)
    assert published(url, tmp_path) == rows
    assert len(objects(url, "data")) == 4, "the files of the failed attempts are not referenced"


def test_a_failed_job_changes_nothing(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = random_rows("spark failures", 1000)
    zero_kv.spark.write(numbers(spark, old), url, "id", value="v", shards=2)
    monkeypatch.setattr(zero_kv.spark, "ShardBake", FailsAlways)
    with pytest.raises(Exception, match="each attempt fails"):
        zero_kv.spark.write(numbers(spark, {1: b"new"} | {key: b"" for key in range(100)}), url, "id", value="v", shards=2)
    assert published(url, tmp_path) == old


def test_mistakes_are_reported(spark: SparkSession, url: str) -> None:
    df = spark.createDataFrame([(1, "a"), (None, "b")], "id bigint, v string")
    write = zero_kv.spark.write
    for options, message in [
        ({"key": "zz", "value": "v"}, "key is 'zz', where one of the columns was expected"),
        ({"key": "id", "value": "zz"}, "value is 'zz', where one of the columns was expected"),
        ({"key": "id", "value": "v", "columns": ["v"]}, "where columns or types are given, too"),
        ({"key": "id", "types": {"zz": "u8"}}, "types has 'zz', where one of the columns was expected"),
        ({"key": "id", "value": "v", "shards": 0}, "the number of shards is 0, where 1 to 256 was expected"),
        ({"key": "id", "value": "v", "shards": 2, "shard_size": 2}, "where exactly one of them was expected"),
        ({"key": "id", "value": "v", "shards": None}, "shards is None and shard_size is None"),
        ({"key": "id", "value": "v", "keys": "zz"}, 'the key type: found "zz"'),
    ]:
        with pytest.raises(ValueError, match=message):
            write(df, url, **{"shards": 2, **options})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected s3, gs, az, file"):
        write(df, "ftp://host/users", "id", value="v", shards=2)
    with pytest.raises(zero_kv.ParentConflict, match="generation 0 is the newest one, expected 7"):
        write(df, url, "id", value="v", shards=2, parent=7)
    with pytest.raises(Exception, match="the column 'id' is null in 1 row of"):
        write(df, url, "id", value="v", shards=2)
    twice = spark.createDataFrame([(1, "a"), (1, "b")], "id bigint, v string")
    with pytest.raises(Exception, match="key 1 is already on row 1"):
        write(twice, url, "id", value="v", shards=2)
    negative = spark.createDataFrame([(-1, "a")], "id bigint, v string")
    with pytest.raises(Exception, match="key 0 is -1"):
        write(negative, url, "id", value="v", shards=2)
    assert write(twice, url, "id", value="v", shards=2, duplicates="first").rows == 1
    with pytest.raises(Exception, match="has no generation 7"):
        zero_kv.spark.read(spark, url, generation=7).collect()


def test_keys_beyond_bigint_are_read_as_decimals(spark: SparkSession, url: str) -> None:
    rows = pyarrow.table({"id": pyarrow.array([1, 2**64 - 1], pyarrow.uint64()), "n": pyarrow.array([1, 2**63], pyarrow.uint64())})
    zero_kv.commit([zero_kv.write_shard(rows, range(16384), url)], url)
    with pytest.raises(Exception, match="cannot be read as int64.*key_type="):
        zero_kv.spark.read(spark, url).collect()
    read = zero_kv.spark.read(spark, url, key_type="decimal(20,0)").collect()
    assert [(int(row.id), int(row.n)) for row in read] == [(1, 1), (2**64 - 1, 2**63)]


def test_text_can_be_decimal_keys(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    df = spark.createDataFrame([(str(number), "x") for number in range(100)], "id string, v string")
    zero_kv.spark.write(df, url, "id", value="v", keys="u64", shards=4)
    assert published(url, tmp_path) == {number: b"x" for number in range(100)}


CITIES = [
    ("DE", "Bonn", datetime.date(2026, 1, 1), 0.5),
    ("DE", "a,b\\c", datetime.date(1969, 12, 31), None),
    ("FR", "Paris", datetime.date(2026, 11, 21), 1.5),
    ("ä", "", datetime.date(2026, 1, 1), 2.5),
]
PARTS = ["country", "city", "day"]


def cities(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(CITIES, "country string, city string, day date, price double")


@pytest.mark.parametrize("is_old", [False, True])
def test_keys_of_several_columns_are_published_and_read_back(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    if is_old:
        monkeypatch.delattr(F, "arrow_udf", raising=False)
    df = cities(spark)
    zero_kv.spark.write(df, url, PARTS, shards=3)
    rows = {(country.encode(), city.encode(), day): {"price": price} for country, city, day, price in CITIES}
    assert published(url, tmp_path) == rows
    read = zero_kv.spark.read(spark, url, key_type="string,string,date")
    assert read.columns == df.columns and dict(read.dtypes)["day"] == "date"
    assert sorted(map(tuple, read.collect())) == sorted(CITIES)
    renamed = zero_kv.spark.read(spark, url, key="a,b,c")
    assert renamed.columns == ["a", "b", "c", "price"] and dict(renamed.dtypes)["a"] == "binary"
    # A direct bake of the same rows gives the same table.
    frame = pandas.DataFrame(CITIES, columns=[*PARTS, "price"])
    zero_kv.bake(frame, tmp_path / "direct.db", key=PARTS, typed=True, types={"price": "f64?"})
    with zero_kv.Published(url, cache=tmp_path / "cache2") as table:
        assert table.digest == zero_kv.open(tmp_path / "direct.db").digest


def test_the_data_source_takes_keys_of_several_columns(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    zero_kv.spark.register(spark)
    df = cities(spark)
    parts = zero_kv.spark.partition(df, ["country", "day"], shards=2, keys="bytes,date")
    writer = parts.write.format("zero_kv").mode("overwrite").option("key", "country, day").option("keys", "bytes,date")
    writer.option("value", "city").save(url)
    assert published(url, tmp_path) == {(country.encode(), day): city.encode() for country, city, day, _ in CITIES}
    with pytest.raises(Exception, match="a type for each part was expected: bytes,date"):
        spark.read.format("zero_kv").option("key_type", "string").load(url)
    with pytest.raises(Exception, match="a name for each part was expected: bytes,date"):
        spark.read.format("zero_kv").option("key", "country").load(url)


def test_mistakes_in_keys_of_several_columns_are_reported(spark: SparkSession, url: str) -> None:
    df = cities(spark)
    for key, keys, message in [
        (["country", "zz"], "auto", "key is 'zz', where one of the columns was expected"),
        (["country", "country"], "auto", "a list of different names was expected"),
        ([], "auto", "a list of different names was expected"),
        (["country", "city"], "bytes", "a type for each column of the key was expected"),
    ]:
        with pytest.raises(ValueError, match=message):
            zero_kv.spark.write(df, url, key, keys=keys, shards=2)
    nulls = spark.createDataFrame([("DE", None, 1)], "country string, city string, n int")
    with pytest.raises(Exception, match="the column 'city' is null in 1 row of"):
        zero_kv.spark.write(nulls, url, ["country", "city"], shards=2)
    with pytest.raises(Exception, match="has a key that is not of kind bytes,date"):
        zero_kv.spark.write(df, url, ["country", "city"], keys="bytes,date", shards=2)


def test_spark_without_partitions_by_number_gets_one_shard_per_partition(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4.0 has neither `repartitionById` nor `arrow_udf`."""
    for count in (1, 2, 7, 256):
        values = _spark_shards.hashed_values(spark, count)
        assert len(set(values)) == count
    monkeypatch.delattr(DataFrame, "repartitionById", raising=False)
    monkeypatch.delattr(type(spark.range(1)), "repartitionById", raising=False)
    monkeypatch.delattr(F, "arrow_udf", raising=False)
    rows = random_rows("spark 4.0", 2000)
    zero_kv.spark.write(numbers(spark, rows), url, "id", value="v", shards=5)
    assert len(objects(url, "data")) == 5
    assert published(url, tmp_path) == rows
    nulls = spark.createDataFrame([(1, "a"), (None, "b")], "id bigint, v string")
    with pytest.raises(Exception, match="the column 'id' is null in some rows"):
        zero_kv.spark.write(nulls, url, "id", value="v", shards=2)


def test_the_cookbook_shows_what_its_program_prints(tmp_path: pathlib.Path) -> None:
    repository = pathlib.Path(__file__).parents[2]
    program, page = repository / "examples" / "spark" / "serve_parquet.py", repository / "docs" / "cookbook" / "spark.md"
    command = [sys.executable, program, tmp_path / "users", "--programs", PROGRAMS]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"serve_parquet.py /tmp/users\n{printed}```" in page.read_text(), printed
