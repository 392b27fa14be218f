"""Promises of `bake` about the objects that people have."""

from __future__ import annotations

import datetime
import decimal
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import zero_kv
from support import PROGRAMS

COUNT = 20_000
IDS = numpy.arange(COUNT, dtype=numpy.uint64)
MATRIX = numpy.arange(COUNT * 4, dtype=numpy.float32).reshape(COUNT, 4)
DAY = datetime.date(2024, 2, 29)
USERS = pandas.DataFrame({"user_id": [1001, 1002, 1003], "age": [31, 42, 27], "score": [0.5, 0.25, 0.75]})


def fixed_lists() -> Any:
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(MATRIX.reshape(-1)), 4)


def frames() -> dict[str, Any]:
    arrow = pyarrow.table({"id": IDS, "vector": fixed_lists()})
    lists = arrow.set_column(1, "vector", fixed_lists().cast(pyarrow.list_(pyarrow.float32())))
    polars_array = polars.from_arrow(arrow)
    assert isinstance(polars_array, polars.DataFrame)
    polars_list = polars_array.with_columns(polars.col("vector").arr.to_list())
    assert polars_array["vector"].dtype == polars.Array(polars.Float32, 4)
    return {
        "arrays": (IDS, MATRIX),
        "lists of arrays": [IDS.tolist(), MATRIX],
        "Arrow FixedSizeList": arrow,
        "Arrow List": lists,
        "Arrow reader": arrow.to_reader(1000),
        "Arrow dataset": pyarrow.dataset.dataset(arrow),
        "Arrow scanner": pyarrow.dataset.dataset(arrow).scanner(),
        "batches": iter(arrow.to_batches(max_chunksize=1000)),
        "Polars Array": polars_array,
        "Polars List": polars_list,
        "Polars LazyFrame": polars_array.lazy(),
        "pandas": pandas.DataFrame({"id": IDS, "vector": list(MATRIX)}),
        "pandas chunks": (pandas.DataFrame({"id": IDS[at : at + 999], "vector": list(MATRIX[at : at + 999])}) for at in range(0, COUNT, 999)),
        "stream": Stream(arrow),
    }


class Stream:
    """An object of another package, such as a relation of DuckDB."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("name", frames())
def test_embeddings_are_packed_floats(name: str, tmp_path: pathlib.Path) -> None:
    report = zero_kv.bake(frames()[name], tmp_path / "table.db")
    values, found = zero_kv.open(tmp_path / "table.db").get_many(IDS, dtype=(numpy.float32, 4))
    assert report.rows == COUNT and found.all() and (values == MATRIX).all()


@pytest.mark.parametrize("name", frames())
def test_embeddings_can_be_typed_columns(name: str, tmp_path: pathlib.Path) -> None:
    # The lists of these pandas frames are known only after the bake has begun.
    types = {"vector": "list(f32,4)"} if name == "pandas chunks" else None
    zero_kv.bake(frames()[name], tmp_path / "table.db", typed=True, types=types)
    table = zero_kv.open(tmp_path / "table.db")
    assert table.schema() is not None and [kind.removesuffix("?") for kind in table.schema().values()] == ["list(f32,4)"]
    assert (table.columns(IDS) == MATRIX).all()


CELLS = {
    "i64": [1, -(2**63), 0],
    "f64": [2.5, -0.0, 1e300],
    "bool": [True, False, True],
    "date": [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp(us)": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC)] * 3,
    "decimal(38,2)": [decimal.Decimal("1.25"), decimal.Decimal("-3.5"), decimal.Decimal(7)],
}


@pytest.mark.parametrize("kind", CELLS)
def test_numbers_and_dates_are_values(kind: str, tmp_path: pathlib.Path) -> None:
    path, cells = tmp_path / "table.db", CELLS[kind]
    for rows in (dict(enumerate(cells)), list(enumerate(cells)), iter(enumerate(cells))):
        zero_kv.bake(rows, path)
        table = zero_kv.open(path)
        assert dict(table.schema() or {}) == {"value": kind} and [row["value"] for row in table.values()] == cells
    zero_kv.bake({5: cells[0]}, path, base=path)
    assert zero_kv.open(path)[5]["value"] == cells[0] and len(zero_kv.open(path)) == 4
    arrow = pyarrow.table({"id": [0, 1, 2], "cell": cells})
    for frame in (arrow, arrow.to_reader(), polars.from_arrow(arrow), arrow.to_pandas()):
        zero_kv.bake(frame, path)
        assert [row["cell"] for row in zero_kv.open(path).values()] == cells


def test_several_columns_are_values(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    frame = pandas.DataFrame({"price": [2.5, 3.5], "id": [1, 2], "name": ["pen", "ink"], "blob": [b"a", b"b"]})
    zero_kv.bake(frame, path, key="id", value=["name", "price"])
    assert {key: dict(row) for key, row in zero_kv.open(path).items()} == {
        1: {"name": "pen", "price": 2.5},
        2: {"name": "ink", "price": 3.5},
    }
    zero_kv.bake(frame, path, key="id", typed=True)
    assert list(zero_kv.open(path).schema() or {}) == ["price", "name", "blob"]
    zero_kv.bake(frame, path, key="id", value="blob")
    assert dict(zero_kv.open(path).items()) == {1: b"a", 2: b"b"}
    zero_kv.bake(polars.from_pandas(frame).lazy().filter(polars.col("price") > 3), path, key="id", value=["price"])
    assert dict(zero_kv.open(path)[2]) == {"price": 3.5} and len(zero_kv.open(path)) == 1


def test_a_list_is_the_value_of_a_column_of_lists(tmp_path: pathlib.Path) -> None:
    rows: dict[int, Any] = {1: [1.0, 2.0], 2: [], 3: (0.5,)}
    zero_kv.bake(rows, tmp_path / "table.db", types={"value": "list(f32)"})
    assert [row["value"] for row in zero_kv.open(tmp_path / "table.db").values()] == [[1.0, 2.0], [], [0.5]]


@pytest.mark.parametrize("what", ["dataset", "scan_parquet"])
def test_a_dataset_larger_than_the_memory_is_streamed(what: str, tmp_path: pathlib.Path) -> None:
    script = """
import resource, sys, polars, pyarrow.dataset, zero_kv
path, what = sys.argv[1:]
rows = pyarrow.dataset.dataset(path + "/rows") if what == "dataset" else polars.scan_parquet(path + "/rows/*.parquet")
small = rows.head(10)
zero_kv.bake(small, path + "/small.db", key="id", value="blob")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = zero_kv.bake(rows, path + "/table.db", key="id", value="blob", memory_bytes=64 << 20)
print(report.rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    (tmp_path / "rows").mkdir()
    blob = numpy.random.default_rng(1).bytes(1 << 20)
    for part in range(16):
        ids = pyarrow.array(range(part * 25_000, (part + 1) * 25_000))
        blobs = [blob[at : at + 1000] for at in range(25_000)]
        table = pyarrow.table({"id": ids, "blob": pyarrow.array(blobs, pyarrow.binary())})
        pyarrow.parquet.write_table(table, tmp_path / "rows" / f"{part}.parquet", row_group_size=5000)
    command = [sys.executable, "-c", script, tmp_path, what]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "POLARS_MAX_THREADS": "2"})
    assert ran.returncode == 0, ran.stderr
    rows, _ = map(int, ran.stdout.split())
    assert rows == 400_000


REJECTED: list[tuple[Any, dict[str, Any], str]] = [
    ({1: None}, {}, "leave the row out, or bake a typed table"),
    ({1: [1.0, 2.0]}, {}, 'pass numpy.asarray(value, dtype="float32"), or types={"value": "list(f32)"}'),
    ({1: {"price": 2.5, "name": "pen"}}, {}, "pass types with a type for each column, such as types={'price': 'f64', 'name': 'text?'}"),
    ({1: object()}, {}, "pass types with the type of the value"),
    ({1: 2**63}, {}, "column \"value\" is i64"),
    ({1: b"x"}, {"key": "id"}, "leave key and value out"),
    ((IDS, MATRIX[:-1]), {}, "pass arrays of the same length"),
    ((IDS[:2], numpy.zeros((2, 3, 4))), {}, "call values.reshape(len(keys), -1)"),
    ((IDS[:2], numpy.array([["a"], ["b"]])), {}, 'convert them, as in values.astype("float32")'),
    ((IDS[:2], MATRIX[:2]), {"key": "id"}, "leave them out"),
    (pandas.DataFrame({"a": [1], "b": [2], "c": [3]}), {}, "value can be a list of names, and typed=True bakes all columns"),
    (polars.LazyFrame({"a": [1], "b": [2], "c": [3]}), {}, "choose with key and value"),
    (pyarrow.table({"a": [1], "b": [{"c": 1}]}), {}, "convert it, or leave it out"),
    (pyarrow.table({"a": [1], "b": [[1, None]]}), {}, "rows:1: column 'b' is list(i64): an element of the list is null"),
    (pyarrow.table({"a": [1, 2], "b": [["x"], ["y", None]]}), {"typed": True}, "rows:2: column 'b' is list(text): an element"),
    (iter([pyarrow.record_batch({"a": [at], "b": [[at or None]]}) for at in (2, 1, 0)]), {"typed": True}, "rows:3: column 'b'"),
    (iter([pyarrow.record_batch({"a": [1], "b": ["x"]}), 7]), {}, "select these columns in each batch"),
    ("table.csv", {}, "polars.scan_csv('table.csv'), or bake it with the command `baker --typed`"),
    (pathlib.Path("table.jsonl"), {}, "polars.scan_ndjson('table.jsonl')"),
    ({(7, b"a"): "x", 8: "y"}, {}, "rows:2: the key is of type int, where a tuple of 2 parts was expected, u64,bytes"),
    ({7: "x", (8, 9): "y"}, {}, "keys of several parts are tuples, in all rows"),
    ([([7, 8], "x")], {}, "keys of several parts are tuples, in all rows"),
    ((numpy.ma.array([1, 2], mask=[False, True]), MATRIX[:2]), {}, "the keys have 1 masked elements, where each element needs a value"),
    ((IDS[:2], numpy.ma.array(MATRIX[:2], mask=MATRIX[:2] > 5)), {}, "fill them, as in array.filled(0)"),
    ({1: numpy.ma.array([1.0, 2.0], mask=[False, True])}, {}, "fill them, as in array.filled(0)"),
    ({1: numpy.ma.array([1.0, 2.0], mask=[False, True])}, {"types": {"value": "list(f64)"}}, "fill them, as in array.filled(0)"),
    (pandas.DataFrame({"a": [1, 2]}, index=["x", "y"]), {"typed": True}, 'df.rename_axis("id"), to use it as the key'),
    (pandas.DataFrame({"a": [1, 2]}).set_index("a", drop=False), {"typed": True}, "leave it out, as in df.reset_index(drop=True)"),
    (USERS.set_index(["user_id", "age"]), {"typed": True}, "make a column with the key of each row, and choose it with key"),
    (iter([USERS, USERS.set_index("user_id")[["age"]]]), {"typed": True}, "select these columns in each batch"),
    (USERS.set_index("user_id"), {}, "choose with key and value"),
]


@pytest.mark.parametrize(("rows", "options", "remedy"), REJECTED)
def test_a_rejection_names_the_remedy(rows: Any, options: dict[str, Any], remedy: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as raised:
        zero_kv.bake(rows, tmp_path / "table.db", **options)
    assert remedy in str(raised.value)
    assert os.listdir(tmp_path) == []


def rows_in(path: pathlib.Path) -> dict[Any, Any]:
    return {key: value if isinstance(value, bytes) else dict(value) for key, value in zero_kv.open(path).items()}


def test_a_named_index_of_pandas_is_the_key(tmp_path: pathlib.Path) -> None:
    path, users = tmp_path / "table.db", USERS.set_index("user_id")
    expected = {row.user_id: {"age": row.age, "score": row.score} for row in USERS.itertuples()}
    ages = {key: {"age": row["age"]} for key, row in expected.items()}
    for frame in (users, users.sort_index(ascending=False), iter([users[:1], users[1:]])):
        zero_kv.bake(frame, path, typed=True)
        assert rows_in(path) == expected and zero_kv.open(path).schema().key_name == "user_id"  # type: ignore[union-attr]
    for key in (None, "user_id"):
        zero_kv.bake(users, path, key=key, value="age")
        assert rows_in(path) == ages
        zero_kv.bake(users, path, key=key, value=["age"])
        assert rows_in(path) == ages
        zero_kv.bake(users[["age"]], path, key=key)
        assert rows_in(path) == ages
        zero_kv.bake(users, path, key=key, types={"age": "u8"})
        assert rows_in(path) == expected and zero_kv.open(path).schema()["age"] == "u8"  # type: ignore[index]
    zero_kv.bake(users["age"], path)
    assert rows_in(path) == {key: {"value": row["age"]} for key, row in ages.items()}
    texts = users.rename(index=str)
    path = tmp_path / "texts.db"
    zero_kv.bake(texts, path, typed=True)
    assert rows_in(path) == {str(key).encode(): row for key, row in expected.items()}
    entry = zero_kv.write_shard(users, range(16384), f"file://{tmp_path}/published")
    assert entry.key_name == "user_id" and entry.schema == ["age:i64?", "score:f64?"]


def test_an_index_of_pandas_that_is_not_the_key_is_a_column(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake(USERS.set_index("user_id"), path, key="age", typed=True)
    assert rows_in(path)[31] == {"user_id": 1001, "score": 0.5}
    zero_kv.bake(USERS.set_index(["user_id", "score"]), path, key="age", typed=True)
    assert rows_in(path)[31] == {"user_id": 1001, "score": 0.5}


def test_an_index_of_pandas_without_a_name_numbers_the_rows(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    for frame in (USERS, USERS[1:], USERS[::-1]):
        zero_kv.bake(frame, path, typed=True)
        assert set(rows_in(path)) == set(frame["user_id"])
    by_score = USERS.sort_values("score")
    zero_kv.bake(by_score, path, key="user_id", typed=True)
    assert set(rows_in(path)) == set(USERS["user_id"])
    with pytest.raises(ValueError, match="has an index without a name, which may have the keys"):
        zero_kv.bake(by_score, path, typed=True)


def arrow_forms(frame: pandas.DataFrame, folder: pathlib.Path) -> dict[str, Any]:
    """Objects of pyarrow that were a DataFrame, and the path of a Parquet file."""
    table = pyarrow.Table.from_pandas(frame)
    frame.to_parquet(folder / "frame.parquet")
    dataset = pyarrow.dataset.dataset(folder / "frame.parquet")
    return {
        "path": folder / "frame.parquet",
        "dataset": dataset,
        "scanner": dataset.scanner(),
        "table": table,
        "reader": table.to_reader(),
        "batch": table.to_batches()[0],
        "batches": iter(table.to_batches(max_chunksize=1)),
    }


def baker(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PROGRAMS / "baker", "--quiet", "-o", folder / "baker.db", folder / "frame.parquet", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


# pandas does not write an index of consecutive numbers as a column.
GAPS = USERS.assign(user_id=[1001, 1005, 1003])
ARROW_FORMS = ("path", "dataset", "scanner", "table", "reader", "batch", "batches")


@pytest.mark.parametrize("form", ARROW_FORMS)
def test_a_named_index_of_pandas_is_the_key_in_arrow_and_parquet(form: str, tmp_path: pathlib.Path) -> None:
    path, users = tmp_path / "table.db", GAPS.set_index("user_id")

    def forms(frame: pandas.DataFrame) -> Any:
        return arrow_forms(frame, tmp_path)[form]

    for frame, options, arguments in (
        (users, {"typed": True}, ["--typed"]),
        (users, {"types": {"age": "u8", "score": "f64"}}, ["--types", "age:u8,score:f64"]),
        (users, {"value": ["age"]}, ["--typed", "--columns", "age"]),
        (users, {"key": "age", "typed": True}, ["--typed", "--key", "age"]),
        (users[["age"]], {"typed": True}, ["--typed"]),
        (users.rename(index="u{}".format), {"typed": True}, ["--typed"]),
    ):
        zero_kv.bake(forms(frame), path, **options)
        found, schema = rows_in(path), zero_kv.open(path).schema()
        zero_kv.bake(frame, path, **options)
        assert found == rows_in(path) and schema is not None
        assert schema.key_name == zero_kv.open(path).schema().key_name  # type: ignore[union-attr]
        assert (ran := baker(tmp_path, *arguments)).returncode == 0, ran.stderr
        assert found == rows_in(tmp_path / "baker.db")
        path.unlink()
        (tmp_path / "baker.db").unlink()
    names = users[["age"]].assign(age=["a", "b", "c"])
    zero_kv.bake(forms(names), path)
    assert baker(tmp_path).returncode == 0
    assert rows_in(path) == rows_in(tmp_path / "baker.db") == {1001: b"a", 1005: b"b", 1003: b"c"}
    zero_kv.bake(forms(names), path, value="user_id", allow_key_type_change=True)
    assert baker(tmp_path, "--keys", "bytes", "--value", "user_id", "--allow-key-type-change").returncode == 0
    assert list(rows_in(path)) == list(rows_in(tmp_path / "baker.db")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("form", ARROW_FORMS)
@pytest.mark.parametrize(
    ("frame", "remedy"),
    [
        (GAPS.sort_values("score"), "name the index"),
        (GAPS.set_index(["user_id", "age"]), "make a column with the key of each row"),
        (USERS[["age", "score"]].set_index(pandas.RangeIndex(1001, 1001 + len(USERS), name="user_id")), "df."),
    ],
)
def test_an_index_of_pandas_that_may_have_the_keys_is_an_error(
    frame: pandas.DataFrame, remedy: str, form: str, tmp_path: pathlib.Path
) -> None:
    rows, path = arrow_forms(frame, tmp_path)[form], tmp_path / "table.db"
    with pytest.raises(ValueError, match="pandas index") as raised:
        zero_kv.bake(rows, path, typed=True)
    assert remedy in str(raised.value) and not path.exists()
    ran = baker(tmp_path, "--typed")
    assert ran.returncode == 1 and "pandas index" in ran.stderr and remedy in ran.stderr and "(--key)" in ran.stderr
    if "user_id" in frame:
        zero_kv.bake(arrow_forms(frame, tmp_path)[form], path, key="user_id", typed=True)
    else:
        zero_kv.bake(arrow_forms(frame.reset_index(), tmp_path)[form], path, typed=True)
    assert set(rows_in(path)) == set(frame.reset_index()["user_id"])


def test_metadata_of_pandas_that_names_no_column_is_ignored(tmp_path: pathlib.Path) -> None:
    table = pyarrow.Table.from_pandas(GAPS.set_index("user_id")).rename_columns(["age", "score", "other"])
    for metadata in (table.schema.metadata, {"pandas": "{"}, {"pandas": "[]"}, {"pandas": '{"index_columns": [7, ["a"]]}'}):
        zero_kv.bake(table.replace_schema_metadata(metadata), tmp_path / "table.db", typed=True)
        assert set(rows_in(tmp_path / "table.db")) == set(GAPS["age"])


LISTS: dict[str, Any] = {
    "pandas arrays": pandas.DataFrame({"id": IDS[:3], "v": [MATRIX[0], None, MATRIX[1]]}),
    "pandas lists": pandas.DataFrame({"id": IDS[:3], "v": [[1, 2], [3, 4], [5, 6]]}),
    "Arrow List": pyarrow.table({"id": IDS[:3], "v": [[1, 2], None, [5, 6]]}),
    "Arrow LargeList": pyarrow.table({"id": IDS[:3], "v": pyarrow.array([[1, 2], None, [5, 6]], pyarrow.large_list(pyarrow.int64()))}),
    "Arrow ListView": pyarrow.table({"id": IDS[:3], "v": pyarrow.array([[1, 2], None, [5, 6]], pyarrow.list_view(pyarrow.int64()))}),
    "Arrow batch": pyarrow.record_batch({"id": IDS[:3], "v": [[1, 2], None, [5, 6]]}),
    "Arrow dataset": pyarrow.dataset.dataset(pyarrow.table({"id": IDS[:3], "v": [[1, 2], None, [5, 6]]})),
    "Polars List": polars.DataFrame({"id": IDS[:3], "v": [[1, 2], None, [5, 6]]}),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_one_length_become_a_column_of_this_length(name: str, tmp_path: pathlib.Path) -> None:
    path, frame = tmp_path / "table.db", LISTS[name]
    kind = "list(f32,4)" if name == "pandas arrays" else "list(i64,2)"
    zero_kv.bake(frame, path, typed=True)
    assert dict(zero_kv.open(path).schema() or {}) == {"v": kind + "?"}
    assert [row["v"] for row in zero_kv.open(path).values()][2] == ([4.0, 5.0, 6.0, 7.0] if "f32" in kind else [5, 6])
    # Lists of a base and declared lists can have any length.
    open_kind = kind.split(",")[0] + ")?"
    zero_kv.bake(frame, path, types={"v": open_kind})
    assert dict(zero_kv.open(path).schema() or {}) == {"v": open_kind}
    zero_kv.bake(frame, path, base=path, typed=True)
    assert dict(zero_kv.open(path).schema() or {}) == {"v": open_kind}


def test_lists_of_several_lengths_have_no_length(tmp_path: pathlib.Path) -> None:
    for lists in ([[1.0], [2.0, 3.0]], [[1.0], []], [[], []], [None, None]):
        table = pyarrow.table({"id": [1, 2], "v": pyarrow.array(lists, pyarrow.list_(pyarrow.float32()))})
        zero_kv.bake(table, tmp_path / "table.db", typed=True)
        assert dict(zero_kv.open(tmp_path / "table.db").schema() or {}) == {"v": "list(f32)?"}


@pytest.mark.parametrize(
    ("cells", "dtype", "kind", "found"),
    [
        ([1, None, 3], "Int64", "i64?", [1, None, 3]),
        ([None, 2], "int64[pyarrow]", "i64?", [None, 2]),
        ([1, 2], "Int64", "i64", [1, 2]),
        ([1.5, None], "Float64", "f64?", [1.5, None]),
        ([True, None], "boolean", "bool?", [True, None]),
        ([datetime.datetime(2024, 2, 29), None], "datetime64[ns]", "timestamp(ns)?", [datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC), None]),
        ([decimal.Decimal("1.5"), None], object, "decimal(38,1)?", [decimal.Decimal("1.5"), None]),
        ([1, pandas.NA], object, "i64?", [1, None]),
    ],
)
def test_a_missing_value_of_a_series_is_null(cells: Any, dtype: Any, kind: str, found: Any, tmp_path: pathlib.Path) -> None:
    series = pandas.Series(cells, index=range(len(cells)), dtype=dtype)
    zero_kv.bake(series, tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    assert dict(table.schema() or {}) == {"value": kind} and [row["value"] for row in table.values()] == found
    zero_kv.bake(series.dropna(), tmp_path / "table.db")
    assert len(zero_kv.open(tmp_path / "table.db")) == len(series.dropna())


def test_a_missing_text_of_a_series_is_an_error_with_its_row(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    for dtype in ("str", "string", object):
        series = pandas.Series(["a", None], index=[1, 2], dtype=dtype)
        with pytest.raises(TypeError, match=r"rows:2: .*leave the row out, or bake a typed table"):
            zero_kv.bake(series, path)
        zero_kv.bake(series, path, types={"value": "text?"})
        assert [row["value"] for row in zero_kv.open(path).values()] == ["a", None]
        zero_kv.bake(series.dropna(), path)
        assert dict(zero_kv.open(path).items()) == {1: b"a"}
    zero_kv.bake(pandas.Series([1.5, float("nan")]), path)
    assert str([row["value"] for row in zero_kv.open(path).values()]) == "[1.5, nan]"


def test_missing_objects_of_pandas_are_null_in_typed_rows(tmp_path: pathlib.Path) -> None:
    rows = {1: (pandas.NA, pandas.NaT, pandas.NA), 2: (7, datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC), "x")}
    types = {"n": "i64?", "t": "timestamp(us)?", "s": "text?"}
    zero_kv.bake(rows, tmp_path / "table.db", types=types)
    assert rows_in(tmp_path / "table.db")[1] == {"n": None, "t": None, "s": None}
    with pytest.raises(zero_kv.BakeFailed, match="is null"):
        zero_kv.bake(rows, tmp_path / "table.db", types={**types, "n": "i64"})
    with pytest.raises(TypeError, match="leave the row out"):
        zero_kv.bake({1: pandas.NA}, tmp_path / "other.db")
    with pytest.raises(zero_kv.BakeFailed, match="make the column nullable"):
        zero_kv.bake({1: pandas.NaT}, tmp_path / "other.db")


def list_forms(lists: Any, kind: Any) -> dict[str, Any]:
    arrow = pyarrow.table({"id": [1, 2, 3], "v": pyarrow.array(lists, kind)})
    fixed = arrow.set_column(1, "v", pyarrow.array(lists, pyarrow.list_(kind.value_type, 2)))
    return {
        "Arrow List": arrow,
        "Arrow FixedSizeList": fixed,
        "Arrow reader": arrow.to_reader(),
        "Polars": polars.from_arrow(arrow),
        "pandas": arrow.to_pandas(),
    }


def lists_baked(rows: Any, folder: pathlib.Path, **options: Any) -> tuple[str, list[Any]]:
    """Return the type of the column, without its length, and the lists, with text instead of NaN."""
    zero_kv.bake(rows, folder / "table.db", **options)
    table = zero_kv.open(folder / "table.db")
    kind = (table.schema() or {})["v"].removesuffix("?").replace(",2)", ")")
    lists = [row["v"] for row in table.values()]
    return kind, [None if cells is None else [str(cell) if cell != cell else cell for cell in cells] for cells in lists]


FORMS = ("Arrow List", "Arrow FixedSizeList", "Arrow reader", "Polars", "pandas")


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_booleans_become_lists_of_small_integers(form: str, tmp_path: pathlib.Path) -> None:
    def rows() -> Any:
        return list_forms([[True, False], None, [False, True]], pyarrow.list_(pyarrow.bool_()))[form]

    lists = [[1, 0], None, [0, 1]]
    assert lists_baked(rows(), tmp_path, typed=True) == ("list(u8)", lists)
    assert lists_baked(rows(), tmp_path, types={"v": "list(f32)?"}) == ("list(f32)", lists)
    entry = zero_kv.write_shard(rows(), range(16384), f"file://{tmp_path}/published")
    assert entry.schema is not None and entry.schema[0].startswith("v:list(u8")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_null_element_of_a_list_of_floats_is_nan(kind: str, form: str, tmp_path: pathlib.Path) -> None:
    def rows() -> Any:
        return list_forms([[1.5, None], None, [None, 2.5]], pyarrow.list_(pyarrow.type_for_alias(kind)))[form]

    expected = "list(f32)" if kind == "float" else "list(f64)"
    lists = [[1.5, "nan"], None, ["nan", 2.5]]
    assert lists_baked(rows(), tmp_path, typed=True) == (expected, lists)
    assert lists_baked(rows(), tmp_path, types={"v": "list(f32)?"}) == ("list(f32)", lists)
    entry = zero_kv.write_shard(rows(), range(16384), f"file://{tmp_path}/published")
    assert entry.rows == 3


def test_nan_in_an_array_of_pandas_stays_nan(tmp_path: pathlib.Path) -> None:
    frame = pandas.DataFrame({"id": [1, 5], "v": [numpy.array([1.5, numpy.nan]), numpy.array([2.5, 3.5])]})
    frame.to_parquet(tmp_path / "frame.parquet")
    expected = "list(f64)", [[1.5, "nan"], [2.5, 3.5]]
    for rows in (frame, tmp_path / "frame.parquet"):
        assert lists_baked(rows, tmp_path, typed=True) == expected
    assert baker(tmp_path, "--typed", "--key", "id").returncode == 0
    assert rows_in(tmp_path / "baker.db")[5] == {"v": [2.5, 3.5]}
    assert str(rows_in(tmp_path / "baker.db")[1]["v"]) == "[1.5, nan]"


def test_a_null_element_of_a_list_of_integers_is_nan_in_a_list_of_floats(tmp_path: pathlib.Path) -> None:
    table = pyarrow.table({"id": [1, 2], "v": [[1, None], [2, 3]]})
    with pytest.raises(zero_kv.BakeFailed, match="or declare list\\(f64\\) with types, in which it is NaN"):
        zero_kv.bake(table, tmp_path / "table.db", typed=True)
    assert lists_baked(table, tmp_path, types={"v": "list(f64)"}) == ("list(f64)", [[1, "nan"], [2, 3]])
    large = pyarrow.table({"id": [1], "v": [[2**53 + 1, None]]})
    with pytest.raises(ValueError, match="9007199254740993"):
        zero_kv.bake(large, tmp_path / "table.db", types={"v": "list(f64)"})


def test_masked_values_are_null(tmp_path: pathlib.Path) -> None:
    zero_kv.bake((IDS[:3], numpy.ma.array([1.5, 2.5, 3.5], mask=[False, True, False])), tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    assert dict(table.schema() or {}) == {"value": "f64?"} and [row["value"] for row in table.values()] == [1.5, None, 3.5]


@pytest.mark.parametrize("as_path", [str, pathlib.Path, os.fsencode])
def test_the_path_of_a_parquet_file_has_its_rows(as_path: Any, tmp_path: pathlib.Path) -> None:
    USERS.to_parquet(tmp_path / "users.parquet")
    zero_kv.bake(as_path(tmp_path / "users.parquet"), tmp_path / "table.db", key="user_id", value=["age"])
    assert rows_in(tmp_path / "table.db")[1001] == {"age": 31}
    with pytest.raises(FileNotFoundError):
        zero_kv.bake(tmp_path / "other.parquet", tmp_path / "table.db")


def test_conversions_are_those_of_baker(tmp_path: pathlib.Path) -> None:
    times = [datetime.time(1, 2, 3), None, datetime.time(23, 59, 59)]
    table = pyarrow.table({
        "id": pyarrow.array([1, 2, 3]),
        "ms": pyarrow.array(times, pyarrow.time32("ms")),
        "us": pyarrow.array(times, pyarrow.time64("us")),
        "ns": pyarrow.array(times, pyarrow.time64("ns")),
        "uuid": pyarrow.array([bytes(range(16))] * 3, pyarrow.uuid()),
    })
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    command = [PROGRAMS / "baker", "--quiet", "--typed", "--key", "id", "-o", tmp_path / "baker.db", tmp_path / "table.parquet"]
    subprocess.run(command, check=True)
    zero_kv.bake(table, tmp_path / "python.db", key="id", typed=True)
    assert rows_in(tmp_path / "python.db") == rows_in(tmp_path / "baker.db")
    assert dict(zero_kv.open(tmp_path / "python.db").schema() or {}) == dict(zero_kv.open(tmp_path / "baker.db").schema() or {})
    assert rows_in(tmp_path / "python.db")[1]["us"] == "01:02:03.000000"
    others = pyarrow.table({
        "id": [1, 2, 3],
        "s": pyarrow.array(times, pyarrow.time32("s")),
        "half": pyarrow.array(numpy.array([1.5, -2.25, 65504], numpy.float16)),
        "halves": pyarrow.array([numpy.array([0.5], numpy.float16)] * 3),
    })
    zero_kv.bake(others, tmp_path / "python.db", key="id", typed=True)
    assert rows_in(tmp_path / "python.db")[3] == {"s": "23:59:59.000", "half": 65504.0, "halves": [0.5]}
    assert list((zero_kv.open(tmp_path / "python.db").schema() or {}).values()) == ["text?", "f32?", "list(f32,1)?"]


def test_progress_is_reported_to_a_callable(tmp_path: pathlib.Path) -> None:
    reports: list[zero_kv.BakeProgress] = []
    zero_kv.bake(((key, b"value") for key in range(300_000)), tmp_path / "table.db", progress=reports.append)
    phases = [report.phase for report in reports]
    # A phase that ends at once has no report.
    order = ["read", "merge", "write", "index", "verify"]
    assert "read" in phases and "index" in phases and phases == sorted(phases, key=order.index)
    for phase in dict.fromkeys(phases):
        done = [report.done for report in reports if report.phase == phase]
        assert done == sorted(done)
    assert reports[0].total is None and reports[-1].total and reports[-1].done <= reports[-1].total


def test_an_exception_of_the_progress_stops_a_bake(tmp_path: pathlib.Path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: zero_kv.BakeProgress) -> None:
        raise Enough(progress.phase)

    with pytest.raises(Enough):
        zero_kv.bake(((key, b"value") for key in range(300_000)), tmp_path / "table.db", progress=stop)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_progress_is_shown(has_tqdm: bool, tmp_path: pathlib.Path) -> None:
    hide = "" if has_tqdm else "sys.modules['tqdm'] = sys.modules['tqdm.auto'] = None"
    script = f"""
import sys
{hide}
import zero_kv
zero_kv.bake(((key, b"value") for key in range(300_000)), sys.argv[1], progress=True)
"""
    if has_tqdm:
        pytest.importorskip("tqdm")
    ran = subprocess.run([sys.executable, "-c", script, tmp_path / "table.db"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert all(f"bake: {phase}" in ran.stderr for phase in ("read", "index")), ran.stderr
    assert ("it/s" in ran.stderr or "row/s" in ran.stderr) == has_tqdm
