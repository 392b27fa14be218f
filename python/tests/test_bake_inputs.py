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

COUNT = 20_000
IDS = numpy.arange(COUNT, dtype=numpy.uint64)
MATRIX = numpy.arange(COUNT * 4, dtype=numpy.float32).reshape(COUNT, 4)
DAY = datetime.date(2024, 2, 29)


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
    types = None if name in ("arrays", "lists of arrays") or "List" not in name and "pandas" not in name else {"vector": "list(f32,4)"}
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
    ({1: b"x"}, {"key": "id"}, "leave them out, or pass a DataFrame"),
    ((IDS, MATRIX[:-1]), {}, "pass arrays of the same length"),
    ((IDS[:2], numpy.zeros((2, 3, 4))), {}, "call values.reshape(len(keys), -1)"),
    ((IDS[:2], numpy.array([["a"], ["b"]])), {}, 'convert them, as in values.astype("float32")'),
    ((IDS[:2], MATRIX[:2]), {"key": "id"}, "leave them out"),
    (pandas.DataFrame({"a": [1], "b": [2], "c": [3]}), {}, "value can be a list of names, and typed=True bakes all columns"),
    (polars.LazyFrame({"a": [1], "b": [2], "c": [3]}), {}, "choose with key and value"),
    (pyarrow.table({"a": [1], "b": [{"c": 1}]}), {}, "convert it, or leave it out"),
    (pyarrow.table({"a": [1], "b": pyarrow.array([[1.0, None]])}), {}, "fill it, or drop the row"),
    (iter([pyarrow.record_batch({"a": [1], "b": ["x"]}), 7]), {}, "select these columns in each batch"),
    ("table.csv", {}, "bake text files with the command baker"),
]


@pytest.mark.parametrize(("rows", "options", "remedy"), REJECTED)
def test_a_rejection_names_the_remedy(rows: Any, options: dict[str, Any], remedy: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as raised:
        zero_kv.bake(rows, tmp_path / "table.db", **options)
    assert remedy in str(raised.value)
    assert os.listdir(tmp_path) == []


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
