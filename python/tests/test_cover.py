"""`cover` finds the range that contains a key, in tables in this process, clients, and asyncio clients."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from ipaddress import ip_address as ip
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pytest

import zero_kv
from support import BlockingCalls, bake_text, cluster_of, seeded, serving

# For each type: ranges, and keys in a gap.
CASES: dict[str, tuple[list[tuple[Any, Any, bytes]], list[Any]]] = {
    "u64": ([(1, 9, b"low"), (20, 2**64 - 1, b"high")], [0, 10, 19]),
    "ipv4": ([(ip("10.0.0.0"), ip("10.255.255.255"), b"private"), (ip("192.0.2.1"), ip("192.0.2.1"), b"one")], [ip("11.0.0.0")]),
    "ip": ([(ip("10.0.0.0"), ip("10.0.0.255"), b"four"), (ip("2001:db8::"), ip("2001:db8::ff"), b"six")], [ip("2001:db8::100")]),
    "date": ([(date(2026, 1, 1), date(2026, 6, 30), b"basic"), (date(2026, 8, 1), date(2026, 12, 31), b"full")], [date(2026, 7, 1)]),
}


def baked(folder: pathlib.Path, rows: str, *arguments: str) -> pathlib.Path:
    return bake_text(folder / "table.db", rows, *arguments)


@pytest.mark.parametrize("key_type", CASES)
def test_the_range_of_a_key_is_found_and_a_gap_has_none(tmp_path: pathlib.Path, key_type: str) -> None:
    ranges, gaps = CASES[key_type]
    rows = "".join(f"{start},{end},{value.decode()}\n" for start, end, value in ranges)
    path = baked(tmp_path, rows, "--ranges", "1,2", "--keys", key_type)
    expected = {key: found for found in ranges for key in found[:2]} | dict.fromkeys(gaps)
    keys = list(expected)

    async def ask(address: pathlib.Path) -> None:
        async with zero_kv.AsyncClient(address) as client:
            assert [await client.cover(key) for key in keys] == list(expected.values())
            assert await client.cover_many(keys) == list(expected.values())
            assert await client.cover_many([]) == []

    with serving(path) as server, zero_kv.Client(server.path) as client, zero_kv.open(path) as table:
        for each in (table, client):
            assert [each.cover(key) for key in keys] == list(expected.values())
            assert each.cover_many(keys) == list(expected.values()) and each.cover_many([]) == []
            with pytest.raises(TypeError):
                each.cover(None)
        asyncio.run(ask(server.path))


def test_blocks_of_addresses_are_ranges(tmp_path: pathlib.Path) -> None:
    path = baked(tmp_path, "192.0.2.0/24,a\n2001:db8::/32,b\n", "--cidr", "1")
    with zero_kv.open(path) as table:
        assert table.cover(ip("192.0.2.77")) == (ip("192.0.2.0"), ip("192.0.2.255"), b"a")
        assert table.cover(ip("192.0.3.0")) is None


def test_null_keys_have_no_range(tmp_path: pathlib.Path) -> None:
    path = baked(tmp_path, "1,9,a\n", "--ranges", "1,2")

    with serving(path) as server, zero_kv.Client(server.path) as client, zero_kv.open(path) as table:
        for each in (table, client, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))):
            firsts, lasts, values = each.cover_many(pyarrow.array([5, None, 10]))
            assert firsts.to_pylist() == [1, None, None] and lasts.to_pylist() == [9, None, None]
            assert values.to_pylist() == [b"a", None, None] and values.type == pyarrow.binary()
            assert each.cover_many(pandas.Series([5, None, 10], dtype="Int64")) == [(1, 9, b"a"), None, None]
            assert each.cover_many(numpy.array([5, 10])) == [(1, 9, b"a"), None]


def test_a_table_of_single_keys_has_no_ranges(tmp_path: pathlib.Path) -> None:
    path = baked(tmp_path, "1,a\n")

    async def ask(address: pathlib.Path) -> None:
        async with zero_kv.AsyncClient(address) as client:
            with pytest.raises(zero_kv.ServerError, match="single keys instead of ranges"):
                await client.cover(1)

    with serving(path) as server, zero_kv.Client(server.path) as client, zero_kv.open(path) as table:
        for look_up in (lambda: table.cover(1), lambda: table.cover_many([1])):
            with pytest.raises(ValueError, match="range"):
                look_up()
        for look_up in (lambda: client.cover(1), lambda: client.cover_many([1])):
            with pytest.raises(zero_kv.ServerError, match="single keys instead of ranges"):
                look_up()
        asyncio.run(ask(server.path))


@contextlib.contextmanager
def surfaces(file: pathlib.Path) -> Iterator[list[Any]]:
    """Open a table in this process, in clients, and in a cluster. Tables of ranges are not divided."""
    zero_kv.publish(file, f"file://{file.parent}/published")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(file))
        nodes = stack.enter_context(cluster_of(file, 1, 1)).addresses()
        yield [
            stack.enter_context(zero_kv.open(file)),
            stack.enter_context(zero_kv.open(file, memory="copy")),
            stack.enter_context(zero_kv.Direct(server.path)),
            stack.enter_context(zero_kv.Published(f"file://{file.parent}/published", cache=file.parent / "cache")),
            stack.enter_context(zero_kv.Client(server.path)),
            stack.enter_context(zero_kv.ClusterClient(nodes)),
            BlockingCalls(lambda: zero_kv.AsyncClient(server.path)),
            BlockingCalls(lambda: zero_kv.AsyncClusterClient(nodes)),
        ]


NETWORKS = """network,city,risk,hosts,visits
10.0.0.0/8,,0.5,7,
192.0.2.0/24,Berlin,0.25,8,3
2001:db8::/32,Paris,1,9,4
"""


def networks(folder: pathlib.Path) -> pathlib.Path:
    types = "city:text?,risk:f32,hosts:u16,visits:i64?"
    return baked(folder, NETWORKS, "--header", "--cidr", "network", "--types", types)


def test_columns_of_ranges_are_those_of_each_range(tmp_path: pathlib.Path) -> None:
    texts = ["192.0.2.77", "11.0.0.0", "2001:db8:7::1", "10.1.2.3", "192.0.2.0"]
    with surfaces(networks(tmp_path)) as opened:
        for table in opened:
            rows = [found and dict(found[2]) for found in table.cover_many(texts)]
            assert rows[0] == {"city": "Berlin", "risk": 0.25, "hosts": 8, "visits": 3}
            assert rows[1] is None and rows[3] is not None and rows[3]["city"] is None
            for keys in (texts, [ip(text) for text in texts], numpy.array(texts), pyarrow.array(texts), pandas.Series(texts)):
                found = table.cover_columns(keys, ["city", "hosts"], fill=0)
                assert found["city"].tolist() == ["Berlin", None, "Paris", None, "Berlin"]
                assert found["hosts"].dtype == numpy.uint16 and found["hosts"].tolist() == [8, 0, 9, 7, 8]
                matrix = table.cover_columns(keys, ["risk"])
                assert numpy.array_equal(matrix, [[0.25], [numpy.nan], [1], [0.5], [0.25]], equal_nan=True)
                batch = table.cover_columns(keys, format="arrow")
                assert batch.to_pylist() == [row or dict.fromkeys(batch.schema.names) for row in rows]
            matrix = numpy.zeros((5, 1), numpy.uint16)
            assert table.cover_columns(texts, ["hosts"], out=matrix, fill=1) is matrix or matrix.any()
            assert matrix.ravel().tolist() == [8, 1, 9, 7, 8]
            frame = table.cover_columns(texts, ["visits"], format="pandas")
            assert frame["visits"].isna().tolist() == [False, True, False, True, False]
            assert table.cover_columns(texts, ["city"], format="polars")["city"].to_list()[2] == "Paris"
            assert len(table.cover_columns([], ["city"])["city"]) == 0
            with pytest.raises(ValueError, match="pass fill"):
                table.cover_columns(texts, ["hosts"])
            with pytest.raises(ValueError, match="nothing"):
                table.cover_columns(texts, ["nothing"])
            with pytest.raises(ValueError, match="is not an IP address"):
                table.cover_columns([*texts, "10.0.0"], ["risk"])


def test_null_keys_have_no_columns(tmp_path: pathlib.Path) -> None:
    texts = [None, "192.0.2.77", None, "11.0.0.0"]
    with surfaces(networks(tmp_path)) as opened:
        for table in opened:
            for keys in (pyarrow.array(texts), polars.Series(texts), pandas.Series(texts), pandas.Series(texts, dtype=object)):
                found = table.cover_columns(keys, ["city", "hosts"], fill=0)
                assert found["city"].tolist() == [None, "Berlin", None, None] and found["hosts"].tolist() == [0, 8, 0, 0]
                batch = table.cover_columns(keys, ["hosts"], format="arrow")
                assert batch.column("hosts").to_pylist() == [None, 8, None, None]
                assert table.cover_columns(keys, ["hosts"], fill=1).ravel().tolist() == [1, 8, 1, 1]
                with pytest.raises(ValueError, match="pass fill|needs a value|no value"):
                    table.cover_columns(keys, ["hosts"])
            found = table.cover_columns(pyarrow.array(texts).dictionary_encode(), ["city"])
            assert found["city"].tolist() == [None, "Berlin", None, None]


def test_a_table_without_columns_or_ranges_has_no_columns_of_ranges(tmp_path: pathlib.Path) -> None:
    with surfaces(baked(tmp_path, "1,9,a\n", "--ranges", "1,2")) as opened:
        for table in opened:
            for keys in ([5], pyarrow.array([5]), []):
                with pytest.raises(zero_kv.NotTyped):
                    table.cover_columns(keys)
    (tmp_path / "single").mkdir()
    zero_kv.bake({1: {"price": 2.5}}, tmp_path / "single" / "table.db", types={"price": "f32"})
    with surfaces(tmp_path / "single" / "table.db") as opened:
        for table in opened:
            with pytest.raises((ValueError, zero_kv.ServerError), match="range"):
                table.cover_columns([1], fill=0)


def test_covers_as_arrays_are_the_covers_of_a_list(tmp_path: pathlib.Path) -> None:
    path = baked(tmp_path, "-9,-1,ab\n3,3,cd\n", "--ranges", "1,2", "--keys", "i64")
    keys = [-10, -9, -5, 0, 3, 4]
    with surfaces(path) as opened:
        for table in opened:
            expected = table.cover_many(keys)
            assert expected == [None, (-9, -1, b"ab"), (-9, -1, b"ab"), None, (3, 3, b"cd"), None]
            arrays = table.cover_many(pyarrow.array(keys))
            assert [array.type for array in arrays] == [pyarrow.int64(), pyarrow.int64(), pyarrow.binary()]
            found = zip(*(array.to_pylist() for array in arrays), strict=True)
            assert [None if row[2] is None else row for row in found] == expected
            firsts, lasts, values, marks = table.cover_many(numpy.array(keys), dtype="S2")
            assert firsts.dtype == lasts.dtype == numpy.int64 and marks.tolist() == [row is not None for row in expected]
            assert firsts.tolist() == [0, -9, -9, 0, 3, 0] and lasts.tolist() == [0, -1, -1, 0, 3, 0]
            assert values.tolist() == [b"", b"ab", b"ab", b"", b"cd", b""]
            nulls = numpy.ma.masked_array([3, 3], [True, False])
            assert table.cover_many(nulls) == [None, (3, 3, b"cd")]
            assert table.cover_many(nulls, dtype="S2")[2].tolist() == [b"", b"cd"]
            with pytest.raises(ValueError, match="has 2 bytes, where the dtype has 4"):
                table.cover_many(keys, dtype="S4")
    blocks = bake_text(tmp_path / "blocks.db", "192.0.2.0/24,a\n", "--cidr", "1")
    with zero_kv.open(blocks) as table:
        firsts, lasts, values = table.cover_many(pyarrow.array(["192.0.2.7", "::1"]))
        assert firsts.to_pylist() == ["192.0.2.0", None] and lasts.to_pylist() == ["192.0.2.255", None]
        assert firsts.type == pyarrow.string() and values.to_pylist() == [b"a", None]
        with pytest.raises(zero_kv.KeyKind, match="pass a pyarrow array"):
            table.cover_many(["192.0.2.7"], dtype="S1")


def addresses(rng: random.Random, count: int) -> list[IPv4Address | IPv6Address]:
    """Return random addresses, in and beside the ranges of `NETWORKS`."""
    four = [IPv4Address(rng.choice((10 << 24, 0xC0000200, 0)) + rng.getrandbits(rng.choice((8, 24)))) for _ in range(count)]
    six = [IPv6Address(rng.choice((0x20010DB8 << 96, 0)) + rng.getrandbits(rng.choice((16, 96)))) for _ in range(count)]
    return rng.sample(four + six, 2 * count)


def array_forms(keys: list[Any]) -> dict[str, Any]:
    """Return the same addresses in every form in which a lookup takes many."""
    texts = [str(key) for key in keys]
    packed = [b"\0" * 10 + b"\xff\xff" + key.packed if key.version == 4 else key.packed for key in keys]
    forms: dict[str, Any] = {
        "objects": numpy.array(keys, object),
        "text": texts,
        "numpy text": numpy.array(texts),
        "numpy bytes": numpy.array(texts, "S"),
        "numpy other byte order": numpy.array(texts).astype(numpy.array(texts).dtype.newbyteorder(">")),
        "numpy packed": numpy.frombuffer(b"".join(packed), "V16"),
        "numpy strided": numpy.array([text for text in texts for _ in range(2)])[::2],
        "numpy text objects": numpy.array(texts, object),
        "arrow": pyarrow.array(texts),
        "arrow large": pyarrow.array(texts, pyarrow.large_string()),
        "arrow view": pyarrow.array(texts, pyarrow.string_view()),
        "arrow binary": pyarrow.array([text.encode() for text in texts], pyarrow.binary()),
        "arrow packed": pyarrow.array(packed, pyarrow.binary(16)),
        "arrow slice": pyarrow.array(["x", *texts, "y"])[1:-1],
        "arrow packed slice": pyarrow.array([packed[0], *packed], pyarrow.binary(16))[1:],
        "arrow dictionary": pyarrow.array(texts).dictionary_encode(),
        "arrow chunks": pyarrow.chunked_array([texts[:3], [], texts[3:]]),
        "polars": polars.Series(texts),
        "pandas": pandas.Series(texts),
        "pandas objects": pandas.Series(texts, dtype=object),
        "pandas addresses": pandas.Series(keys),
        "pandas arrow": pandas.Series(texts, dtype=pandas.ArrowDtype(pyarrow.string())),
        "pandas index": pandas.Index(texts),
        "pandas category": pandas.Series(texts, dtype="category"),
    }
    if all(key.version == 4 for key in keys):
        numbers = numpy.array([int(key) for key in keys], numpy.uint32)
        packed = [key.packed for key in keys]
        forms |= {
            "numpy numbers": numbers,
            "numpy packed v4": numpy.frombuffer(b"".join(packed), "V4"),
            "arrow numbers": pyarrow.array(numbers),
            "arrow packed v4": pyarrow.array(packed, pyarrow.binary(4)),
            "pandas numbers": pandas.Series(numbers),
        }
    return forms


@pytest.mark.parametrize("key_type", ["ip", "ipv4"])
def test_arrays_of_addresses_are_the_addresses(tmp_path: pathlib.Path, key_type: str) -> None:
    rng = seeded("addresses")
    keys = [key for key in addresses(rng, 300) if key_type == "ip" or key.version == 4]
    lines = NETWORKS.splitlines(keepends=True)
    text = "".join(lines if key_type == "ip" else lines[:-1])
    types = "city:text?,risk:f32,hosts:u16,visits:i64?"
    path = baked(tmp_path, text, "--header", "--cidr", "network", "--keys", key_type, "--types", types)
    with serving(path) as server, zero_kv.open(path) as table, zero_kv.Client(server.path) as client:
        covers = [table.cover(key) for key in keys]
        expected = [0 if found is None else found[2]["hosts"] for found in covers]
        assert len(set(expected)) > 2
        first, *_ = table
        for chosen in (keys, [key for key in keys if key.version == 4]):
            hosts = [number for key, number in zip(keys, expected) if key in chosen]
            for name, form in array_forms(chosen).items():
                for each in (table, client, BlockingCalls(lambda: zero_kv.AsyncClient(server.path))):
                    assert each.cover_columns(form, ["hosts"], fill=0).ravel().tolist() == hosts, name
                    assert each.columns(form, ["hosts"], fill=0).any() == (first in chosen), name
                    assert each.contains_many(form) == [key in table for key in chosen], name


def test_other_arrays_of_keys_are_the_keys(tmp_path: pathlib.Path) -> None:
    """`get_many` and `columns` with arrays of UUIDs, numbers, times, and text."""
    rng = seeded("arrays of keys")
    uuids = [uuid.UUID(int=rng.getrandbits(128) & ~0xFF) for _ in range(50)]
    numbers = [rng.getrandbits(rng.choice((8, 63))) * rng.choice((1, -1)) for _ in range(50)]
    times = [datetime(2026, 1, 1) + timedelta(microseconds=rng.getrandbits(45)) for _ in range(50)]
    words = [f"wörd {rng.getrandbits(16)}" for _ in range(50)]
    cases: dict[str, tuple[list[Any], list[Callable[[list[Any]], Any]]]] = {
        "uuid": (
            uuids,
            [
                lambda keys: numpy.frombuffer(b"".join(key.bytes for key in keys), "V16"),
                lambda keys: numpy.frombuffer(b"".join(key.bytes for key in keys), "S16"),
                lambda keys: numpy.array([str(key) for key in keys]),
                lambda keys: numpy.array([key.hex for key in keys], "S"),
                lambda keys: pyarrow.array([key.bytes for key in keys], pyarrow.binary(16)),
                lambda keys: pyarrow.array([key.bytes for key in keys], pyarrow.uuid()),
                lambda keys: pandas.Series([str(key) for key in keys]),
            ],
        ),
        "i64": (numbers, [numpy.array, pyarrow.array, pandas.Series, lambda keys: numpy.array(list(map(str, keys)))]),
        "timestamp": (times, [lambda keys: numpy.array(keys, "datetime64[us]"), pyarrow.array, pandas.Series]),
        "bytes": (words, [numpy.array, pyarrow.array, pandas.Series, lambda keys: numpy.array([key.encode() for key in keys])]),
    }
    for key_type, (keys, makes) in cases.items():
        held = keys[::2]
        zero_kv.bake({key: {"n": at} for at, key in enumerate(held)}, tmp_path / f"{key_type}.db", keys=key_type, types={"n": "i32"})
        with zero_kv.open(tmp_path / f"{key_type}.db") as table:
            expected = [held.index(key) if key in held else -1 for key in keys]
            for number, make in enumerate(makes):
                form = make(keys)
                assert table.columns(form, ["n"], fill=-1).ravel().tolist() == expected, (key_type, number)
                assert table.contains_many(form) == [at >= 0 for at in expected], (key_type, number)
                rows = [-1 if row is None else row["n"] for row in table.get_rows(form)]
                assert rows == expected, (key_type, number)


def test_wrong_elements_of_arrays_are_errors_with_their_position(tmp_path: pathlib.Path) -> None:
    with zero_kv.open(networks(tmp_path)) as table:
        packed = b"".join(ip(text).packed for text in ("2001:db8::1", "2001:db8::2"))
        for wrong, message in [
            (numpy.array(["10.0.0.1", "10.0.0"]), 'key 1: "10.0.0" is not an IP address'),
            (numpy.array(["10.0.0.1", "\ud800"], object), "key 1"),
            (numpy.array(["10.0.0.1", "\ud800"]), "key 1"),
            (numpy.frombuffer(packed, "S16"), 'key 0: .*pass keys.view."V16".'),
            (numpy.frombuffer(packed, "V8"), "key 0: .*is not an IP address"),
            (numpy.array([["10.0.0.1"]]), "keys have 2 dimensions"),
            (pyarrow.array(["10.0.0.1", ""]), 'key 1: "" is not an IP address'),
        ]:
            with pytest.raises(ValueError, match=message):
                table.cover_columns(wrong, ["risk"])


def test_ranges_of_the_last_part_of_composite_keys(tmp_path: pathlib.Path) -> None:
    rows = "user,from,to,plan,price\nada,2026-01-01,2026-06-30,free,0\nada,2026-09-01,2026-12-31,pro,9.5\nbob,2026-01-01,2026-12-31,pro,9\n"
    arguments = ["--header", "--key", "user", "--ranges", "from,to", "--keys", "bytes,date", "--types", "plan:text,price:f64"]
    with surfaces(baked(tmp_path, rows, *arguments)) as opened:
        for table in opened:
            first, last, row = table.cover(("ada", date(2026, 5, 1)))
            assert (first, last, row["plan"]) == ((b"ada", date(2026, 1, 1)), (b"ada", date(2026, 6, 30)), "free")
            users, days = ["ada", "ada", "bob", "eve"], ["2026-07-01", "2026-12-31", "2026-07-01", "2026-07-01"]
            keys = pyarrow.StructArray.from_arrays([pyarrow.array(users), pyarrow.array(days).cast(pyarrow.date32())], ["user", "day"])
            expected = [None, "pro", "pro", None]
            assert table.cover_columns(keys, ["plan"])["plan"].tolist() == expected
            pairs = list(zip(users, map(date.fromisoformat, days)))
            assert table.cover_columns(pairs, ["plan"])["plan"].tolist() == expected
            assert table.cover_columns(pyarrow.array([f"{user},{day}" for user, day in zip(users, days)]), ["plan"])["plan"].tolist() == expected
            assert table.cover(("ada", date(2026, 8, 31))) is None and table.cover(("ad", date(2026, 5, 1))) is None
