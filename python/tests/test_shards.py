"""Promises of `slots`, `write_shard`, and `commit`."""

from __future__ import annotations

import datetime
import decimal
import json
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import zero_kv
from support import lets_other_threads_run, seeded

pyarrow = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")

ALL = range(16384)
LOW, HIGH = range(8192), range(8192, 16384)


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/published/users"


def objects(url: str, folder: str) -> list[str]:
    path = pathlib.Path(url.removeprefix("file://")) / folder
    return sorted(str(name.relative_to(path)) for name in path.rglob("*.*")) if path.exists() else []


def number_table(keys: range) -> Any:
    values = pyarrow.array([f"value of {key}" for key in keys], pyarrow.string())
    return pyarrow.table({"id": pyarrow.array(keys, pyarrow.int64()), "v": values})


def rows_of(table: Any, slots: range) -> Any:
    """Return the rows of some slots."""
    found = zero_kv.slots(table.column("id")).to_numpy()
    return table.filter(pyarrow.array((found >= slots.start) & (found < slots.stop)))


def test_slots_are_those_of_redis_cluster() -> None:
    assert zero_kv.slots(["foo", "somekey", "foo{hash_tag}", "bar{hash_tag}"]) == [12182, 11058, 2515, 2515]
    assert zero_kv.slots([42, 123456789]) == [8000, 0x31C3] == zero_kv.slots(["42", b"123456789"])
    assert zero_kv.slots([]) == []
    assert zero_kv.slots(["007", "7"], kind="u64") == zero_kv.slots([7, 7]) != zero_kv.slots(["007", "7"])


def test_slots_of_arrays_are_arrays() -> None:
    rng = seeded("slots")
    numbers = [rng.getrandbits(rng.choice((8, 32, 63))) for _ in range(1000)]
    texts = [f"{{user{number % 10}}}:{number}" for number in numbers]
    expected = {"u64": zero_kv.slots(numbers), "bytes": zero_kv.slots(texts)}
    assert zero_kv.slots(numpy.array(numbers)).tolist() == expected["u64"]
    for kind in (pyarrow.int64(), pyarrow.uint64()):
        assert zero_kv.slots(pyarrow.array(numbers, kind)).to_pylist() == expected["u64"]
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.string_view()):
        array = pyarrow.array(texts, kind)
        found = zero_kv.slots(array)
        assert (found.type, found.to_pylist()) == (pyarrow.uint16(), expected["bytes"])
        assert zero_kv.slots(array[10:20]).to_pylist() == expected["bytes"][10:20]
        assert zero_kv.slots(pyarrow.chunked_array([array[:7], array[7:]])).to_pylist() == expected["bytes"]
    assert zero_kv.slots(pyarrow.array(texts).dictionary_encode()).to_pylist() == expected["bytes"]
    assert zero_kv.slots(pyarrow.array([None, 42, None])).to_pylist() == [None, 8000, None]
    assert zero_kv.slots(pyarrow.array([], pyarrow.int64())).to_pylist() == []
    decimals = pyarrow.array([str(number) for number in numbers])
    assert zero_kv.slots(decimals, kind="u64").to_pylist() == expected["u64"]
    pandas = pytest.importorskip("pandas")
    assert zero_kv.slots(pandas.Series(numbers)).tolist() == expected["u64"]
    polars = pytest.importorskip("polars")
    assert zero_kv.slots(polars.Series(texts)).to_pylist() == expected["bytes"]


def test_slots_reject_other_keys() -> None:
    with pytest.raises(OverflowError, match="key 0 is -1"):
        zero_kv.slots(pyarrow.array([-1]))
    with pytest.raises(ValueError, match="Failed to parse string: 'x'"):
        zero_kv.slots(pyarrow.array(["x"]), kind="u64")
    with pytest.raises(TypeError, match="Arrow type double, where integers, dates, timestamps, text, or bytes were expected"):
        zero_kv.slots(pyarrow.array([1.5]))
    with pytest.raises(ValueError, match='the key type: found "zz", expected u64, i64'):
        zero_kv.slots([1], kind="zz")


def test_other_threads_run_while_slots_are_computed() -> None:
    keys = pyarrow.array([f"user:{number}" * 20 for number in range(300_000)])
    assert lets_other_threads_run(lambda: zero_kv.slots(keys))


def test_shards_are_committed_as_one_generation(tmp_path: pathlib.Path, url: str) -> None:
    table = number_table(range(5000))
    entries = [
        zero_kv.write_shard(rows_of(table, slots).to_batches(max_chunksize=300), slots, url, key="id", value="v")
        for slots in (HIGH, LOW)
    ]
    assert [entry.slots for entry in entries] == [HIGH, LOW] and objects(url, "manifests") == []
    assert repr(entries[1]).startswith(f"<zero_kv.Entry slots 0-8191, {entries[1].rows} rows, ")
    generation = zero_kv.commit([entries[0].to_json(), entries[1].to_dict()], url, note="nightly", parent=0)
    assert (generation.number, generation.rows) == (1, 5000)
    with zero_kv.Published(url, cache=tmp_path / "cache") as published:
        assert dict(published.items()) == {key: f"value of {key}".encode() for key in range(5000)}
        zero_kv.bake(table, tmp_path / "direct.db", key="id", value="v")
        assert published.digest == zero_kv.open(tmp_path / "direct.db").digest
    with zero_kv.Published(url, cache=tmp_path / "low", slots=LOW, node="low") as published:
        assert list(published) == sorted(rows_of(table, LOW).column("id").to_pylist())
    with pytest.raises(ValueError, match="range of slots"):
        zero_kv.Published(url, cache=tmp_path / "none", slots=range(5, 5))
    with pytest.raises(zero_kv.ParentConflict):
        zero_kv.commit(entries, url, parent=0)


def test_entries_can_be_sent_to_other_processes(url: str) -> None:
    entry = zero_kv.write_shard(number_table(range(10)), ALL, url, value="v")
    copies = [pickle.loads(pickle.dumps(entry)), zero_kv.Entry.from_json(entry.to_json())]
    copies.append(zero_kv.Entry.from_dict(json.loads(json.dumps(entry.to_dict()))))
    assert all(copy == entry and hash(copy) == hash(entry) and copy.slots == ALL for copy in copies)
    assert (entry.rows, entry.key_type, entry.schema, entry.key_name) == (10, "u64", [], "")
    assert objects(url, "data") == [entry.object.removeprefix("data/")]
    for text in ("", "{}", "[1]", entry.to_json()[:-9]):
        with pytest.raises(ValueError, match="expected the JSON of an entry"):
            zero_kv.Entry.from_json(text)
    with pytest.raises(TypeError, match="type int, where the result of write_shard was expected"):
        zero_kv.commit([7], url)  # type: ignore[list-item]


def test_each_attempt_has_its_own_file(url: str) -> None:
    first, again = (zero_kv.write_shard(number_table(range(10)), ALL, url, value="v") for _ in range(2))
    assert first.digest == again.digest and first.object != again.object
    with pytest.raises(zero_kv.PublishFailed, match="several files have the slots 0-16383"):
        zero_kv.commit([first, again], url)
    assert zero_kv.commit([again], url).number == 1


def test_slots_must_be_covered_exactly_once(tmp_path: pathlib.Path, url: str) -> None:
    entry = zero_kv.write_shard(rows_of(number_table(range(100)), LOW), LOW, url, value="v")
    with pytest.raises(zero_kv.PublishFailed, match="no file has the slots 8192-16383"):
        zero_kv.commit([entry], url)
    with pytest.raises(zero_kv.PublishFailed, match="slots 8000-8191: those with the slots 0-8191 and 8000-16383"):
        zero_kv.commit([entry], url, empty=[range(8000, 16384)])
    with pytest.raises(zero_kv.PublishFailed, match="the kind of keys is unknown"):
        zero_kv.commit([], url, empty=[ALL])
    with pytest.raises(zero_kv.PublishFailed, match="the store has no such object"):
        zero_kv.commit([entry], f"{url}2", empty=[HIGH])
    assert objects(url, "manifests") == []
    generation = zero_kv.commit([entry], url, empty=[range(8192, 9000), range(9000, 16384)])
    assert generation.rows == entry.rows
    with zero_kv.Published(url, cache=tmp_path / "cache") as published:
        assert len(published) == entry.rows


def test_typed_shards_have_the_bytes_of_a_bake(tmp_path: pathlib.Path, url: str) -> None:
    noon = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)
    columns = {
        "id": pyarrow.array(["a", "b", "c", "d"]),
        "flag": pyarrow.array([True, None, False, True]),
        "i8": pyarrow.array([1, -128, None, 3], pyarrow.int8()),
        "u64": pyarrow.array([1, 2**64 - 1, None, 3], pyarrow.uint64()),
        "f16": pyarrow.array([1.5, None, 2.5, 3.5], pyarrow.float16()),
        "f64": pyarrow.array([1.5, None, 2.5, 3.5]),
        "day": pyarrow.array([noon.date(), None, noon.date(), noon.date()]),
        "second": pyarrow.array([noon, None, noon, noon], pyarrow.timestamp("s")),
        "nano": pyarrow.array([noon, None, noon, noon], pyarrow.timestamp("ns", "UTC")),
        "price": pyarrow.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50"), 0], pyarrow.decimal128(10, 2)),
        "large": pyarrow.array([decimal.Decimal(10**30), None, decimal.Decimal(-1), 0], pyarrow.decimal128(38, 2)),
        "text": pyarrow.array(["ä", "", None, "x"]),
        "view": pyarrow.array(["ä", "", None, "x" * 100], pyarrow.string_view()),
        "bytes": pyarrow.array([b"\xff", b"", None, b"x"]),
        "word": pyarrow.array(["x", None, "y", "x"]).dictionary_encode(),
        "list": pyarrow.array([[1.0, 2.0], None, [], [3.0]]),
        "vector": pyarrow.array([[1.0, 2.0], None, [5.0, 6.0], [3.0, 4.0]], pyarrow.list_(pyarrow.float32(), 2)),
    }
    table = pyarrow.table(columns)
    for part in (table, table.slice(1), table.slice(2, 1), table.slice(4)):
        entry = zero_kv.write_shard(part, ALL, url)
        zero_kv.bake(part, tmp_path / "direct.db", typed=True, keys="bytes", allow_empty=True)
        direct = zero_kv.open(tmp_path / "direct.db")
        assert (entry.digest, entry.rows, entry.key_name) == (direct.digest, part.num_rows, "id")
    entry = zero_kv.write_shard(table, ALL, url, columns=["f64", "text"], types={"f64": "f32?"})
    assert entry.schema == ["f64:f32?", "text:text?"]
    narrow = table.select(["id", "list"]).slice(0, 1)
    assert zero_kv.write_shard(narrow, ALL, url, types={"list": "list(f32,2)"}).schema == ["list:list(f32,2)"]


def test_keys_of_several_columns_have_the_bytes_of_a_bake(tmp_path: pathlib.Path, url: str) -> None:
    rng = seeded("shards of parts")
    words = ["", ",", "\\", "a,b\\", "ä", "DE", "x" * 300]
    keys = {(rng.choice(words), rng.randrange(-3, 3), datetime.date(2026, 1, rng.randrange(1, 30))) for _ in range(200)}
    rows = [{"word": word, "n": n, "day": day, "price": n / 4} for word, n, day in keys]
    table = pyarrow.Table.from_pylist(rows)
    parts = ["word", "n", "day"]
    keys_of_bake = "bytes,i64,date"
    for blob in (False, True):
        columns = {"value": "word"} if blob else {"columns": ["price"], "types": {"price": "f32"}}
        entry = zero_kv.write_shard(table, ALL, f"{url}/{blob}", key=parts, keys=keys_of_bake, **columns)
        zero_kv.commit([entry], f"{url}/{blob}")
        columns = {"value": "word"} if blob else {"value": ["price"], "types": {"price": "f32"}}
        zero_kv.bake(table, tmp_path / "direct.db", key=parts, keys=keys_of_bake, **columns)
        with zero_kv.Published(f"{url}/{blob}", cache=tmp_path / f"cache {blob}") as found, zero_kv.open(tmp_path / "direct.db") as direct:
            assert list(found.items()) == list(direct.items()) and found.digest == direct.digest
    binary = table.set_column(0, "word", table.column("word").cast(pyarrow.binary()))
    entry = zero_kv.write_shard(binary.slice(0, 5), ALL, url, key=parts, keys="bytes,i64,date", value="word")
    assert entry.rows == 5
    auto = zero_kv.write_shard(table, ALL, url, key=["word", "day", "n"], columns=["price"], types={"price": "f32"}, keys="bytes,date,i64")
    assert auto.key_type == "bytes,date,i64"
    for key, keys_of_parts, message in [
        (["word", "zz"], "auto", "key is 'zz', where one of the columns was expected"),
        (["word", "word"], "auto", "a list of different names was expected"),
        (["word", "day"], "bytes,date,i64", "a type for each column of the key was expected"),
        (["word", "n"], "auto", "is not a number from 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            zero_kv.write_shard(table, ALL, url, key=key, keys=keys_of_parts, value="word")


def test_a_shard_without_rows_needs_types(url: str) -> None:
    empty: list[Any] = []
    with pytest.raises(ValueError, match="pass keys, and value or types"):
        zero_kv.write_shard(empty, LOW, url)
    assert zero_kv.write_shard(empty, LOW, url, keys="bytes", value="v").key_type == "bytes"
    typed = zero_kv.write_shard(empty, LOW, url, key="id", keys="u64", types={"price": "f32"})
    assert (typed.rows, typed.schema, typed.key_name) == (0, ["price:f32"], "id")
    high = zero_kv.write_shard(number_table(range(10)), ALL, url, columns=["v"])
    assert zero_kv.write_shard(number_table(range(0)), ALL, url, columns=["v"]).schema == high.schema


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"value": "zz"}, ValueError, "value is 'zz', where one of the columns was expected"),
        ({"key": "zz", "value": "v"}, ValueError, "key is 'zz', where one of the columns was expected"),
        ({"columns": ["zz"]}, ValueError, "'zz', where one of the columns was expected"),
        ({"value": "v", "columns": ["v"]}, ValueError, "where columns or types are given, too"),
        ({"value": "n"}, zero_kv.BakeFailed, "rows 1 to 3: column 'n' has the Arrow type int64, where bytes was"),
        ({"value": "null"}, zero_kv.BakeFailed, "rows:2: the value is null"),
        ({"key": "null", "value": "v"}, zero_kv.BakeFailed, "rows:2: the key is null"),
        ({"key": "v", "value": "v", "keys": "u64"}, zero_kv.BakeFailed, 'rows:1: the key is "one"'),
        ({"key": "x", "value": "v"}, TypeError, "Arrow type double, where integers, dates, timestamps, text, or bytes were expected"),
        ({"columns": ["n"], "types": {"n": "i8"}}, zero_kv.BakeFailed, "column 'n' is i8: Integer value 1000 not in"),
        ({"columns": ["v"], "types": {"v": "zz"}}, ValueError, '"zz" is not a type'),
        ({"columns": ["null"], "types": {"null": "text"}}, zero_kv.BakeFailed, 'rows:2: column "null" is null'),
        ({"value": "v", "keys": "zz"}, ValueError, 'the key type: found "zz", expected u64, i64'),
        ({"value": "v", "duplicates": "zz"}, ValueError, 'duplicates is "zz"'),
        ({"value": "v", "memory_bytes": 5}, ValueError, "memory"),
        ({"value": "v", "temp_dir": "/missing"}, FileNotFoundError, "/missing"),
        ({"key": "n", "value": "v"}, zero_kv.BakeFailed, "rows:2: key 1000 is already on row 1"),
        ({"key": "negative", "value": "v"}, zero_kv.BakeFailed, "column 'negative' is u64: Integer value -1"),
    ],
)
def test_bad_rows_and_arguments_are_rejected(
    url: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    table = pyarrow.table(
        {
            "id": [1, 2, 3],
            "v": ["one", "two", "three"],
            "n": [1000, 1000, 3],
            "null": ["a", None, "c"],
            "x": [1.5, 2.5, 3.5],
            "negative": [-1, -2, -3],
        }
    )
    with pytest.raises(error, match=message.replace("(", "\\(")):
        zero_kv.write_shard(table, ALL, url, **options)
    assert objects(url, "data") == []


def test_other_batches_are_rejected(tmp_path: pathlib.Path, url: str) -> None:
    with pytest.raises(TypeError, match="an item of batches is of type dict"):
        zero_kv.write_shard([{"id": 1}], ALL, url)
    first, second = number_table(range(2)).to_batches()[0], pyarrow.record_batch({"other": [1]})
    with pytest.raises(KeyError, match="id"):
        zero_kv.write_shard([first, second], ALL, url, value="v")
    with pytest.raises(ValueError, match="range of slots"):
        zero_kv.write_shard([first], range(0, 16385), url, value="v")
    with pytest.raises(ValueError, match="expected s3, gs, az, file"):
        zero_kv.write_shard([first], ALL, "ftp://host/users", value="v")


def test_an_exception_of_the_batches_is_raised(tmp_path: pathlib.Path, url: str) -> None:
    def batches() -> Iterator[Any]:
        yield from number_table(range(5000)).to_batches(max_chunksize=1000)
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        zero_kv.write_shard(batches(), ALL, url, value="v", temp_dir=tmp_path)
    assert objects(url, "data") == [] and list(tmp_path.glob("zero-kv-shard-*")) == []


def test_batches_are_read_one_after_another_within_the_memory(tmp_path: pathlib.Path, url: str) -> None:
    """200 batches of 1 MiB are baked with 64 MiB, and at most a few of them exist at the same time."""
    value = "x" * 1000
    before, most = pyarrow.total_allocated_bytes(), 0

    def batches() -> Iterator[Any]:
        nonlocal most
        for number in range(200):
            # The keys descend, so that the bake sorts them on disk.
            keys = range(1000 * (200 - number), 1000 * (199 - number), -1)
            yield pyarrow.record_batch({"id": pyarrow.array(keys, pyarrow.int64()), "v": [value] * 1000})
            most = max(most, pyarrow.total_allocated_bytes() - before)

    entry = zero_kv.write_shard(batches(), ALL, url, value="v", memory_bytes=64 << 20, threads=1, temp_dir=tmp_path)
    assert entry.rows == 200_000
    assert most < 16 << 20, most


def test_progress_has_the_phases_of_the_upload(url: str) -> None:
    reports: list[zero_kv.Progress] = []
    entry = zero_kv.write_shard(number_table(range(1000)), ALL, url, value="v", progress=reports.append)
    assert list(dict.fromkeys(report.phase for report in reports)) == ["verify", "upload", "read back"]
    assert {(report.total_bytes, report.path) for report in reports} == {(entry.len_bytes, None)}

    def fail(_: zero_kv.Progress) -> None:
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        zero_kv.write_shard(number_table(range(1000)), ALL, url, value="v", progress=fail)


def test_other_threads_run_during_a_shard(url: str) -> None:
    table = number_table(range(300_000))
    assert lets_other_threads_run(lambda: zero_kv.write_shard(table, ALL, url, value="v"))
