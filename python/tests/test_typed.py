"""Typed tables: baking, rows as mappings, and columns as arrays."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import pickle
import random
from typing import Any

import numpy
import pytest

import zero_kv
from support import BlockingCalls, lets_other_threads_run, seeded, serving

pyarrow = pytest.importorskip("pyarrow")

UTC = datetime.timezone.utc
TYPES = {
    "flag": "bool",
    "small": "i8?",
    "count": "u64",
    "price": "f32?",
    "score": "f64",
    "name": "text?",
    "blob": "bytes",
    "day": "date?",
    "at": "timestamp(us)",
    "at_ms": "timestamp(ms)?",
    "cost": "decimal(10,2)?",
    "long": "decimal(38,3)",
    "pair": "list(f32,2)",
    "tags": "list(i16)?",
    "days": "list(date)",
    "words": "list(text)?",
}


def random_row(rng: random.Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.3 else value

    day = datetime.date(1900, 1, 1) + datetime.timedelta(days=rng.randrange(100_000))
    at = datetime.datetime(1950, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=rng.randrange(10**16))
    return {
        "flag": rng.random() < 0.5,
        "small": maybe(rng.randrange(-128, 128)),
        "count": rng.getrandbits(64),
        "price": maybe(float(numpy.float32(rng.random()))),
        "score": rng.uniform(-1e300, 1e300),
        "name": maybe("".join(rng.choices("aäß🦀", k=rng.randrange(5)))),
        "blob": rng.randbytes(rng.randrange(9)),
        "day": maybe(day),
        "at": at,
        "at_ms": maybe(at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "cost": maybe(decimal.Decimal(rng.randrange(-(10**10) + 1, 10**10)).scaleb(-2)),
        "long": decimal.Decimal(f"{rng.randrange(-(10**38) + 1, 10**38)}E-3"),
        "pair": [float(numpy.float32(rng.random())) for _ in range(2)],
        "tags": maybe([rng.randrange(-9, 9) for _ in range(rng.randrange(4))]),
        "days": [day] * rng.randrange(3),
        "words": maybe(["".join(rng.choices('aä🦀"\\\n\x01', k=rng.randrange(4))) for _ in range(rng.randrange(4))]),
    }


def random_rows(rng: random.Random, count: int = 300) -> dict[int, dict[str, Any]]:
    return {rng.getrandbits(32): random_row(rng) for _ in range(count)}


@pytest.fixture(params=["open", "copy", "direct"])
def typed(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    rows = random_rows(seeded("typed"))
    zero_kv.bake(rows, tmp_path / "typed.db", types=TYPES, key="id")
    if request.param == "direct":
        with serving(tmp_path / "typed.db") as server:
            yield zero_kv.Direct(server.path), rows
    else:
        yield zero_kv.open(tmp_path / "typed.db", memory="map" if request.param == "open" else "copy"), rows


def test_a_row_is_a_mapping_of_columns(typed: Any) -> None:
    table, rows = typed
    assert dict(table.items()) == rows
    assert table.get_many(list(rows)) == list(rows.values()) and table.get(2**40) is None
    key, expected = next(iter(rows.items()))
    row = table[key]
    assert isinstance(row, zero_kv.TypedRow) and row == expected and dict(row) == expected and table.get(key) == row
    assert list(row) == list(row.keys()) == list(TYPES) and len(row) == len(TYPES)
    assert list(row.values()) == list(expected.values()) and list(row.items()) == list(expected.items())
    assert "price" in row and "nothing" not in row and 7 not in row
    assert row.get("nothing", 5) == 5 and row.get("count") == expected["count"]
    with pytest.raises(KeyError, match="nothing"):
        row["nothing"]
    with pytest.raises(TypeError):
        row["price"] = 1.0  # type: ignore[index]
    assert row != {} and row != 5 and row != table[list(rows)[1]]
    assert repr(row).startswith("<zero_kv.TypedRow {\"flag\": ") and pickle.loads(pickle.dumps(row)) == row
    assert table.floor(key) == (key, expected) and table.floor_many([key]) == [(key, expected)]
    assert (key, expected) in table.range(key, key + 1) and expected in table.values()
    match row:
        case {"count": count}:
            assert count == expected["count"]
        case _:
            pytest.fail("a row does not match a mapping pattern")


def test_a_schema_maps_names_to_types(typed: Any) -> None:
    table, _ = typed
    schema = table.schema()
    assert isinstance(schema, zero_kv.Schema) and dict(schema) == TYPES == schema and list(schema) == list(TYPES)
    assert schema.key_name == "id" and schema["price"] == "f32?" and "id" not in schema and len(schema) == len(TYPES)
    assert list(schema.items()) == list(TYPES.items()) and schema.get("x") is None
    assert pickle.loads(pickle.dumps(schema)) == schema and hash(schema) == hash(table.schema())
    assert repr(schema).startswith("<zero_kv.Schema flag:bool,small:i8?,")
    with pytest.raises(KeyError):
        schema["id"]


def test_a_table_without_columns_has_no_schema(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: "one"}, tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    assert table.schema() is None and table[1] == b"one"
    with pytest.raises(zero_kv.NotTyped, match="values without columns"):
        table.columns([1], ["a"])


def asked_keys(rows: dict[int, Any], rng: random.Random) -> list[int]:
    return rng.choices([*rows, *(rng.getrandbits(40) for _ in range(20))], k=200)


def test_columns_of_one_type_are_a_matrix(tmp_path: pathlib.Path) -> None:
    rng = seeded("matrix")
    for kind in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"):
        dtype = numpy.dtype(kind[0] + str(int(kind[1:]) // 8))
        types = {"a": kind, "b": "bool", "c": kind + "?", "d": f"list({kind},3)"}
        value = (lambda: rng.random()) if kind[0] == "f" else (lambda: rng.randrange(128))
        rows = {
            key: {"a": value(), "b": True, "c": None if rng.random() < 0.3 else value(), "d": [value() for _ in range(3)]}
            for key in range(500)
        }
        zero_kv.bake(rows, tmp_path / "table.db", types=types)
        table, keys = zero_kv.open(tmp_path / "table.db"), rng.choices(range(600), k=300)
        found = table.columns(numpy.array(keys, numpy.uint64), ["d", "c", "a"], fill=7)
        expected = [
            [*rows[key]["d"], 7 if rows[key]["c"] is None else rows[key]["c"], rows[key]["a"]] if key in rows else [7] * 5
            for key in keys
        ]
        assert found.dtype == dtype and found.flags.c_contiguous and found.flags.writeable
        assert (found == numpy.array(expected, dtype)).all()
        out = numpy.empty((300, 5), dtype)
        assert table.columns(keys, ["d", "c", "a"], fill=7, out=out) is out and (out == found).all()
        assert table.columns([], ["a"]).shape == (0, 1)
        if kind[0] == "f":
            default = table.columns(keys, ["d", "c", "a"])
            assert (numpy.isnan(default) == (numpy.array(expected, dtype) == 7)).all()
        else:
            # Only values that are null need a fill.
            full = [key for key, row in rows.items() if row["c"] is not None]
            assert table.columns(full, ["c"])[:, 0].tolist() == [rows[key]["c"] for key in full]
            null = next(key for key, row in rows.items() if row["c"] is None)
            with pytest.raises(ValueError, match=f"column 'c' has no value for 1 of 2 keys, .* {kind} has .* pass fill, as in fill="):
                table.columns([full[0], null], ["c"])
            with pytest.raises(ValueError, match=r"the table does not have 1 of 2 keys.*pass fill"):
                table.columns([1, 600], ["a"])
            with pytest.raises(ValueError, match=f"fill is 1.5, where a number of type {dtype} was expected"):
                table.columns([1], ["a"], fill=1.5)


def test_an_array_that_does_not_match_the_matrix_is_rejected(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (1.0, 2.0, "x")}, tmp_path / "table.db", types={"a": "f32", "b": "f32", "c": "text"})
    table = zero_kv.open(tmp_path / "table.db")
    right = numpy.zeros((1, 2), numpy.float32)
    frozen = right.copy()
    frozen.setflags(write=False)
    for out, message in (
        (numpy.zeros((2, 2), numpy.float32), r"has the shape \[2, 2\]"),
        (numpy.zeros(2, numpy.float32), r"has the shape \[2\]"),
        (numpy.zeros((1, 2), numpy.float64), "has the dtype float64"),
        (numpy.zeros((1, 2), ">f4"), "has the (other order of bytes|dtype >f4)"),
        (numpy.zeros((1, 4), numpy.float32)[:, ::2], "is not in C order"),
        (frozen, "is read-only"),
        ([[0.0, 0.0]], "is of type list"),
    ):
        expected = r"where a writable array of float32 with shape \(1, 2\) in C order was expected"
        with pytest.raises(ValueError, match=f"out {message}, {expected}"):
            table.columns([1], ["a", "b"], out=out)
    with pytest.raises(ValueError, match="out is given, where the columns have several types"):
        table.columns([1], ["a", "c"], out=right)
    with pytest.raises(ValueError, match="fill and out are for format=\"numpy\""):
        table.columns([1], ["a"], fill=0, format="arrow")
    with pytest.raises(ValueError, match="format is \"torch\""):
        table.columns([1], ["a"], format="torch")
    with pytest.raises(ValueError, match='the table has no column "z": its columns are a, b, c'):
        table.columns([1], ["z"])
    with pytest.raises(ValueError, match='two columns have the name "a"'):
        table.columns([1], ["a", "a"])
    with pytest.raises(TypeError, match="columns is a str"):
        table.columns([1], "a")
    with pytest.raises(TypeError, match="the name of a column is of type int"):
        table.columns([1], [1])
    with pytest.raises(zero_kv.KeyKind):
        table.columns([b"a"], ["a"])
    with pytest.raises(ValueError):
        table.columns([1], [])


def test_columns_of_several_types_are_arrays(typed: Any) -> None:
    table, rows = typed
    keys = asked_keys(rows, seeded("arrays"))
    found = table.columns(keys, fill={"small": -1, "count": 0, "flag": False, "name": ""})
    assert list(found) == list(TYPES)
    fills: dict[str, Any] = {"small": -1, "count": 0, "flag": False, "name": ""}
    for name, array in found.items():
        assert len(array) == len(keys), name
        for key, value in zip(keys, array, strict=True):
            expected = rows[key][name] if key in rows else None
            if expected is None:
                expected = fills.get(name)
            if isinstance(value, numpy.ndarray) and expected is None:
                assert numpy.isnan(value).all(), name
            elif isinstance(value, numpy.ndarray):
                assert value.tolist() == expected, name
            elif isinstance(value, numpy.datetime64):
                item = value.item()
                if expected is None:
                    assert numpy.isnat(value)
                else:
                    assert item == (expected.replace(tzinfo=None) if name != "day" else expected), name
            elif isinstance(value, numpy.floating):
                assert value == expected or (expected is None and numpy.isnan(value)), name
            else:
                assert value == expected, name
    assert found["price"].dtype == numpy.float32 and found["day"].dtype == "datetime64[D]"
    assert found["at_ms"].dtype == "datetime64[ms]" and found["pair"].shape == (len(keys), 2)
    full = [key for key, row in rows.items() if row["small"] is not None]
    assert table.columns(full, ["small", "name"])["small"].tolist() == [rows[key]["small"] for key in full]
    with pytest.raises(ValueError, match="column 'small' has no value for .* keys, .* where i8 has no value for that"):
        table.columns(list(rows), ["small", "name"])
    with pytest.raises(ValueError, match="column 'flag' has no value for 1 of 1 keys, .* where bool has no value for that"):
        table.columns([2**40], ["flag", "name"])
    with pytest.raises(ValueError, match="fill has the column 'nothing'"):
        table.columns(keys, ["price", "name"], fill={"nothing": 1})


def test_fill_has_a_value_for_each_column_and_keeps_stored_nan(tmp_path: pathlib.Path) -> None:
    nan = math.nan
    rows = {1: (nan, 1.5, 7, True, "a"), 2: (None, None, None, None, None)}
    types = {"x": "f32?", "y": "f32?", "n": "i32?", "flag": "bool?", "name": "text?"}
    zero_kv.bake(rows, tmp_path / "table.db", types=types)
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as client:
        for table in (zero_kv.open(tmp_path / "table.db"), client, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))):
            for keys in ([1, 2, 3], pyarrow.array([1, 2, 3])):

                def matrix(names: list[str], fill: Any) -> Any:
                    return table.columns(keys, names, fill=fill)  # noqa: B023

                def equal(found: Any, expected: list[Any]) -> bool:
                    return numpy.array_equal(found, numpy.array(expected, found.dtype), equal_nan=True)

                assert equal(matrix(["x", "y"], 0), [[nan, 1.5], [0, 0], [0, 0]])
                assert equal(matrix(["x", "y"], None), [[nan, 1.5], [nan, nan], [nan, nan]])
                assert equal(matrix(["x", "y"], {"y": -1}), [[nan, 1.5], [nan, -1], [nan, -1]])
                assert equal(matrix(["y", "x"], {"y": -1, "x": 2}), [[1.5, nan], [-1, 2], [-1, 2]])
                out = numpy.empty((3, 2), numpy.float32)
                assert table.columns(keys, ["x", "y"], fill={"y": 0}, out=out) is out and equal(out[:, 1], [1.5, 0, 0])
                assert equal(matrix(["n"], {"n": -1}), [[7], [-1], [-1]])
                mixed = matrix(["x", "n", "flag", "name"], {"n": 0, "flag": False})
                assert equal(mixed["x"], [nan, nan, nan]) and mixed["n"].tolist() == [7, 0, 0]
                assert mixed["flag"].tolist() == [True, False, False] and mixed["name"].tolist() == ["a", None, None]
                mixed = matrix(["x", "n", "name"], 0)
                assert equal(mixed["x"], [nan, 0, 0]) and mixed["n"].tolist() == [7, 0, 0]
                for fill, message in (
                    ({"n": 1.5}, "fill of column 'n' is 1.5, where a value of type int32"),
                    ({"n": nan}, "fill of column 'n' is nan"),
                    ({"n": 2**40}, "fill of column 'n' is 1099511627776"),
                    ({"other": 1}, "fill has the column 'other', which is not one of the requested columns"),
                    (None, "column 'n' has no value for 2 of 3 keys"),
                ):
                    for names in (["n"], ["n", "name"]):
                        with pytest.raises(ValueError, match=message):
                            matrix(names, fill)
            with pytest.raises(ValueError, match="fill and out are for format"):
                table.columns([1], ["n"], fill={"n": 0}, format="pandas")


def test_timestamps_without_a_zone_have_no_zone_in_frames(tmp_path: pathlib.Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    at = pandas.to_datetime(["2026-11-29T12:00:00.000000", "2026-11-30T00:00:00.000001"])
    events = pandas.DataFrame({"id": [1, 2], "at": at})
    zero_kv.bake(events, tmp_path / "table.db", typed=True)
    table = zero_kv.open(tmp_path / "table.db")
    frame = table.columns([1, 2], format="pandas")
    assert frame.merge(events, on="at")["id"].tolist() == [1, 2]
    assert table.columns([1, 2], format="polars")["at"].to_list() == at.to_pydatetime().tolist()
    batch = table.columns([1, 2], format="arrow")
    assert batch.schema.field("at").type.tz is None
    assert (table.columns([1, 2])["at"] == at.to_numpy()).all()
    # A row has times of UTC, as Python's datetime without a zone means local time.
    assert table[1]["at"] == datetime.datetime(2026, 11, 29, 12, tzinfo=UTC)
    zero_kv.bake({1: ([at[0]],)}, tmp_path / "table.db", types={"times": "list(timestamp(us))"})
    times = zero_kv.open(tmp_path / "table.db").columns([1], format="arrow").column(0)
    assert times.type.value_type == pyarrow.timestamp("us")


def same(found: Any, expected: Any) -> bool:
    return found == expected or (isinstance(found, float) and isinstance(expected, float) and math.isnan(found))


def test_arrow_batches_and_frames_have_nulls(typed: Any) -> None:
    table, rows = typed
    keys = asked_keys(rows, seeded("arrow"))
    expected = {name: [rows[key][name] if key in rows else None for key in keys] for name in TYPES}
    batch = table.columns(keys, format="arrow")
    batch.validate(full=True)
    # Timestamps of batches have no zone.
    for name in ("at", "at_ms"):
        expected[name] = [value and value.replace(tzinfo=None) for value in expected[name]]
    assert isinstance(batch, pyarrow.RecordBatch) and batch.to_pydict() == expected
    assert table.columns(keys, ["name", "price"], format="arrow").schema.names == ["name", "price"]
    polars = pytest.importorskip("polars")
    frame = table.columns(keys, ["count", "price", "name", "tags"], format="polars")
    assert isinstance(frame, polars.DataFrame)
    assert frame.to_dict(as_series=False) == {name: expected[name] for name in ["count", "price", "name", "tags"]}
    pandas = pytest.importorskip("pandas")
    frame = table.columns(keys, ["count", "price", "name"], format="pandas")
    assert isinstance(frame, pandas.DataFrame) and frame["count"].dtype == pandas.ArrowDtype(pyarrow.uint64())
    assert [None if value is pandas.NA else value for value in frame["name"]] == expected["name"]
    empty = table.columns([], format="arrow")
    empty.validate(full=True)
    assert empty.num_rows == 0 and empty.schema == batch.schema


def test_arrow_and_polars_keys_select_rows(typed: Any) -> None:
    table, rows = typed
    asked: list[int | None] = [*list(rows)[:50], 2**40, None, *list(rows)[:3], None]
    keys = pyarrow.array(asked, pyarrow.uint64())
    expected = [rows[key]["name"] if key in rows else None for key in asked]
    for many in (keys, pyarrow.chunked_array([keys[:9], keys[9:]]), keys.dictionary_encode()):
        assert table.columns(many, ["name"], format="arrow").column(0).to_pylist() == expected
        assert table.columns(many, ["name"])["name"].tolist() == expected
        scores = table.columns(many, ["score"], out=numpy.empty((len(asked), 1)))
        for key, score in zip(asked, scores[:, 0], strict=True):
            assert score == rows[key]["score"] if key in rows else numpy.isnan(score)
        assert table.columns(many, ["count"], fill=3)[-1, 0] == 3
        with pytest.raises(ValueError, match="pass fill"):
            table.columns(many, ["count"])
    assert table.columns(keys[:50], ["count"]).tolist() == [[rows[key]["count"]] for key in list(rows)[:50]]
    polars = pytest.importorskip("polars")
    assert table.columns(polars.Series(asked, dtype=polars.UInt64), ["name"])["name"].tolist() == expected


def test_byte_keys_select_rows(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"a": (1.5,), "bb": (2.5,)}, tmp_path / "table.db", types={"x": "f64"})
    table = zero_kv.open(tmp_path / "table.db")
    for keys in (["bb", "c", b"a"], pyarrow.array(["bb", "c", "a"]), pyarrow.array(["bb", None, "a"])):
        assert str(table.columns(keys, ["x"])[:, 0].tolist()) == "[2.5, nan, 1.5]"


def as_of(rows: dict[Any, Any], key: Any, limit: Any, is_floor: bool) -> Any:
    """Return the key of the row that `floor_columns` or `ceiling_columns` finds."""
    if key is None:
        return None
    if is_floor:
        return max((other for other in rows if other <= key and (limit is None or other >= limit)), default=None)
    return min((other for other in rows if other >= key and (limit is None or other <= limit)), default=None)


@pytest.mark.parametrize("keys_are", ["numbers", "bytes"])
def test_columns_of_the_nearest_rows_are_those_of_a_model(keys_are: str, tmp_path: pathlib.Path) -> None:
    rng = seeded(f"as of {keys_are}")
    make = (lambda: rng.randrange(1000)) if keys_are == "numbers" else (lambda: rng.randbytes(2))
    rows: dict[Any, Any] = {make(): (rng.random(), rng.randrange(100), rng.choice([None, "x"])) for _ in range(200)}
    zero_kv.bake(rows, tmp_path / "table.db", types={"x": "f64", "n": "i32", "name": "text?"})
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as client:
        tables = [zero_kv.open(tmp_path / "table.db"), client, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))]
        for round in range(20):
            keys: list[Any] = [make() for _ in range(rng.randrange(60))]
            limits = None if round % 2 else [make() for _ in keys]
            forms: list[tuple[Any, Any]] = [(keys, limits), (tuple(keys), limits), (iter(keys), limits)]
            if keys_are == "numbers":
                forms.append((numpy.array(keys, numpy.uint32), None if limits is None else numpy.array(limits, "u4")))
                mask = [rng.random() < 0.2 for _ in keys]
                forms.append((numpy.ma.array(keys, "i8", mask=mask), limits))
            kind = pyarrow.uint64() if keys_are == "numbers" else pyarrow.binary()
            nulls = [None if rng.random() < 0.2 else key for key in keys]
            forms.append((pyarrow.array(nulls, kind), None if limits is None else pyarrow.array(limits, kind)))
            table, is_floor = tables[round % 3], rng.random() < 0.5
            method = table.floor_columns if is_floor else table.ceiling_columns
            for given, limit in forms:
                asked = nulls if hasattr(given, "null_count") else given.tolist() if hasattr(given, "mask") else keys
                expected = [
                    as_of(rows, key, None if limits is None else limits[position], is_floor)
                    for position, key in enumerate(asked)
                ]
                if isinstance(given, pyarrow.Array):
                    found_keys, batch = method(given, ["n", "name"], limit=limit, format="arrow")
                    assert found_keys.to_pylist() == expected
                    assert batch.to_pylist() == [
                        {"n": None, "name": None} if key is None else {"n": rows[key][1], "name": rows[key][2]}
                        for key in expected
                    ]
                    continue
                found_keys, columns, found = method(given, ["name", "x"], limit=limit)
                missing = 0 if keys_are == "numbers" else None
                assert found_keys.tolist() == [missing if key is None else key for key in expected]
                assert found.tolist() == [key is not None for key in expected]
                assert columns["name"].tolist() == [None if key is None else rows[key][2] for key in expected]
                assert numpy.array_equal(
                    columns["x"], [math.nan if key is None else rows[key][0] for key in expected], equal_nan=True
                )
                # An iterator has been read.
                if not hasattr(given, "__next__"):
                    _, matrix, _ = method(given, ["n"], limit=limit, fill=-1)
                    assert matrix[:, 0].tolist() == [-1 if key is None else rows[key][1] for key in expected]


def test_columns_of_nearest_rows_are_frames_and_reject_wrong_arguments(tmp_path: pathlib.Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    zero_kv.bake({10: (1.5, 7), 20: (2.5, 8)}, tmp_path / "table.db", types={"x": "f64", "n": "i32"})
    zero_kv.bake({10: b"x"}, tmp_path / "bytes.db")
    with serving(tmp_path / "table.db") as server, serving(tmp_path / "bytes.db") as other:
        for table, untyped in (
            (zero_kv.open(tmp_path / "table.db"), zero_kv.open(tmp_path / "bytes.db")),
            (zero_kv.Client(server.path), zero_kv.Client(other.path)),
            (BlockingCalls(lambda: zero_kv.AsyncClient(server.path)), BlockingCalls(lambda: zero_kv.AsyncClient(other.path))),
        ):
            keys, frame = table.floor_columns([5, 15], format="pandas")
            assert isinstance(keys, pandas.Series) and isinstance(frame, pandas.DataFrame)
            assert keys.isna().tolist() == [True, False] and frame["n"].dtype == pandas.ArrowDtype(pyarrow.int32())
            keys, frame = table.ceiling_columns([15, 25], ["n"], format="polars")
            assert isinstance(keys, polars.Series) and keys.to_list() == [20, None] and frame["n"].to_list() == [8, None]
            out = numpy.empty((2, 1))
            assert table.floor_columns([15, 25], ["x"], out=out)[1] is out and out.tolist() == [[1.5], [2.5]]
            keys, columns, found = table.floor_columns([], ["x", "n"])
            assert keys.shape == found.shape == (0,) and columns["n"].shape == (0,)
            for error, message, call in (
                (ValueError, "limit has 1 keys, where 2, one for each of the keys", lambda: table.floor_columns([1, 2], limit=[1])),
                (zero_kv.KeyKind, "limit has keys of kind", lambda: table.floor_columns([15], limit=["a"])),
                (ValueError, "limit is null for 1 keys", lambda: table.floor_columns([15], limit=pyarrow.nulls(1))),
                (ValueError, "column 'n' has no value|does not have 1 of 1 keys", lambda: table.floor_columns([5], ["n"])),
                (ValueError, 'no column "z"', lambda: table.floor_columns([15], ["z"])),
                (TypeError, "columns is a str", lambda: table.floor_columns([15], "n")),
                (ValueError, 'format is "torch"', lambda: table.floor_columns([15], format="torch")),
                (ValueError, "fill and out are for", lambda: table.floor_columns([15], fill=0, format="arrow")),
                (zero_kv.KeyKind, "", lambda: table.floor_columns(["a"])),
                (zero_kv.NotTyped, "", lambda: untyped.floor_columns([15])),
                (zero_kv.NotTyped, "", lambda: untyped.floor_columns([])),
            ):
                with pytest.raises(error, match=message):
                    call()


def test_other_libraries_use_a_matrix_without_a_copy(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (1.0, 2.0)}, tmp_path / "table.db", types={"a": "f32", "b": "f32"})
    matrix = zero_kv.open(tmp_path / "table.db").columns([1, 2], ["a", "b"])
    assert matrix.__dlpack_device__() == (1, 0)
    shared = numpy.from_dlpack(matrix)
    assert numpy.shares_memory(shared, matrix) and shared[0].tolist() == [1.0, 2.0]
    torch = pytest.importorskip("torch")
    tensor = torch.from_dlpack(matrix)
    tensor[0, 0] = 9.0
    assert matrix[0, 0] == 9.0


def test_other_threads_run_while_a_matrix_is_filled(tmp_path: pathlib.Path) -> None:
    zero_kv.bake(((key, (float(key),)) for key in range(100_000)), tmp_path / "table.db", types={"a": "f32"})
    table, keys = zero_kv.open(tmp_path / "table.db"), numpy.arange(3_000_000, dtype=numpy.uint64) % 100_000
    out = numpy.empty((len(keys), 1), numpy.float32)
    assert lets_other_threads_run(lambda: table.columns(keys, ["a"], out=out))


def test_arrow_rows_keep_their_types(tmp_path: pathlib.Path) -> None:
    rng = seeded("arrow rows")
    rows = random_rows(rng)
    arrow = {
        "id": pyarrow.array(list(rows), pyarrow.uint64()),
        **{name: pyarrow.array([row[name] for row in rows.values()]) for name in ("flag", "score", "name", "blob", "day", "tags", "days", "words")},
        "price": pyarrow.array([row["price"] for row in rows.values()], pyarrow.float32()),
        "at": pyarrow.array([row["at"] for row in rows.values()], pyarrow.timestamp("us", "UTC")),
        "at_ms": pyarrow.array([row["at_ms"] for row in rows.values()], pyarrow.timestamp("ms")),
        "cost": pyarrow.array([row["cost"] for row in rows.values()], pyarrow.decimal128(10, 2)),
        "pair": pyarrow.array([row["pair"] for row in rows.values()], pyarrow.list_(pyarrow.float32(), 2)),
        "word": pyarrow.array([row["name"] for row in rows.values()]).dictionary_encode(),
        "second": pyarrow.array([row["at"].replace(microsecond=0) for row in rows.values()], pyarrow.timestamp("s")),
    }
    whole = pyarrow.table(arrow)
    for given in (whole, whole.to_batches()[0], pyarrow.RecordBatchReader.from_batches(whole.schema, whole.to_batches(50)), whole[3:]):
        report = zero_kv.bake(given, tmp_path / "table.db", typed=True, types={"tags": "list(i16)?", "flag": "bool"})
        table = zero_kv.open(tmp_path / "table.db")
        assert report.rows == len(table) >= len(rows) - 3
        assert table.schema().key_name == "id" and table.schema()["flag"] == "bool" and table.schema()["tags"] == "list(i16)?"
        assert table.schema()["day"] == "date?" and table.schema()["cost"] == "decimal(10,2)?" and table.schema()["second"] == "timestamp(ms)?"
        for key, row in table.items():
            expected = rows[key] | {"word": rows[key]["name"], "second": rows[key]["at"].replace(microsecond=0)}
            assert row == {name: expected[name] for name in table.schema()}
    back = table.columns(list(rows)[3:], format="arrow")
    zero_kv.bake(back.append_column("id", pyarrow.array(list(rows)[3:])), tmp_path / "again.db", key="id", typed=True)
    assert dict(zero_kv.open(tmp_path / "again.db").items()) == dict(table.items())


def test_frames_become_typed_tables(tmp_path: pathlib.Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"id": [1, 2], "price": [1.5, 2.5], "name": ["a", None]}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        zero_kv.bake(frame, tmp_path / "table.db", key="id", typed=True)
        assert dict(zero_kv.open(tmp_path / "table.db").items()) == {
            1: {"price": 1.5, "name": "a"},
            2: {"price": 2.5, "name": None},
        }
        zero_kv.bake(frame[["price", "id"]], tmp_path / "table.db", key="id", types={"price": "f32"})
        assert dict(zero_kv.open(tmp_path / "table.db").schema()) == {"price": "f32"}


def test_a_base_is_merged_by_the_names_of_columns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake({1: (1, "a"), 2: (2, "b")}, path, types={"x": "i32", "y": "text"})
    zero_kv.bake({2: {"y": "B", "x": 20}}, path, base=path, typed=True)
    assert dict(zero_kv.open(path).items()) == {1: {"x": 1, "y": "a"}, 2: {"x": 20, "y": "B"}}
    zero_kv.bake({3: {"y": "c"}}, path, base=path, types={"z": "f32?", "y": "text"})
    assert dict(zero_kv.open(path).items()) == {
        1: {"z": None, "y": "a"},
        2: {"z": None, "y": "B"},
        3: {"z": None, "y": "c"},
    }
    zero_kv.bake({4: (4,)}, path, types={"x": "i32"})
    with pytest.raises(zero_kv.BakeFailed, match="cast=True"):
        zero_kv.bake({5: (5,)}, path, base=path, types={"x": "i64"})
    zero_kv.bake({5: (5,)}, path, base=path, types={"x": "i64"}, cast=True)
    assert dict(zero_kv.open(path).items()) == {4: {"x": 4}, 5: {"x": 5}}


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        ("i8", 128, zero_kv.BakeFailed, "out of range"),
        ("u8", -1, zero_kv.BakeFailed, "can't convert negative|out of range"),
        ("i32", 1.5, TypeError, "float"),
        ("f32", 1e300, zero_kv.BakeFailed, "too large for 32 bits"),
        ("f64", "x", TypeError, "str"),
        ("bool", 1, TypeError, "int"),
        ("text", b"x", TypeError, "the value is of type bytes, where str was expected"),
        ("bytes", "x", TypeError, "the value is of type str, where bytes was expected"),
        ("date", datetime.datetime(2026, 1, 1), TypeError, "the value is of type datetime"),
        ("date", "2026-02-30", zero_kv.BakeFailed, "where a date, such as"),
        ("timestamp(ms)", datetime.datetime(2026, 1, 1, 0, 0, 0, 1), zero_kv.BakeFailed, "not a whole number of ms"),
        ("timestamp(ns)", datetime.datetime(2900, 1, 1), zero_kv.BakeFailed, "not a whole number of ns of 64 bits"),
        ("timestamp", datetime.date(2026, 1, 1), TypeError, "the value is of type date"),
        ("decimal(3,1)", decimal.Decimal("100"), zero_kv.BakeFailed, "decimal number"),
        ("decimal(3,1)", decimal.Decimal("1.25"), zero_kv.BakeFailed, "decimal number"),
        ("decimal(3,1)", 1.5, TypeError, "where decimal.Decimal, int, or str was expected"),
        ("list(i8)", [1, 128], zero_kv.BakeFailed, "out of range"),
        ("list(i8)", "ab", TypeError, "where a list was expected"),
        ("list(f32,2)", [1.0], zero_kv.BakeFailed, "list"),
        ("list(f32)", [None], TypeError, "NoneType|float"),
        ("f32", None, zero_kv.BakeFailed, "where every row needs a value"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_rejected(
    tmp_path: pathlib.Path, kind: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=rf'rows:1: column "a".*({message})'):
        zero_kv.bake([(1, {"a": value})], tmp_path / "table.db", types={"a": kind})
    assert not (tmp_path / "table.db").exists()


def test_other_forms_of_cells_are_accepted(tmp_path: pathlib.Path) -> None:
    for kind, value, expected in [
        ("f32", 1, 1.0),
        ("f64", numpy.float32(1.5), 1.5),
        ("i64", numpy.int8(-3), -3),
        ("bool", numpy.bool_(True), True),
        ("date", "2026-11-21", datetime.date(2026, 11, 21)),
        ("date", 1, datetime.date(1970, 1, 2)),
        ("timestamp(ms)", 1500, datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp", "2026-11-21T01:00:00+01:00", datetime.datetime(2026, 11, 21, tzinfo=UTC)),
        ("timestamp", datetime.datetime(2026, 11, 21), datetime.datetime(2026, 11, 21, tzinfo=UTC)),
        ("timestamp(ns)", -1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("decimal(10,2)", 5, decimal.Decimal("5.00")),
        ("decimal(10,2)", "-0.5", decimal.Decimal("-0.50")),
        ("decimal(10,2)", decimal.Decimal("1E3"), decimal.Decimal("1000.00")),
        ("list(f32)", numpy.array([1.5, 2.5], numpy.float32), [1.5, 2.5]),
        ("list(i64)", numpy.array([1, 2], numpy.int16), [1, 2]),
        ("list(u8)", range(3), [0, 1, 2]),
        ("list(timestamp(ms))", [1000], [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ]:
        zero_kv.bake([(1, {"a": value})], tmp_path / "table.db", types={"a": kind})
        assert zero_kv.open(tmp_path / "table.db")[1]["a"] == expected, kind


def test_malformed_typed_rows_are_rejected(tmp_path: pathlib.Path) -> None:
    path, types = tmp_path / "table.db", {"a": "i32", "b": "text?"}
    with pytest.raises(zero_kv.BakeFailed, match="rows:1: the row has the column 'c', which the table does not have"):
        zero_kv.bake({1: {"a": 1, "c": 2}}, path, types=types)
    with pytest.raises(zero_kv.BakeFailed, match="rows:1: 3 cells, where the schema has 2 columns"):
        zero_kv.bake({1: (1, "x", 3)}, path, types=types)
    with pytest.raises(TypeError, match="rows:1: the value is of type bytes, where a mapping or a tuple"):
        zero_kv.bake({1: b"x"}, path, types=types)
    with pytest.raises(ValueError, match="the column \"a\": \"i31\" is not a type"):
        zero_kv.bake({1: (1,)}, path, types={"a": "i31"})
    with pytest.raises(ValueError, match="types are missing"):
        zero_kv.bake({1: (1,)}, path, typed=True)
    with pytest.raises(TypeError, match="key, value, ranges, and cidr name columns"):
        zero_kv.bake({1: (1,)}, path, types=types, value="v")
    with pytest.raises(ValueError, match="cast is given"):
        zero_kv.bake({1: b""}, path, cast=True)
    with pytest.raises(ValueError, match="the column 'x' was requested, where the columns are"):
        zero_kv.bake(pyarrow.table({"id": [1], "a": [2]}), path, key="x", typed=True)
    with pytest.raises(ValueError, match="the column 'a' has the Arrow type"):
        zero_kv.bake(pyarrow.table({"id": [1], "a": [{"b": 1}]}), path, typed=True)


def test_dates_that_python_does_not_have_are_errors_in_rows_and_values_in_arrays(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: (4_000_000, 2**62)}, tmp_path / "table.db", types={"day": "date", "at": "timestamp(ms)"})
    table = zero_kv.open(tmp_path / "table.db")
    for name in ("day", "at"):
        with pytest.raises(OverflowError, match="outside the years 1 to 9999"):
            table[1][name]
    assert table.columns([1])["day"].view("i8").tolist() == [4_000_000]
    assert table.columns([1])["at"].view("i8").tolist() == [2**62]


def test_a_new_generation_can_have_other_columns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake({1: (1.0,)}, path, types={"a": "f32"})
    with serving(path) as server:
        direct = zero_kv.Direct(server.path)
        assert direct.columns([1], ["a"]).tolist() == [[1.0]]
        old = direct.snapshot()
        zero_kv.bake({1: (2, 3.0)}, path, types={"b": "i64", "a": "f32"})
        while direct.generation == 1:
            direct.refresh()
        assert direct.columns([1], ["a"]).tolist() == [[3.0]] and direct[1] == {"b": 2, "a": 3.0}
        assert old.columns([1], ["a"]).tolist() == [[1.0]] and dict(old.schema()) == {"a": "f32"}
        zero_kv.bake({1: "bytes"}, path)
        while direct.generation == 2:
            direct.refresh()
        assert direct[1] == b"bytes" and direct.schema() is None
