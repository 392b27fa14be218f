"""`bake` bakes tables of ranges as `baker` does, and warns about keys whose type it does not know."""

from __future__ import annotations

import ipaddress
import pathlib
import random
import warnings
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import zero_kv
from support import bake_text, seeded

Range = tuple[Any, Any, str]


def digest(path: pathlib.Path) -> str:
    with zero_kv.open(path) as table:
        return table.digest


def random_ranges(rng: random.Random, key: Callable[[int], Any]) -> list[Range]:
    """Return ranges that do not overlap, of which some touch and have equal values, in any order."""
    borders = sorted(rng.sample(range(10_000), 200))
    ranges = [(key(a), key(b - rng.randint(1, min(2, b - a))), rng.choice("abc")) for a, b in zip(borders, borders[1:])]
    rng.shuffle(ranges)
    return ranges


KEYS: dict[str, Callable[[int], Any]] = {
    "u64": lambda number: number,
    "i64": lambda number: number - 5000,
    "ip": lambda number: ipaddress.IPv6Address(2**96 + number) if number % 2 else ipaddress.IPv4Address(number + 1),
    "ipv4": lambda number: ipaddress.IPv4Address("10.0.0.0") + number,
    "date": lambda number: date(2000, 1, 1) + timedelta(days=number),
}


@pytest.mark.parametrize("key_type", KEYS)
def test_ranges_of_every_shape_give_the_file_of_the_program(tmp_path: pathlib.Path, key_type: str) -> None:
    rng = seeded(f"ranges of {key_type}")
    ranges = [found for found in random_ranges(rng, KEYS[key_type]) if type(found[0]) is type(found[1])]
    if key_type == "ip":
        # An IPv4 address precedes these IPv6 addresses.
        ranges = [found for found in ranges if int(found[0]) <= int(found[1])]
    rows = "start,end,value\n" + "".join(f"{start},{end},{value}\n" for start, end, value in ranges)
    bake_text(tmp_path / "program.db", rows, "--header", "--ranges", "start,end", "--keys", key_type)
    starts, ends, values = (list(part) for part in zip(*ranges))
    named: dict[str, Any] = {"ranges": ("start", "end")}
    unnamed: dict[str, Any] = {"ranges": True}
    written = {"start": list(map(str, starts)), "end": list(map(str, ends)), "value": values}
    is_arrow = key_type not in ("ip", "ipv4")
    columns = {"start": starts, "end": ends, "value": values} if is_arrow else written
    texts = {"keys": key_type} if key_type != "u64" or not is_arrow else {}
    of_frame = named if key_type == "date" else named | texts
    arrow = pyarrow.table(columns)
    pyarrow.parquet.write_table(arrow, tmp_path / "rows.parquet")
    shapes: list[tuple[Any, dict[str, Any]]] = [
        ({(start, end): value for start, end, value in ranges}, unnamed | texts),
        ([((start, end), value) for start, end, value in ranges], unnamed | texts),
        ((([str(start), str(end)], value) for start, end, value in ranges), unnamed | {"keys": key_type}),
        (pandas.DataFrame({"start": starts, "end": ends, "value": values}), of_frame),
        (polars.DataFrame(columns), named | texts),
        (polars.DataFrame(columns).lazy(), named | texts),
        (arrow, named | texts),
        (arrow.to_reader(50), named | texts),
        (tmp_path / "rows.parquet", named | texts),
        (arrow.append_column("more", [values]), named | texts | {"value": "value"}),
    ]
    for rows, options in shapes:
        report = zero_kv.bake(rows, tmp_path / "package.db", **options)
        assert report.key_type == key_type
        assert digest(tmp_path / "package.db") == digest(tmp_path / "program.db"), type(rows)


def test_the_type_of_ranges_follows_from_the_first_key_or_from_columns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t.db"
    for rows, options, key_type in [
        ({(1, 9): b"a"}, {"ranges": True}, "u64"),
        ({(-9, 9): b"a"}, {"ranges": True}, "i64"),
        ({(date(2026, 1, 1), date(2026, 1, 9)): b"a"}, {"ranges": True}, "date"),
        ({("u", 1, 9): b"a"}, {"ranges": True}, "bytes,u64"),
        ({}, {"ranges": True}, "u64"),
        ({}, {"cidr": True}, "ip"),
        ({"10.0.0.0/8": b"a"}, {"cidr": True}, "ip"),
        ({("u", "10.0.0.0/8"): b"a"}, {"cidr": True}, "bytes,ip"),
        (pandas.DataFrame({"s": [-9, 5], "e": [1, 9], "v": ["a", "b"]}), {"ranges": ("s", "e")}, "i64"),
        (pandas.DataFrame({"k": "u", "s": [1], "e": [9], "v": "a"}), {"key": "k", "ranges": ("s", "e")}, "bytes,u64"),
        (pandas.DataFrame({"n": ["::/16"], "v": ["a"]}), {"cidr": "n"}, "ip"),
    ]:
        report = zero_kv.bake(rows, path, **options, allow_key_type_change=True, allow_empty=True)
        assert report.key_type == key_type, options


def test_blocks_of_addresses_give_the_file_of_the_program(tmp_path: pathlib.Path) -> None:
    rng = seeded("blocks")
    blocks = {}
    for _ in range(300):
        bits = rng.randint(8, 32)
        network: Any = ipaddress.ip_network((rng.getrandbits(32) >> 32 - bits << 32 - bits, bits))
        if rng.random() < 0.3:
            network = ipaddress.ip_network((rng.getrandbits(128) >> 128 - bits << 128 - bits, bits))
        blocks[network] = rng.choice("abc")
    blocks[ipaddress.ip_address("192.0.2.1")] = "c"
    rows = "network,value\n" + "".join(f"{network},{value}\n" for network, value in blocks.items())
    bake_text(tmp_path / "program.db", rows, "--header", "--cidr", "network")
    columns = {"network": list(map(str, blocks)), "value": list(blocks.values())}
    for shape, cidr in [
        (blocks, True),
        (list(zip(columns["network"], columns["value"], strict=True)), True),
        (pandas.DataFrame(columns), "network"),
        (pandas.DataFrame({"network": list(blocks), "value": columns["value"]}), "network"),
        (polars.DataFrame(columns), "network"),
        (pyarrow.table(columns), "network"),
    ]:
        zero_kv.bake(shape, tmp_path / "package.db", cidr=cidr)
        assert digest(tmp_path / "package.db") == digest(tmp_path / "program.db"), type(shape)


def test_typed_ranges_of_composite_keys_give_the_file_of_the_program(tmp_path: pathlib.Path) -> None:
    plans = pandas.DataFrame(
        {
            "user": ["ada", "bob", "ada"],
            "from": [date(2026, 1, 1), date(2026, 2, 1), date(2026, 3, 1)],
            "to": [date(2026, 2, 28), date(2026, 12, 31), date(2026, 3, 31)],
            "plan": ["free", None, "pro"],
        }
    )
    types = {"plan": "text?"}
    options = ["--header", "--key", "user", "--ranges", "from,to", "--keys", "bytes,date", "--types", "plan:text?"]
    bake_text(tmp_path / "program.db", plans.to_csv(index=False), *options)
    pairs = [((row.user, row[2], row.to), {"plan": row.plan}) for row in plans.astype(object).itertuples()]
    for rows, options_of_rows in [
        (plans, {"key": "user", "ranges": ("from", "to"), "types": types}),
        (pairs, {"key": "user", "ranges": ("from", "to"), "types": types}),
    ]:
        zero_kv.bake(rows, tmp_path / "package.db", **options_of_rows)
        assert digest(tmp_path / "package.db") == digest(tmp_path / "program.db")
    with zero_kv.open(tmp_path / "package.db") as table:
        keys = [("ada", date(2026, 3, 5)), ("bob", date(2026, 3, 5))]
        assert table.cover_columns(keys)["plan"].tolist() == ["pro", None]
        assert table.cover(("ada", date(2026, 4, 1))) is None


def test_blocks_below_other_parts_have_their_own_ranges(tmp_path: pathlib.Path) -> None:
    rows = {("a", "10.0.0.0/8"): b"ten", ("b", "10.0.0.0/16"): b"sixteen"}
    zero_kv.bake(rows, tmp_path / "t.db", cidr=True)
    frame = pandas.DataFrame({"k": ["a", "b"], "n": ["10.0.0.0/8", "10.0.0.0/16"], "v": ["ten", "sixteen"]})
    zero_kv.bake(frame, tmp_path / "u.db", key="k", cidr="n")
    assert digest(tmp_path / "t.db") == digest(tmp_path / "u.db")
    with zero_kv.open(tmp_path / "t.db") as table:
        assert table.cover(("a", "10.1.0.0"))[2] == b"ten" and table.cover(("b", "10.1.0.0")) is None


def test_a_base_of_ranges_is_updated(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({(1, 9): b"old"}, tmp_path / "t.db", ranges=True)
    zero_kv.bake({(3, 4): b"new"}, tmp_path / "t.db", ranges=True, base=tmp_path / "t.db")
    with zero_kv.open(tmp_path / "t.db") as table:
        assert table.cover_many([1, 3, 9, 10]) == [(1, 2, b"old"), (3, 4, b"new"), (5, 9, b"old"), None]
    with pytest.raises(zero_kv.BakeFailed, match=r"is a table of ranges.*\(ranges or cidr\)"):
        zero_kv.bake({1: b"x"}, tmp_path / "t.db", base=tmp_path / "t.db")


def test_the_policy_decides_about_keys_of_several_ranges(tmp_path: pathlib.Path) -> None:
    rows = {(1, 9): b"wide", (4, 6): b"narrow", (5, 9): b"late"}
    for overlaps, expected in [("first", b"wide"), ("last", b"late"), ("narrowest", b"narrow")]:
        zero_kv.bake(rows, tmp_path / "t.db", ranges=True, overlaps=overlaps)
        with zero_kv.open(tmp_path / "t.db") as table:
            assert table.cover(5)[2] == expected
    expected = r'rows:2: the range 4 to 6 overlaps.*\(overlaps="first", "last", or "narrowest"\)'
    with pytest.raises(zero_kv.BakeFailed, match=expected):
        zero_kv.bake(rows, tmp_path / "t.db", ranges=True)


def test_rows_and_arguments_that_are_no_ranges_are_errors(tmp_path: pathlib.Path) -> None:
    frame = pandas.DataFrame({"s": [1], "e": [9], "v": ["a"]})
    for rows, options, error, message in [
        ({5: b"x"}, {"ranges": True}, TypeError, "rows:1: the key is of type int, where a tuple with the first"),
        ({(5,): b"x"}, {"ranges": True}, TypeError, "rows:1: the key is of type tuple, where a tuple with the first"),
        ({(9, 1): b"x"}, {"ranges": True}, zero_kv.BakeFailed, "rows:1: the range starts at 9 and ends at 1, before"),
        ({(1, 2): b"x", (3, "4"): b"y"}, {"ranges": True}, zero_kv.KeyKind, "rows:2: the key is of kind bytes, where"),
        ({("a", "b"): b"x"}, {"ranges": True}, zero_kv.BakeFailed, r"keys are bytes, where u64, .*\(keys\)"),
        ({"10.0.0.1/8": b"x"}, {"cidr": True}, ValueError, "rows:1: .* is an address inside the block 10.0.0.0/8"),
        ({"10.0.0.0/33": b"x"}, {"cidr": True}, ValueError, "rows:1: .* no valid length after the slash"),
        ({10: b"x"}, {"cidr": True}, TypeError, "rows:1: the block of addresses is of type int, where text"),
        ({"::/8": b"x"}, {"cidr": True, "keys": "ipv4"}, ValueError, 'rows:1: "::" is not an IPv4 address'),
        ({"::/8": b"x"}, {"cidr": True, "ranges": True}, ValueError, "ranges and cidr are given"),
        ({1: b"x"}, {"overlaps": "first"}, ValueError, "overlaps is given, which is a policy for ranges"),
        ({(1, 2): b"x"}, {"ranges": True, "overlaps": "any"}, ValueError, 'overlaps is "any", where "error", "first"'),
        (frame, {"ranges": "s"}, ValueError, "ranges is 's', where two names of columns"),
        (frame, {"ranges": ("s", "t")}, ValueError, "the column 't'|key is 't'"),
        (frame, {"cidr": 5}, TypeError, "cidr is 5, where the name of a column or True"),
        ({(1, 2): b"x"}, {"ranges": ("s", "e")}, TypeError, "give ranges=True or cidr=True, or pass a DataFrame"),
    ]:
        with pytest.raises(error, match=message):
            zero_kv.bake(rows, tmp_path / "t.db", **options)
    assert not list(tmp_path.iterdir())


def test_text_that_looks_like_addresses_or_uuids_causes_a_warning_when_it_becomes_bytes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t.db"
    addresses = {f"10.0.0.{number}": b"x" for number in range(5)}
    uuids = {f"0190163d-8694-739b-aea5-966c26f8ad9{number}": b"x" for number in range(5)}
    expected = r'look like IP addresses.*10\.0\.0\.0 precedes 9\.0\.0\.0.*\(keys="ip"\)'
    with pytest.warns(UserWarning, match=expected) as found:
        zero_kv.bake(addresses, path)
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=r'look like UUIDs.*36 bytes instead of 16.*\(keys="uuid"\)'):
        zero_kv.bake(pandas.DataFrame({"id": list(uuids), "value": "x"}), path, keys="bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, options in [
            (addresses, {"keys": "ip"}),
            (uuids, {"keys": "uuid"}),
            (addresses | {"none": b"x"}, {}),
            ({"10.0.0.0/8": b"x"}, {"cidr": True}),
        ]:
            zero_kv.bake(rows, path, allow_key_type_change=True, **options)
        before = path.read_bytes()
        with pytest.raises(UserWarning, match="look like IP addresses"):
            zero_kv.bake(addresses, path, allow_key_type_change=True)
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_matrix_of_first_and_last_keys_is_ranges(tmp_path: pathlib.Path) -> None:
    ends = numpy.array([[1, 4], [5, 9]], dtype="uint64")
    for layout in ("fast", "compact"):
        zero_kv.bake((ends, numpy.array([1.5, 2.5])), tmp_path / "t.db", ranges=True, layout=layout)
        with zero_kv.open(tmp_path / "t.db") as table:
            assert table.cover_columns([4, 5, 10], fill=0).tolist() == [[1.5], [2.5], [0.0]]
