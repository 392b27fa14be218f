"""Lookups with arrays of keys and arrays of values."""

from __future__ import annotations

import array
import contextlib
import itertools
import pathlib
import random
import shutil
import subprocess
import sys
import struct
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import zero_kv
from support import BlockingCalls, number_rows, seeded, serving, text_rows

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(params=["open", "client", "asyncio"])
def features(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Any]:
    """A table with four floats for each even number below 2000."""
    rows = {key: struct.pack("<4f", *(key + i for i in range(4))) for key in range(0, 2000, 2)}
    zero_kv.bake(rows, tmp_path / "features.db")
    if request.param == "open":
        yield zero_kv.open(tmp_path / "features.db")
    elif request.param == "asyncio":
        with serving(tmp_path / "features.db") as server:
            yield BlockingCalls(lambda: zero_kv.AsyncClient(server.path))
    else:
        with serving(tmp_path / "features.db") as server, zero_kv.Client(server.path) as client:
            yield client


def test_a_dtype_returns_an_array_and_a_mask(features: Any) -> None:
    keys = numpy.arange(0, 1000, dtype=numpy.uint64)
    values, found = features.get_many(keys, dtype=(numpy.float32, 4))
    assert values.shape == (1000, 4) and values.dtype == numpy.float32 and found.dtype == numpy.bool_
    assert (found == (keys % 2 == 0)).all()
    assert (values[found] == keys[found].astype(numpy.float32)[:, None] + numpy.arange(4)).all()
    assert not values[~found].any()
    values[0] = 7  # The caller owns the array.
    named, _ = features.get_many([2, 4], dtype=[("a", "<f4"), ("b", "<f4", 3)])
    assert named["a"].tolist() == [2, 4] and named["b"].tolist() == [[3, 4, 5], [5, 6, 7]]
    empty, found = features.get_many([], dtype=(numpy.float32, 4))
    assert empty.shape == (0, 4) and found.shape == (0,)


def test_values_that_do_not_match_the_length_of_the_dtype_are_rejected(features: Any) -> None:
    with pytest.raises(ValueError, match="the value of key 1 has 16 bytes, where the dtype has 4"):
        features.get_many([1, 2], dtype=numpy.float32)
    with pytest.raises(TypeError, match="dtype is object, where a dtype of fixed length was expected"):
        features.get_many([1, 2], dtype=object)


def test_arrays_of_every_integer_type_can_be_keys(features: Any) -> None:
    expected = features.get_many([2, 3, 4])
    assert expected[1] is None and expected[0] is not None
    for kind in ("u8", "i8", "u4", "i4", "u2", "i2", "u1", "i1"):
        assert features.get_many(numpy.array([2, 3, 4], dtype=kind)) == expected
        assert features.get_many(numpy.array([2, 0, 3, 0, 4], dtype=kind)[::2]) == expected, "not contiguous"
        assert features.get_many(pyarrow.array([2, 3, 4], pyarrow.from_numpy_dtype(numpy.dtype(kind)))).to_pylist() == expected
    assert features.get_many(array.array("Q", [2, 3, 4])) == expected
    assert features.get_many(range(2, 5)) == expected
    for kind in (">u8", ">i8", ">u4", ">i2"):
        assert features.get_many(numpy.array([2, 3, 4], dtype=kind)) == expected, "the other order of bytes"
    for kind in ("i8", "i4", "i2"):
        assert features.get_many(numpy.array([2, -3], dtype=kind)) == [expected[0], None]
    with pytest.raises(ValueError, match="keys have 2 dimensions"):
        features.get_many(numpy.zeros((2, 2), numpy.uint64))
    with pytest.raises(TypeError, match="the keys are an array of floats, which may have been rounded"):
        features.get_many(numpy.array([2.0]))


def test_a_result_larger_than_memory_raises_an_exception(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: "a"}, tmp_path / "table.db")
    script = '''
import sys, zero_kv
try:
    zero_kv.open(sys.argv[1]).get_many(range(2, 1_000_000), dtype="V2000000000")
except MemoryError as error:
    print(error)
'''
    ran = subprocess.run([sys.executable, "-c", script, tmp_path / "table.db"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "no memory for 999998 values of 2000000000 bytes\n"), ran.stderr


def test_all_chunks_of_an_array_are_looked_up_in_one_table(tmp_path: pathlib.Path) -> None:
    rows = 5000
    zero_kv.bake(((key, "0") for key in range(rows)), tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server:
        direct = zero_kv.Direct(server.path)
        chunk = pyarrow.array(range(rows))
        keys = pyarrow.chunked_array([chunk[start : start + 500] for start in range(0, rows, 100)])
        for number in range(1, 9):
            zero_kv.bake(((key, str(number)) for key in range(rows)), server.file)
            while (found := set(direct.get_many(keys).to_pylist())) != {str(number).encode()}:
                assert len(found) == 1


@pytest.mark.parametrize("how", ["open", "client", "asyncio"])
@pytest.mark.parametrize("rows_of", [number_rows, text_rows])
def test_arrow_keys_return_arrow_arrays_with_nulls(rows_of: Any, how: str, tmp_path: pathlib.Path) -> None:
    rng = seeded(f"arrow {rows_of.__name__} {how}")
    rows = rows_of(rng, 1000)
    zero_kv.bake(rows, tmp_path / "table.db")
    if how == "open":
        check_arrow_arrays(zero_kv.open(tmp_path / "table.db"), rows, rows_of, rng)
    elif how == "asyncio":
        with serving(tmp_path / "table.db") as server:
            check_arrow_arrays(BlockingCalls(lambda: zero_kv.AsyncClient(server.path)), rows, rows_of, rng)
    else:
        with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as client:
            check_arrow_arrays(client, rows, rows_of, rng)


def check_arrow_arrays(table: Any, rows: dict[Any, bytes], rows_of: Any, rng: random.Random) -> None:
    assert table.get_many(pyarrow.nulls(3)).to_pylist() == [None] * 3
    pool = [*rows, *rows_of(rng, 1000), None, None]
    kind = pyarrow.uint64() if rows_of is number_rows else pyarrow.binary()
    for count in (0, 1, 7, 8, 9, 1000):
        asked = rng.choices(pool, k=count)
        expected = [None if key is None else rows.get(key) for key in asked]
        keys = pyarrow.array(asked, kind)
        found = table.get_many(keys)
        found.validate(full=True)
        assert found.type == pyarrow.binary() and found.to_pylist() == expected
        start = rng.randrange(count + 1)
        assert table.get_many(keys[start:]).to_pylist() == expected[start:]
        chunked = table.get_many(pyarrow.chunked_array([keys[:start], keys[start:]]))
        assert isinstance(chunked, pyarrow.ChunkedArray) and chunked.to_pylist() == expected
        assert table.get_many(keys.dictionary_encode()).to_pylist() == expected


def test_arrow_text_and_polars_can_be_keys(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"a": "1", "b": "2"}, tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()):
        assert table.get_many(pyarrow.array(["b", None, "c", "a"], kind)).to_pylist() == [b"2", None, None, b"1"]
    polars = pytest.importorskip("polars")
    assert table.get_many(polars.Series(["b", "c"])).to_pylist() == [b"2", None]
    pandas = pytest.importorskip("pandas")
    assert table.get_many(pandas.Series(["b", "c"])) == [b"2", None]


TEXT = ["b", None, "c", "a", "b"]
NUMBERS = [2, None, 3, 1, 2]


def arrow_forms(keys: list[Any]) -> dict[str, Any]:
    """Return arrays of the same keys, of all types that Arrow has for them."""
    import pyarrow.compute

    plain = pyarrow.array(keys)
    forms = {"plain": plain, "dictionary": plain.dictionary_encode(), "runs": pyarrow.compute.run_end_encode(plain)}
    if keys is TEXT:
        for kind in ("large_string", "string_view", "binary", "large_binary", "binary_view"):
            forms[kind] = plain.cast(getattr(pyarrow, kind)())
        views = forms["string_view"]
        indexes = pyarrow.array([0, None, 1, 2, 0])
        dictionary = pyarrow.array(["b", "c", "a"], pyarrow.string_view())
        forms["dictionary of views"] = pyarrow.DictionaryArray.from_arrays(indexes, dictionary)
        ends = pyarrow.array(range(1, 6), pyarrow.int32())
        forms["runs of views"] = pyarrow.RunEndEncodedArray.from_arrays(ends, views)
        forms["runs of a dictionary"] = pyarrow.RunEndEncodedArray.from_arrays(ends, forms["dictionary"])
    else:
        for kind in ("uint8", "int16", "uint64"):
            forms[kind] = plain.cast(getattr(pyarrow, kind)())
        indexes = pyarrow.array([0, None, 1, 2, 0], pyarrow.int8())
        forms["dictionary"] = pyarrow.DictionaryArray.from_arrays(indexes, pyarrow.array([2, 3, 1]))
    forms["chunks"] = pyarrow.chunked_array([plain[:2], plain[2:2], plain[2:]])
    forms["chunks of runs"] = pyarrow.chunked_array([forms["runs"][:2], forms["runs"][2:]])
    return forms


FORMS = [(keys, name) for keys in (TEXT, NUMBERS) for name in arrow_forms(keys)]


@pytest.mark.parametrize(("keys", "name"), FORMS)
def test_all_arrow_arrays_with_null_keys_are_looked_up(keys: list[Any], name: str, tmp_path: pathlib.Path) -> None:
    array = arrow_forms(keys)[name]
    zero_kv.bake({key: (index,) for index, key in enumerate(keys) if key not in (None, keys[2])}, tmp_path / "typed.db", types={"n": "i16"})
    expected = [4, None, None, 3, 4]
    at_most = [4, None, 4, 3, 4]  # The floor of each key.
    with serving(tmp_path / "typed.db") as server, zero_kv.Client(server.path) as client:
        surfaces = [zero_kv.open(tmp_path / "typed.db"), client, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))]
        for strict, table in itertools.product((False, True), surfaces):
            if strict and table is surfaces[0]:
                table = zero_kv.open(tmp_path / "typed.db", strict=True)

            def numbers(values: Any) -> list[Any]:
                return [None if value is None else int.from_bytes(value[:2], "little") for value in values]

            assert numbers(table.get_many(array).to_pylist()) == expected
            assert numbers(table.get_bytes_many(array)) == expected
            assert [row and row["n"] for row in table.get_rows(array)] == expected
            assert table.contains_many(array) == [number is not None for number in expected]
            values, found = table.get_many(array, dtype="V2")
            assert found.tolist() == [number is not None for number in expected]
            assert numbers(value for value, is_found in zip(values.tolist(), found) if is_found) == [4, 3, 4]
            found_keys, values = table.floor_many(array)
            assert numbers(values.to_pylist()) == at_most and found_keys.null_count == 1
            assert [row and row["n"] for row in table.columns(array, format="arrow").to_pylist()] == expected
            assert table.columns(array, fill=-1)[:, 0].tolist() == [-1 if number is None else number for number in expected]
            assert table.floor_columns(array, fill=-1)[1][:, 0].tolist() == [-1 if number is None else number for number in at_most]
    slots = zero_kv.slots(array)
    assert slots.to_pylist() == [None if key is None else zero_kv.slots([key])[0] for key in keys]


@pytest.mark.parametrize(("keys", "name"), FORMS)
def test_all_arrow_arrays_are_baked(keys: list[Any], name: str, tmp_path: pathlib.Path) -> None:
    array = arrow_forms(keys)[name]
    table = pyarrow.table({"key": range(5), "value": array})
    expected = [key.encode() if "binary" in name and key is not None else key for key in keys]
    zero_kv.bake(table, tmp_path / "table.db", key="key", typed=True)
    assert [row["value"] for row in zero_kv.open(tmp_path / "table.db").values()] == expected
    entry = zero_kv.write_shard(table, range(16384), f"file://{tmp_path}/published", key="key")
    zero_kv.commit([entry], f"file://{tmp_path}/published")
    with zero_kv.Published(f"file://{tmp_path}/published", cache=tmp_path / "cache") as published:
        assert [row["value"] for row in published.values()] == expected
    keyed = table.slice(2).select(["value", "key"])
    zero_kv.bake(keyed, tmp_path / "keyed.db", value="key")
    encoded = [key.encode() if isinstance(key, str) else key for key in keys[2:]]
    assert {key: row["key"] for key, row in zero_kv.open(tmp_path / "keyed.db").items()} == dict(zip(encoded, range(2, 5)))
    entry = zero_kv.write_shard(keyed, range(16384), f"file://{tmp_path}/keyed", key="value")
    assert entry.rows == 3
    for bake in (lambda: zero_kv.bake(table, tmp_path / "null.db", key="value", value="key"),
                 lambda: zero_kv.write_shard(table, range(16384), f"file://{tmp_path}/keyed", key="value")):
        with pytest.raises((TypeError, ValueError), match="2"):
            bake()


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
def test_masked_keys_are_null(way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (1.5, 7), 2: (2.5, 8)}, tmp_path / "table.db", types={"x": "f64", "n": "i32"})
    keys = numpy.ma.array([1, 2, 9, 1], mask=[False, True, False, False])
    with contextlib.ExitStack() as close:
        table: Any = zero_kv.open(tmp_path / "table.db")
        if way != "table":
            server = close.enter_context(serving(tmp_path / "table.db"))
            table = close.enter_context(zero_kv.Client(server.path))
        if way == "asyncio":
            table = BlockingCalls(lambda: zero_kv.AsyncClient(server.path))
        dtype = f"V{len(table.get_bytes(1))}"
        assert [row and row["n"] for row in table.get_many(keys)] == [7, None, None, 7]
        assert table.contains_many(keys) == [True, False, False, True]
        assert [row and row["n"] for row in table.get_rows(keys)] == [7, None, None, 7]
        assert [row is None for row in table.get_bytes_many(keys)] == [False, True, True, False]
        assert table.get_many(keys, dtype=dtype)[1].tolist() == [True, False, False, True]
        assert [row and row[0] for row in table.floor_many(keys)] == [1, None, 2, 1]
        found_keys, _, found = table.floor_many(keys, dtype=dtype)
        assert found_keys.tolist() == [1, 0, 2, 1] and found.tolist() == [True, False, True, True]
        assert numpy.array_equal(table.columns(keys, ["x"])[:, 0], [1.5, numpy.nan, numpy.nan, 1.5], equal_nan=True)
        assert table.columns(keys, fill={"n": 0})["n"].tolist() == [7, 0, 0, 7]
        assert table.columns(keys, ["n"], format="arrow").to_pydict() == {"n": [7, None, None, 7]}
        assert table.columns(keys.astype("u8"), ["n"], fill=3)[1, 0] == 3
        assert table.floor_columns(keys, ["n"], fill=0)[1].tolist() == [[7], [0], [8], [7]]
        unmasked = numpy.ma.array([1, 2])
        assert table.contains_many(unmasked) == [True, True] and table.columns(unmasked, ["n"]).tolist() == [[7], [8]]
        with pytest.raises(TypeError, match="the keys are an array of floats"):
            table.get_many(keys.astype("f8"))
        with pytest.raises(ValueError, match="2 dimensions"):
            table.get_many(keys.reshape(2, 2))
    slots = zero_kv.slots(keys)
    assert slots.tolist() == [zero_kv.slots([1])[0], None, zero_kv.slots([9])[0], zero_kv.slots([1])[0]]


@contextlib.contextmanager
def opened(way: str, path: pathlib.Path) -> Iterator[Any]:
    """Open a file as a table, or serve it to a client."""
    if way == "table":
        yield zero_kv.open(path)
        return
    with serving(path) as server, zero_kv.Client(server.path) as client:
        yield BlockingCalls(lambda: zero_kv.AsyncClient(server.path)) if way == "asyncio" else client


PANDAS_NUMBERS = {
    "Int64": lambda: pandas.Series([1, None, 9, 1], dtype="Int64", index=[5, 5, 6, 7]),
    "object": lambda: pandas.Series([1, pandas.NA, 9, 1], dtype=object),
    "Arrow": lambda: pandas.Series([1, None, 9, 1], dtype="int64[pyarrow]"),
    "array": lambda: pandas.array([1, None, 9, 1], dtype="Int64"),
    "index": lambda: pandas.Index([1, None, 9, 1], dtype="Int64"),
    "category": lambda: pandas.Series([1, None, 9, 1], dtype="Int64").astype("category"),
}


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
@pytest.mark.parametrize("name", PANDAS_NUMBERS)
def test_missing_keys_of_pandas_are_null(name: str, way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (1.5, 7), 2: (2.5, 8)}, tmp_path / "table.db", types={"x": "f64", "n": "i32"})
    keys = PANDAS_NUMBERS[name]()
    with opened(way, tmp_path / "table.db") as table:
        dtype = f"V{len(table.get_bytes(1))}"
        assert [row and row["n"] for row in table.get_many(keys)] == [7, None, None, 7]
        assert table.contains_many(keys) == [True, False, False, True]
        assert table.get_many(keys, dtype=dtype)[1].tolist() == [True, False, False, True]
        assert [row and row[0] for row in table.floor_many(keys)] == [1, None, 2, 1]
        assert table.floor_many(keys, dtype=dtype)[0].tolist() == [1, 0, 2, 1]
        assert numpy.array_equal(table.columns(keys, ["x"])[:, 0], [1.5, numpy.nan, numpy.nan, 1.5], equal_nan=True)
        assert table.columns(keys, ["n"], format="pandas")["n"].isna().tolist() == [False, True, True, False]
        assert table.floor_columns(keys, ["n"], fill=0)[1].tolist() == [[7], [0], [8], [7]]
        assert table.ceiling_columns(keys, ["n"], fill=0)[2].tolist() == [True, False, False, True]
        present = keys[[True, False, False, True]]
        assert table.columns(present, ["n"]).tolist() == [[7], [7]] and table.contains_many(present) == [True, True]


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
def test_missing_texts_of_pandas_are_null(way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"a": "1", "b": "2"}, tmp_path / "table.db")
    with opened(way, tmp_path / "table.db") as table:
        for dtype in ("str", "string", object, "string[pyarrow]"):
            keys = pandas.Series(["b", None, "c"], dtype=dtype)
            assert table.get_many(keys) == [b"2", None, None]
            assert table.floor_many(keys) == [(b"b", b"2"), None, (b"b", b"2")]


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
def test_a_key_that_is_missing_in_a_list_has_a_remedy(way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (7,)}, tmp_path / "table.db", types={"n": "i32"})
    with opened(way, tmp_path / "table.db") as table:
        for missing in (None, pandas.NA, pandas.NaT):
            for look_up in (table.columns, table.floor_columns, table.floor_many):
                with pytest.raises(TypeError, match="leave it out, or pass many keys as a pyarrow array or a pandas Series"):
                    look_up([1, missing])
        # Integers became floats: the whole ones can be found, as in a dict.
        floats = pandas.Series([1, None])
        assert table.contains_many(floats) == [True, False]
        with pytest.raises(TypeError, match="float"):
            table.columns(floats)
        assert table.columns(floats.astype("Int64"), fill=0).tolist() == [[7], [0]]


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
def test_a_frame_is_not_keys(way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"id": (7,), "n": (8,)}, tmp_path / "table.db", types={"n": "i32"})
    arrow = pyarrow.table({"id": ["id"], "n": ["n"]})
    frames: list[Any] = []
    for table in (arrow, arrow.select(["id"])):
        polars_frame: Any = polars.from_arrow(table)
        frames += [table, table.to_batches()[0], table.to_pandas(), polars_frame, polars_frame.lazy()]
    multi = pandas.MultiIndex.from_tuples([("id", "n")])
    with opened(way, tmp_path / "table.db") as table:
        calls = (table.get_many, table.contains_many, table.get_rows, table.get_bytes_many, table.columns, table.floor_many,
                 table.floor_columns, table.ceiling_columns, zero_kv.slots)
        for frame in frames:
            for look_up in calls:
                with pytest.raises(TypeError, match="where one column of keys was expected: choose a column"):
                    look_up(frame)
        with pytest.raises(TypeError, match="tuple"):
            table.columns(multi)
        # The labels of a Series are its attributes, too.
        assert table.get_many(pandas.Series(["id"], index=["columns"])) == table.get_many(["id"])


@pytest.mark.parametrize("way", ["table", "client", "asyncio"])
def test_booleans_of_numpy_and_arrow_are_numbers(way: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({0: "no", 1: "yes"}, tmp_path / "table.db")
    with contextlib.ExitStack() as close:
        table: Any = zero_kv.open(tmp_path / "table.db")
        if way != "table":
            server = close.enter_context(serving(tmp_path / "table.db"))
            table = close.enter_context(zero_kv.Client(server.path))
        if way == "asyncio":
            table = BlockingCalls(lambda: zero_kv.AsyncClient(server.path))
        keys = numpy.array([True, False, True])
        assert table.get(True) == table.get(numpy.True_) == b"yes" and table.get(numpy.False_) == b"no"
        assert table.get_many(keys) == table.get_many([True, False, True]) == [b"yes", b"no", b"yes"]
        assert [value for _, value in table.floor_many(keys)] == [b"yes", b"no", b"yes"]
        assert table.get_many(pyarrow.array([True, None, False])).to_pylist() == [b"yes", None, b"no"]
    assert zero_kv.slots(keys).tolist() == zero_kv.slots([1, 0, 1])


def test_numpy_scalars_and_text_can_be_keys(features: Any) -> None:
    assert features.get(numpy.uint64(2)) == features.get(numpy.int8(2)) == features.get(2) is not None


@pytest.fixture(params=["open", "copy", "direct"])
def ranges(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Any]:
    """A table with the value `key + 5` for each multiple of 10 from 100 to 1000."""
    zero_kv.bake({key: struct.pack("<I", key + 5) for key in range(100, 1001, 10)}, tmp_path / "ranges.db")
    if request.param == "direct":
        with serving(tmp_path / "ranges.db") as server:
            yield zero_kv.Direct(server.path)
    else:
        yield zero_kv.open(tmp_path / "ranges.db", memory="map" if request.param == "open" else "copy")


def many_neighbors(way: str, table: Any, path: pathlib.Path, name: str, close: contextlib.ExitStack) -> Any:
    """Return `floor_many` or `ceiling_many` of the table, or of a client of a server that serves its file."""
    if way == "table":
        return getattr(table, name + "_many")
    server = close.enter_context(serving(pathlib.Path(shutil.copy(path, path.with_name("served.db")))))
    if way == "client":
        return getattr(close.enter_context(zero_kv.Client(server.path)), name + "_many")

    return getattr(BlockingCalls(lambda: zero_kv.AsyncClient(server.path)), name + "_many")


WAYS = ["table", "client", "asyncio"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["floor", "ceiling"])
def test_many_neighbors_are_the_neighbors_of_each_key(ranges: Any, tmp_path: pathlib.Path, name: str, way: str) -> None:
    with contextlib.ExitStack() as close:
        check_many_neighbors(ranges, many_neighbors(way, ranges, tmp_path / "ranges.db", name, close), name)


def check_many_neighbors(ranges: Any, many: Any, name: str) -> None:
    one = getattr(ranges, name)
    random_keys = seeded("many neighbors")
    keys = [random_keys.randrange(1100) for _ in range(500)] + [0, 99, 100, 1000, 1001, 2**64 - 1]
    rows = [one(key) for key in keys]
    assert None in rows and many(keys) == rows and many(numpy.array(keys, dtype=numpy.uint64)) == rows
    found_keys, values, found = many(keys, dtype="<u4")
    assert found.tolist() == [row is not None for row in rows]
    assert found_keys.dtype == numpy.uint64 and found_keys.tolist() == [row[0] if row else 0 for row in rows]
    assert values.tolist() == [struct.unpack("<I", row[1])[0] if row else 0 for row in rows]
    for arrow_keys in (pyarrow.array(keys, pyarrow.uint64()), pyarrow.chunked_array([keys[:9], [], keys[9:]], pyarrow.uint64())):
        found_keys, values = many(arrow_keys)
        assert found_keys.to_pylist() == [row and row[0] for row in rows]
        assert values.to_pylist() == [row and row[1] for row in rows]
    found_keys, values = many(pyarrow.array([None, 500, None, 7, 1500], pyarrow.uint64()))
    rows = [row and one(row) for row in (None, 500, None, 7, 1500)]
    assert list(zip(found_keys.to_pylist(), values.to_pylist())) == [row or (None, None) for row in rows]
    assert many([]) == [] and [len(part) for part in many([], dtype="<u4")] == [0, 0, 0]
    with pytest.raises(ValueError, match="the value of key 0 has 4 bytes, where the dtype has 8"):
        many([500], dtype="<u8")
    # A table knows the kind of its keys. A client gets an error from the server.
    with pytest.raises((zero_kv.KeyKind, zero_kv.ServerError)):
        many([b"a"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["floor", "ceiling"])
def test_many_neighbors_of_byte_keys_are_arrow_arrays(tmp_path: pathlib.Path, name: str, way: str) -> None:
    zero_kv.bake({b"b": b"1", b"d": b"", b"f" * 30: b"3"}, tmp_path / "bytes.db")
    table = zero_kv.open(tmp_path / "bytes.db")
    with contextlib.ExitStack() as close:
        check_byte_neighbors(table, many_neighbors(way, table, tmp_path / "bytes.db", name, close), name)


def check_byte_neighbors(table: Any, many: Any, name: str) -> None:
    one = getattr(table, name)
    keys = ["a", "b", None, "c", "d", "e", "f", "g"]
    rows = [one(key) if key else None for key in keys]
    found_keys, values = many(pyarrow.array(keys))
    assert found_keys.to_pylist() == [row and row[0] for row in rows]
    assert values.to_pylist() == [row and row[1] for row in rows]
    assert many([key for key in keys if key]) == [row for row, key in zip(rows, keys) if key]
    with pytest.raises(zero_kv.KeyKind, match="the table's keys are bytes, where a dtype requires numbers"):
        many(["a"], dtype="S1")
