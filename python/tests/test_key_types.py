"""Keys of all types go in and out as Python values, in files and over sockets."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import subprocess
import uuid
from datetime import date
from ipaddress import ip_address as ip

import numpy
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import zero_kv
from support import PROGRAMS, serving


def time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


U = [uuid.UUID(int=number) for number in (1, 2**64, 2**128 - 1)]
# For each type: keys in order, a key that the table does not have, the written form of the first key, and objects that are
# no keys of the type.
CASES = {
    "i64": ([-(2**63), -5, 0, 7, 2**63 - 1], 3, "-9223372036854775808", [ip("1.2.3.4"), "x", (1,)]),
    "ipv4": ([ip("0.0.0.1"), ip("10.0.0.255"), ip("192.0.2.1")], ip("9.9.9.9"), "0.0.0.1", [7, "x", ip("2001:db8::1")]),
    "ip": ([ip("10.0.0.255"), ip("192.0.2.1"), ip("2001:db8::1")], ip("::1"), "10.0.0.255", [7, "1.2.3", date(2026, 1, 1)]),
    "uuid": (U, uuid.UUID(int=3), "00000000-0000-0000-0000-000000000001", [1, "x", b"x"]),
    "hex": ([b"\x00\xff", b"\x01", b"\xab\xcd"], b"\xab", "00ff", [1, "abc", None.__class__]),
    "date": ([date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 21)], date(2026, 11, 22), "0001-01-01", [20000, "x", time("2026-11-21T00:00:00")]),
    "timestamp": (
        [time("1969-12-31T23:59:59.999999"), time("2026-11-21T19:09:38.000001")],
        time("2026-11-21T19:09:38"),
        "1969-12-31T23:59:59.999999Z",
        [20000, "x", date(2026, 11, 21)],
    ),
    "bytes,date": (
        [(b"AT", date(2026, 1, 1)), (b"DE", date(2026, 1, 1)), (b"DE", date(2026, 1, 2)), (b"a,b\\", date(1970, 1, 1))],
        (b"DE", date(2026, 1, 3)),
        "AT,2026-01-01",
        [7, (b"DE", 7), "DE,7", (b"DE", date(2026, 1, 1), 1)],
    ),
    "ip,i64,bytes": ([(ip("::1"), -1, b"\x00"), (ip("::1"), 0, b"\xff\x00x")], (ip("::1"), 1, b"x"), None, [(1, 2, 3)]),
}


@pytest.fixture(params=CASES, scope="module")
def case(request, tmp_path_factory):
    key_type = request.param
    keys, other, text, wrong = CASES[key_type]
    path = tmp_path_factory.mktemp("types") / f"{key_type.replace(',', '-')}.db"
    report = zero_kv.bake({key: str(at) for at, key in reversed(list(enumerate(keys)))}, path, keys=key_type)
    assert report.key_type == key_type
    return key_type, keys, other, text, wrong, path


def check(table, case):
    key_type, keys, other, text, wrong, _ = case
    values = [str(at).encode() for at in range(len(keys))]
    assert table.key_type == key_type
    assert list(table) == list(table.keys()) == keys
    assert [type(key) for key in table] == [type(key) for key in keys]
    assert list(table.items()) == list(zip(keys, values)) == list(table.range())
    assert list(reversed(table.keys())) == keys[::-1]
    assert [table.get(key) for key in keys] == values == table.get_many(keys) == table.get_many(iter(keys))
    assert [table[key] for key in keys] == values and other not in table
    assert table.get(other) is None and table.get_many([other, None, keys[0]]) == [None, None, values[0]]
    assert table.get(None) is None and None not in table
    assert table.contains_many([*keys, other]) == [True] * len(keys) + [False]
    if text is not None:
        assert table.get(text) == values[0] == table.get_many([text])[0]
    for key, value in zip(keys, values):
        assert table.floor(key) == table.ceiling(key) == (key, value)
    assert table.floor_many(keys) == list(zip(keys, values)) == table.ceiling_many(keys)
    assert (table.first(), table.last()) == ((keys[0], values[0]), (keys[-1], values[-1]))
    assert [key for key, _ in table.range(keys[0], keys[-1])] == keys[:-1]
    assert [key for key, _ in table.range(keys[1])] == keys[1:]
    assert (table.count(), table.count(keys[1]), table.count(None, keys[1])) == (len(keys), len(keys) - 1, 1)
    for key in wrong:
        for look_up in (table.get, table.contains, table.floor, lambda key: table.get_many([keys[0], key])):
            with pytest.raises((TypeError, ValueError), match="key|not a|not an"):
                look_up(key)


def test_a_table(case):
    with zero_kv.open(case[-1]) as table:
        check(table, case)
        assert case[0] in repr(table)
        with pytest.raises(KeyError):
            table[case[2]]


def test_a_client(case):
    with serving(case[-1]) as server, zero_kv.Client(server.path) as client:
        check(client, case)


def test_an_asyncio_client(case):
    key_type, keys, other, text, wrong, path = case
    values = [str(at).encode() for at in range(len(keys))]

    async def run(socket):
        async with zero_kv.AsyncClient(socket) as client:
            assert await client.key_type() == key_type
            assert [await client.get(key) for key in keys] == values == await client.get_many(keys)
            assert await client.get_many([other, None, keys[0]]) == [None, None, values[0]]
            assert await client.contains_many([*keys, other]) == [True] * len(keys) + [False]
            assert [key async for key in client] == keys
            assert await client.floor(keys[0]) == (keys[0], values[0])
            assert await client.floor_many(keys) == list(zip(keys, values))
            assert [row async for row in client.range(keys[1])] == list(zip(keys, values))[1:]
            assert await client.count(keys[1]) == len(keys) - 1
            if text is not None:
                assert await client.get(text) == values[0]
            for key in wrong:
                with pytest.raises((TypeError, ValueError)):
                    await client.get(key)

    with serving(path) as server:
        asyncio.run(run(server.path))


def test_leading_parts_are_prefixes_and_ends_of_ranges(tmp_path):
    keys = [("AT", "Wien"), ("DE", "Berlin"), ("DE", "Bonn"), ("DE", "Köln"), ("FR", "Paris")]
    zero_kv.bake({key: b"" for key in keys}, tmp_path / "t.db")
    stored = [tuple(part.encode() for part in key) for key in keys]
    with serving(tmp_path / "t.db") as server, zero_kv.Client(server.path) as client:
        for table in (zero_kv.open(tmp_path / "t.db"), client):
            assert [key for key, _ in table.prefix(("DE",))] == stored[1:4] == [key for key, _ in table.prefix("DE")]
            assert [key for key, _ in table.prefix(("DE", "B"))] == stored[1:3] == [key for key, _ in table.prefix("DE,B")]
            assert (table.count_prefix(("DE",)), table.count_prefix(())) == (3, 5)
            assert [key for key, _ in table.range(("DE",), ("FR",))] == stored[1:4]
            assert table.ceiling(("DE",))[0] == stored[1] and table.floor(("DE",))[0] == stored[0]
            with pytest.raises(ValueError, match="1 to 2"):
                table.floor(("DE", "Bonn", "x"))


NUMPY = {
    "i64": numpy.array([-5, 7, 8]),
    "ipv4": numpy.array([1, 2**24, 2**32 - 1], dtype="uint32"),
    "ip": numpy.array([1, 2**24, 2**32 - 1], dtype="uint32"),
    "date": numpy.array(["1969-12-31", "2026-11-21", "2026-11-22"], dtype="datetime64[D]"),
    "timestamp": numpy.array(["1969-12-31T23:59:59.999999", "2026-11-21", "2026-11-22"], dtype="datetime64[us]"),
}


@pytest.mark.parametrize("key_type", NUMPY)
def test_arrays_of_keys(tmp_path, key_type):
    keys = NUMPY[key_type]
    objects = [ip(int(key)) for key in keys] if key_type.startswith("ip") else keys.tolist()
    types = {"n": "i64"}
    report = zero_kv.bake({key: (at,) for at, key in enumerate(objects[:2])}, tmp_path / "t.db", types=types, keys=key_type)
    table = zero_kv.open(tmp_path / "t.db")
    assert report.key_type == key_type
    arrays = [keys, pandas.Series(keys), pyarrow.array(keys), polars.Series(keys)]
    if key_type in ("date", "timestamp"):
        arrays += [keys.astype("datetime64[ns]"), pandas.Series(keys.astype("datetime64[ns]"))]
    for array in arrays:
        found = table.contains_many(array)
        assert found == [True, True, False], type(array)
        assert table.columns(array, fill=-1).tolist() == [[0], [1], [-1]]
    found = table.get_many(pyarrow.array(keys))
    assert found.null_count == 1
    if key_type == "ip":
        with pytest.raises(zero_kv.KeyKind, match="keys are ip"):
            table.floor_many(keys, dtype="S1")
    else:
        floor, _, marks = table.floor_columns(keys, format="numpy")
        assert floor.tolist() == [*keys[:2].tolist(), keys[1].tolist()] and floor.dtype == keys.dtype
        assert marks.all()
        floor, _ = table.floor_many(pyarrow.array(keys))
        assert floor.to_pylist() == [*keys[:2].tolist(), keys[1].tolist()]
    floor, _ = table.floor_columns(keys, format="arrow")
    assert len(floor) == 3 and floor.null_count == 0


def test_arrow_text_and_bytes_are_keys(tmp_path):
    addresses = ["192.0.2.1", "2001:db8::1"]
    zero_kv.bake({ip(text): b"x" for text in addresses}, tmp_path / "ip.db")
    table = zero_kv.open(tmp_path / "ip.db")
    assert table.key_type == "ip"
    for array in (pyarrow.array([*addresses, None, "::2"]), polars.Series([*addresses, None, "::2"])):
        assert table.get_many(array).to_pylist() == [b"x", b"x", None, None]
        keys, values = table.floor_many(array)
        assert keys.to_pylist() == [*addresses, None, None] and keys.type == pyarrow.string()
    with pytest.raises(ValueError, match='key 1: "x" is not an IP address, such as 192.0.2.1'):
        table.get_many(pyarrow.array(["192.0.2.1", "x"]))
    zero_kv.bake({uuid.UUID(int=7): b"x"}, tmp_path / "uuid.db")
    table = zero_kv.open(tmp_path / "uuid.db")
    for array in (pyarrow.array([uuid.UUID(int=7).bytes], pyarrow.uuid()), pyarrow.array([uuid.UUID(int=7).bytes], pyarrow.binary(16))):
        assert table.get_many(array).to_pylist() == [b"x"]
    parts = pyarrow.StructArray.from_arrays([pyarrow.array(["DE", "DE"]), pyarrow.array([date(2026, 1, 1), None])], ["c", "d"])
    zero_kv.bake({("DE", date(2026, 1, 1)): b"x"}, tmp_path / "parts.db")
    table = zero_kv.open(tmp_path / "parts.db")
    assert table.key_type == "bytes,date"
    assert table.get_many(parts).to_pylist() == [b"x", None]
    assert table.get_many(pyarrow.array(["DE,2026-01-01"])).to_pylist() == [b"x"]


def test_times_of_pandas_and_zones(tmp_path):
    zero_kv.bake({time("2026-11-21T19:09:38"): b"x"}, tmp_path / "t.db")
    table = zero_kv.open(tmp_path / "t.db")
    assert table.key_type == "timestamp"
    times = pandas.to_datetime(["2026-11-21 19:09:38", None, "2026-11-21 19:09:38.000000001"], format="ISO8601")
    assert table.get_many(times) == [b"x", None, None]
    assert table.get_many(list(times)) == [b"x", None, None]
    assert table.get_many(times.tz_localize("UTC").tz_convert("Europe/Berlin").to_series()) == [b"x", None, None]
    assert table.get(time("2026-11-21T20:09:38+01:00")) == b"x" == table.get(numpy.datetime64("2026-11-21T19:09:38"))
    with pytest.raises(OverflowError, match="whole number of us"):
        table.floor(times[2])


def test_types_of_columns_are_the_types_of_keys(tmp_path):
    path = tmp_path / "t.db"
    values = ["a", "b"]
    frames = {
        "i64": pandas.DataFrame({"k": [-1, 2], "v": values}),
        "u64": pandas.DataFrame({"k": [1, 2], "v": values}),
        "timestamp": pandas.DataFrame({"k": pandas.to_datetime(["2026-01-01", "2026-01-02"]), "v": values}),
        "date": pandas.DataFrame({"k": [date(2026, 1, 1), date(2026, 1, 2)], "v": values}),
        "ip": pandas.DataFrame({"k": [ip("1.2.3.4"), ip("::1")], "v": values}),
        "uuid": pandas.DataFrame({"k": U[:2], "v": values}),
        "bytes": pandas.DataFrame({"k": ["1.2.3.4", "x"], "v": values}),
    }
    for key_type, frame in frames.items():
        assert zero_kv.bake(frame, path, allow_key_type_change=True).key_type == key_type
        assert zero_kv.bake(frame, path, typed=True, allow_key_type_change=True).key_type == key_type
        assert set(zero_kv.open(path).keys()) == {
            key.encode() if key_type == "bytes" else key.to_pydatetime() if key_type == "timestamp" else key for key in frame.k
        }
    for key_type in ("i64", "timestamp", "date"):
        for table in (polars.from_pandas(frames[key_type]), pyarrow.Table.from_pandas(frames[key_type])):
            assert zero_kv.bake(table, path, allow_key_type_change=True).key_type == key_type
    table = pyarrow.table({"k": pyarrow.array([U[0].bytes], pyarrow.uuid()), "v": ["a"]})
    assert zero_kv.bake(table, path, allow_key_type_change=True).key_type == "uuid"
    assert list(zero_kv.open(path)) == U[:1]
    keys = numpy.array([-1, 2])
    assert zero_kv.bake((keys, numpy.zeros((2, 2), "f4")), path, allow_key_type_change=True).key_type == "i64"
    cities = pandas.DataFrame({"country": ["DE", "DE"], "city": ["Bonn", "Köln"], "n": [1, 2]})
    assert zero_kv.bake(cities, path, key=["country", "city"], allow_key_type_change=True).key_type == "bytes,bytes"
    table = zero_kv.open(path)
    assert table["DE", "Köln"]["n"] == 2 and list(table) == [(b"DE", b"Bonn"), (b"DE", "Köln".encode())]
    days = cities.assign(day=pandas.to_datetime(["2026-01-01", "2026-01-02"]))
    report = zero_kv.bake(days, path, key=["country", "day"], typed=True, keys="bytes,timestamp", allow_key_type_change=True)
    assert report.key_type == "bytes,timestamp"


def test_text_of_addresses_needs_keys(tmp_path):
    path = tmp_path / "t.db"
    assert zero_kv.bake({"192.0.2.1": b"x"}, path, keys="ip").key_type == "ip"
    assert zero_kv.bake({3221225985: b"x"}, path, keys="ipv4", allow_key_type_change=True).key_type == "ipv4"
    assert list(zero_kv.open(path)) == [ip("192.0.2.1")]
    with pytest.raises(ValueError, match='rows:1: "x" is not an IP address'):
        zero_kv.bake({"x": b"x"}, path, keys="ip", allow_key_type_change=True)
    with pytest.raises(TypeError, match="rows:1: the key is of type int, where an IP address"):
        zero_kv.bake({7: b"x"}, path, keys="ip", allow_key_type_change=True)
    with pytest.raises(OverflowError, match='pass keys="i64"'):
        zero_kv.bake({7: b"x", -1: b"y"}, path, allow_key_type_change=True)
    with pytest.raises(ValueError, match="keys is .*ip8"):
        zero_kv.bake({7: b"x"}, path, keys="ip8")


def test_slots_are_those_of_the_written_form():
    texts = ["192.0.2.1", "2001:db8::1"]
    expected = zero_kv.slots(texts)
    assert zero_kv.slots([ip(text) for text in texts], kind="ip") == expected
    assert zero_kv.slots(pyarrow.array(["192.0.2.1", "2001:DB8:0::1"]), kind="ip").to_pylist() == expected


@pytest.mark.parametrize("key_type", ["u64", "i64", "date", "timestamp", "uuid", "bytes,date"])
def test_the_package_and_the_program_bake_the_same_keys_from_parquet(tmp_path, key_type):
    columns = {
        "u64": [pyarrow.array([1, 2])],
        "i64": [pyarrow.array([-1, 2])],
        "date": [pyarrow.array([date(1969, 12, 31), date(2026, 11, 21)])],
        "timestamp": [pyarrow.array([time("1969-12-31T23:59:59.5"), time("2026-11-21T19:09:38.000001")])],
        "uuid": [pyarrow.array([key.bytes for key in U[:2]], pyarrow.binary(16)).cast(pyarrow.uuid())],
        "bytes,date": [pyarrow.array(["DE", "DE"]), pyarrow.array([date(2026, 1, 1), date(2026, 1, 2)])],
    }[key_type]
    names = ["k", "l"][: len(columns)]
    rows = pyarrow.table([*columns, pyarrow.array(["a", "b"])], [*names, "v"])
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet")
    key = names if len(names) > 1 else names[0]
    report = zero_kv.bake(tmp_path / "rows.parquet", tmp_path / "package.db", key=key, value="v")
    arguments = ["--quiet", "--key", ",".join(names), "--value", "v", "-o", tmp_path / "program.db", tmp_path / "rows.parquet"]
    subprocess.run([PROGRAMS / "baker", *arguments], check=True)
    package, program = zero_kv.open(tmp_path / "package.db"), zero_kv.open(tmp_path / "program.db")
    assert report.key_type == program.key_type == key_type
    assert list(package.items()) == list(program.items()) and package.digest == program.digest
