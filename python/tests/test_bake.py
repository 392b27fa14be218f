"""Promises of `bake`."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import numpy
import pytest

import zero_kv
from support import PROGRAMS, lets_other_threads_run, number_rows, seeded, started, text_rows


@pytest.mark.parametrize("rows_of", [number_rows, text_rows])
def test_any_bytes_are_read_back_unchanged(rows_of: Any, tmp_path: pathlib.Path) -> None:
    rows = rows_of(seeded(f"bake {rows_of.__name__}"), 20_000)
    rows.update({key: b'"quoted", and\r\nmore\0' for key in list(rows)[:100]})
    report = zero_kv.bake(rows, tmp_path / "table.db")
    assert report.rows == report.rows_read == len(rows)
    assert report.values_len_bytes == sum(map(len, rows.values()))
    table = zero_kv.open(tmp_path / "table.db")
    assert dict(table.items()) == rows
    assert (report.digest, report.key_type) == (table.digest, table.key_type)
    assert report.file_len_bytes == (tmp_path / "table.db").stat().st_size


def test_bake_writes_the_same_file_as_the_command(tmp_path: pathlib.Path) -> None:
    rows = {key: f"value {key}" for key in range(0, 30_000, 3)}
    (tmp_path / "rows.csv").write_text("".join(f"{key},{value}\n" for key, value in rows.items()))
    subprocess.run([PROGRAMS / "baker", "-o", tmp_path / "a.db", tmp_path / "rows.csv"], check=True, capture_output=True)
    zero_kv.bake(rows, tmp_path / "b.db")
    assert (tmp_path / "a.db").read_bytes() == (tmp_path / "b.db").read_bytes()


def test_rows_of_every_shape_give_the_same_table(tmp_path: pathlib.Path) -> None:
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    rows = {f"key {number}": b"value %d" % number for number in range(20_000)}
    columns = {"other": list(range(20_000)), "id": list(rows), "bytes": list(rows.values())}
    arrow = pyarrow.table(columns)
    named = {"key": "id", "value": "bytes"}
    shapes: list[tuple[Any, dict[str, Any]]] = [
        (rows, {}),
        (rows.items(), {}),
        (list(map(list, rows.items())), {}),
        (((key, memoryview(value)) for key, value in rows.items()), {}),
        (pandas.DataFrame(columns), named),
        (pandas.DataFrame(columns)[["id", "bytes"]], {}),
        (pandas.DataFrame(columns)[["bytes", "id"]], {"key": "id"}),
        (pandas.Series(list(rows.values()), index=list(rows)), {}),
        (polars.DataFrame(columns), named),
        (arrow, named),
        (arrow.to_batches()[0], named),
        (arrow.select(["id", "bytes"]).to_reader(1000), {"value": "bytes"}),
    ]
    digests = {zero_kv.bake(shape, tmp_path / "table.db", **options).digest for shape, options in shapes}
    assert len(digests) == 1
    assert dict(zero_kv.open(tmp_path / "table.db").items()) == {key.encode(): value for key, value in rows.items()}


def test_rows_of_a_numpy_array_are_stored_as_their_bytes(tmp_path: pathlib.Path) -> None:
    keys = numpy.arange(1000, dtype=numpy.uint64)
    vectors = numpy.arange(8000, dtype=numpy.float32).reshape(1000, 8)
    zero_kv.bake(zip(keys, vectors, strict=True), tmp_path / "table.db")
    values, found = zero_kv.open(tmp_path / "table.db").get_many(keys, dtype=(numpy.float32, 8))
    assert found.all() and (values == vectors).all()
    # A NumPy integer is stored as its 8 bytes, not as that number of zeros. A strided slice is stored without the items
    # between its items.
    zero_kv.bake([(1, numpy.int64(5)), (2, vectors[0, ::2])], tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    assert table[1] == (5).to_bytes(8, sys.byteorder) and table[2] == vectors[0, ::2].tobytes()


@pytest.mark.parametrize(
    ("row", "kind", "message"),
    [
        ((7.5, b""), TypeError, "the key is of type float, where int, bytes or str was expected"),
        (("7", b""), zero_kv.KeyKind, "the key is of kind bytes, where u64 were expected"),
        ((-7, b""), OverflowError, "the key is -7, where 0 to"),
        ((7, "\ud800"), zero_kv.BakeFailed, "'utf-8' codec can't encode character"),
        ((7, 7), TypeError, "the value is of type int, where bytes, str or"),
        ((7, None), TypeError, "the value is of type NoneType"),
        ((7,), TypeError, "the row has 1 items, where a key and a value were expected"),
        ("ab", TypeError, "the row is of type str, where a pair was expected"),
        ((3, b""), zero_kv.BakeFailed, "key 3 is already on row 4"),
    ],
)
def test_bad_rows_are_reported_by_number_and_no_file_is_written(
    row: Any, kind: type[Exception], message: str, tmp_path: pathlib.Path
) -> None:
    rows: list[Any] = [(number, b"value") for number in range(10_000)]
    rows[7000] = row
    with pytest.raises(kind, match=f"rows:7001: {message}"):
        zero_kv.bake(rows, tmp_path / "table.db")
    assert os.listdir(tmp_path) == []


def test_an_exception_of_the_rows_is_raised_unchanged(tmp_path: pathlib.Path) -> None:
    class Broken(Exception):
        pass

    def rows() -> Any:
        for number in range(10_000):
            yield number, b""
        raise Broken("no more")

    with pytest.raises(Broken, match="no more"):
        zero_kv.bake(rows(), tmp_path / "table.db")
    assert os.listdir(tmp_path) == []


def test_duplicates_are_rejected_or_one_is_kept(tmp_path: pathlib.Path) -> None:
    path, rows = tmp_path / "table.db", [(1, "first"), (2, "other"), (1, "last")]
    with pytest.raises(zero_kv.BakeFailed, match="rows:3: key 1 is already on row 1"):
        zero_kv.bake(rows, path)
    for which in ("first", "last"):
        assert zero_kv.bake(rows, path, duplicates=which).duplicates_dropped == 1
        assert zero_kv.open(path)[1] == which.encode()
    with pytest.raises(ValueError, match='duplicates is "any", where "error", "first" or "last" was expected'):
        zero_kv.bake(rows, path, duplicates="any")


def test_keys_can_be_decimal_text_and_rows_can_be_added_to_an_old_table(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake([("07", "seven"), (b"8", "eight"), (9, "nine")], path, keys="u64")
    assert list(zero_kv.open(path)) == [7, 8, 9]
    zero_kv.bake({8: "acht", 10: "zehn"}, path, base=path)
    assert dict(zero_kv.open(path).items()) == {7: b"seven", 8: b"acht", 9: b"nine", 10: b"zehn"}
    zero_kv.bake([], path, allow_empty=True)
    assert len(zero_kv.open(path)) == 0
    with pytest.raises(zero_kv.BakeFailed, match='rows:2: the key is "seven" where an unsigned 64-bit decimal'):
        zero_kv.bake([("7", ""), ("seven", "")], path, keys="u64")


def test_ambiguous_columns_must_be_named(tmp_path: pathlib.Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1], "b": ["x"], "c": ["y"]})
    for options, message in [
        ({}, r"the columns are \['a', 'b', 'c'\]: choose with key and value"),
        ({"key": "a"}, "choose with key and value"),
        ({"key": "d", "value": "b"}, "key is 'd', where one of the columns was expected"),
    ]:
        with pytest.raises(ValueError, match=message):
            zero_kv.bake(frame, tmp_path / "table.db", **options)
    with pytest.raises(TypeError, match="key, value, ranges, and cidr name columns, which an object of type dict does not have"):
        zero_kv.bake({1: b""}, tmp_path / "table.db", key="a")
    with pytest.raises(TypeError, match="rows are the path"):
        zero_kv.bake("table.csv", tmp_path / "table.db")
    with pytest.raises(FileNotFoundError):
        zero_kv.bake({1: b""}, tmp_path / "no" / "table.db")


def test_other_threads_run_during_a_bake(tmp_path: pathlib.Path) -> None:
    rows = [(number, b"value" * 8) for number in range(300_000)]
    assert lets_other_threads_run(lambda: zero_kv.bake(rows, tmp_path / "table.db"))


def test_ctrl_c_stops_a_bake(tmp_path: pathlib.Path) -> None:
    """The signal arrives while an iterator yields rows without end."""
    script = """
import itertools, sys, zero_kv
def rows():
    for number in itertools.count():
        if number == 50_000:
            print("begun", flush=True)
        yield number, b"value"
try:
    zero_kv.bake(rows(), sys.argv[1])
except KeyboardInterrupt:
    print("stopped")
"""
    command = [sys.executable, "-c", script, tmp_path / "table.db"]
    with started(command) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0 and os.listdir(tmp_path) == []


def test_a_table_that_looks_like_a_failed_export_does_not_replace_a_good_one(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    rows = {key: b"value" for key in range(10)}
    zero_kv.bake(rows, path)
    for bad, allowed, option in [
        ({}, {"allow_empty": True}, "allow_empty"),
        ({"key": b"value"}, {"allow_key_type_change": True}, "allow_key_type_change"),
        ({1: b"value"}, {"max_shrink_percent": 90}, "max_shrink_percent"),
        ({1: b"value"}, {"min_rows": 1}, "min_rows"),
    ]:
        refused = {"max_shrink_percent": 50} if option == "max_shrink_percent" else {}
        refused = {"min_rows": 2} if option == "min_rows" else refused
        with pytest.raises(zero_kv.BakeFailed, match=option):
            zero_kv.bake(bad, path, **refused)
        assert len(zero_kv.open(path)) == len(rows)
        zero_kv.bake(bad, path, **allowed)
        assert len(zero_kv.open(path)) == len(bad)
        zero_kv.bake(rows, path, allow_key_type_change=True)


def test_a_compact_table_has_the_same_rows_in_a_smaller_file(tmp_path: pathlib.Path) -> None:
    rows, paths = number_rows(seeded("compact"), 5000), [tmp_path / f"{layout}.db" for layout in ("fast", "compact")]
    for path in paths:
        zero_kv.bake(rows, path, layout=path.stem)
    fast, compact = map(zero_kv.open, paths)
    assert dict(compact.items()) == dict(fast.items()) == rows
    keys = [*list(rows)[:300], 0, 2**64 - 1]
    assert compact.get_many(keys) == fast.get_many(keys)
    assert [compact.floor(key) for key in keys] == [fast.floor(key) for key in keys]
    assert paths[1].stat().st_size + 20 * len(rows) < paths[0].stat().st_size
    assert zero_kv.bake({}, tmp_path / "both.db", base=paths[1], layout="fast").rows == len(rows)
    with pytest.raises(zero_kv.BakeFailed, match="keys are bytes, where the compact layout requires numbers.*layout"):
        zero_kv.bake({b"key": b""}, tmp_path / "table.db", layout="compact")
    with pytest.raises(ValueError, match='layout is "small", where "fast" or "compact" was expected'):
        zero_kv.bake(rows, tmp_path / "table.db", layout="small")
