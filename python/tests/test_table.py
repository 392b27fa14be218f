"""Promises of a table as a mapping, opened from a file or transferred by a server."""

from __future__ import annotations

import bisect
import collections.abc
import contextlib
import gc
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest

import zero_kv
from support import number_rows, seeded, serving, text_rows


@contextlib.contextmanager
def opened(how: str, path: pathlib.Path) -> Iterator[zero_kv.Table]:
    if how == "open":
        yield zero_kv.open(path)
    else:
        with serving(path) as server:
            yield zero_kv.Direct(server.path)


@pytest.mark.parametrize("how", ["open", "direct"])
@pytest.mark.parametrize("rows_of", [number_rows, text_rows])
def test_a_table_behaves_like_a_sorted_dict(how: str, rows_of: Any, tmp_path: pathlib.Path) -> None:
    rng = seeded(f"table {how} {rows_of.__name__}")
    rows = rows_of(rng, 3000)
    zero_kv.bake(rows, tmp_path / "table.db")
    keys = sorted(rows)
    others = [key for key in rows_of(rng, 200) if key not in rows]
    with opened(how, tmp_path / "table.db") as table:
        assert len(table) == len(rows)
        assert list(table) == keys == list(table.keys())
        assert list(reversed(table)) == keys[::-1]
        assert list(table.items()) == [(key, rows[key]) for key in keys]
        assert list(table.values()) == [rows[key] for key in keys]
        assert (table.first(), table.last()) == ((keys[0], rows[keys[0]]), (keys[-1], rows[keys[-1]]))
        for key in rng.sample(keys, 300):
            assert table[key] == table.get(key) == rows[key] and key in table
            assert table.view(key) == rows[key]
        for key in others:
            assert key not in table and table.get(key) is None and table.get(key, 7) == 7
            with pytest.raises(KeyError) as raised:
                table[key]
            assert raised.value.args == (key,)
            with pytest.raises(KeyError):
                table.view(key)
        for key in rng.sample(keys, 100) + others:
            at = bisect.bisect_right(keys, key)
            assert table.floor(key) == ((keys[at - 1], rows[keys[at - 1]]) if at else None)
            at = bisect.bisect_left(keys, key)
            assert table.ceiling(key) == ((keys[at], rows[keys[at]]) if at < len(keys) else None)
        for _ in range(100):
            start, end = rng.choice([None, *keys, *others]), rng.choice([None, *keys, *others])
            first = 0 if start is None else bisect.bisect_left(keys, start)
            last = len(keys) if end is None else bisect.bisect_left(keys, end)
            found = table.range(start, end)
            expected = [(key, rows[key]) for key in keys[first:last]]
            assert (len(found), list(found), list(reversed(found))) == (len(expected), expected, expected[::-1])
        asked = rng.choices(keys + others, k=5000)
        assert table.get_many(asked) == [rows.get(key) for key in asked]
        assert table.get_many(iter(asked)) == table.get_many(tuple(asked)) == table.get_many(asked)
        assert table.get_many([]) == []


def test_a_prefix_selects_the_keys_that_start_with_it(tmp_path: pathlib.Path) -> None:
    rng = seeded("prefix")
    rows = text_rows(rng, 2000)
    zero_kv.bake(rows, tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    for prefix in [b"", b"\xff", b"\xff\xff", *(key[: rng.randrange(4)] for key in rng.sample(sorted(rows), 50))]:
        found = table.prefix(prefix)
        assert list(found) == sorted(row for row in rows.items() if row[0].startswith(prefix))
        assert len(found) == len(list(found))
    with pytest.raises(TypeError, match="the prefix is of type int"):
        table.prefix(7)  # type: ignore[arg-type]


def test_a_range_is_lazy(tmp_path: pathlib.Path) -> None:
    """An iteration reads rows only when it needs them."""
    zero_kv.bake(((key, bytes(1000)) for key in range(20_000)), tmp_path / "table.db")
    with open(tmp_path / "table.db", "r+b") as file:
        # The middle of the file is within the records.
        file.seek(10_000_000)
        file.write(b"?" * 1000)
    table = zero_kv.open(tmp_path / "table.db", verify="touch")
    rows = table.range(5, 20_000)
    assert len(rows) == 19_995
    loop = iter(rows)
    assert [next(loop)[0] for _ in range(3)] == [5, 6, 7]
    assert loop.__length_hint__() == 19_992  # type: ignore[attr-defined]
    with pytest.raises(zero_kv.Damaged):
        list(loop)


def test_keys_of_the_other_kind_are_type_errors(numbers: pathlib.Path) -> None:
    table = zero_kv.open(numbers, strict=True)
    for ask in (table.__getitem__, table.get, table.__contains__, table.floor, table.view, table.prefix):
        with pytest.raises(zero_kv.KeyKind, match="keys of this table are unsigned 64-bit numbers") as raised:
            ask("seven")
        assert isinstance(raised.value, TypeError) and isinstance(raised.value, zero_kv.Error)
    with pytest.raises(zero_kv.KeyKind, match="key 2 is of another kind"):
        table.get_many([1, 2, b"3"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="the key is of type float, where int, bytes or str was expected"):
        table[1.0]  # type: ignore[index]
    with pytest.raises(TypeError, match="keys are of type str, where many keys were expected"):
        table.get_many("123")
    for key in (-1, 2**64):
        with pytest.raises(OverflowError, match=f"the key is {key}, where 0 to 18446744073709551615"):
            table.get(key)


def test_text_is_encoded_as_utf_8(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({"straße": "gerade", b"\xff": b"\xfe"}, tmp_path / "table.db")
    table = zero_kv.open(tmp_path / "table.db")
    assert table["straße"] == table["straße".encode()] == b"gerade"
    assert list(table) == ["straße".encode(), b"\xff"] and table.key_type == "bytes"


def test_a_table_is_a_mapping(numbers: pathlib.Path) -> None:
    table = zero_kv.open(numbers)
    assert isinstance(table, collections.abc.Mapping)
    assert dict(table) == dict(table.items()) and dict(table)[4] == b"value of 4"
    assert repr(table) == f'<zero_kv.Table "{numbers}", 2000 rows, keys u64>'
    assert table.file_len_bytes == numbers.stat().st_size and len(table.digest) == 32


@pytest.mark.parametrize("memory", ["map", "copy"])
def test_a_view_keeps_its_value_in_memory(numbers: pathlib.Path, memory: Literal["map", "copy"]) -> None:
    table = zero_kv.open(numbers, memory=memory)
    view = table.view(6)
    assert isinstance(view, memoryview) and view.readonly and view == b"value of 6"
    with pytest.raises(TypeError):
        view[0] = 1
    del table
    gc.collect()
    numbers.write_bytes(bytes(numbers.stat().st_size))
    assert view == b"value of 6"
    # The view of a file that other processes can change has a copy of the value, and does not keep the mapping.
    assert str(numbers) not in pathlib.Path("/proc/self/maps").read_text()


def test_tables_are_pickled_by_their_path(numbers: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(numbers.parent)
    packed = pickle.dumps(zero_kv.open("numbers.db", verify="touch"))
    monkeypatch.chdir("/")
    assert pickle.loads(packed)[8] == b"value of 8"


def test_a_table_is_pickled_with_its_absolute_path(numbers: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(numbers.parent)
    table = zero_kv.open(numbers.name)
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(table))[2] == table[2]


def test_numbers_of_any_length_and_interrupts_are_reported(numbers: pathlib.Path) -> None:
    class Interrupting:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    table: Any = zero_kv.open(numbers, strict=True)
    with pytest.raises(OverflowError, match="the key is too large to write, where 0 to"):
        table.get(10**5000)
    with pytest.raises(KeyboardInterrupt):
        table.get(Interrupting())


def test_keys_support_membership_tests(numbers: pathlib.Path) -> None:
    table = zero_kv.open(numbers)
    assert 2 in table.keys() and 3 not in table.keys()
    assert table[2] in table.values() and b"" not in table.values()
    assert (2, table[2]) in table.items() and (2, b"") not in table.items() and 2 not in table.range(0, 4)


def test_invalid_files_raise_exceptions_with_the_names_of_the_files(tmp_path: pathlib.Path, numbers: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: bake the file with zero_kv.bake") as missing:
        zero_kv.open(tmp_path / "missing.db")
    assert missing.value.filename == str(tmp_path / "missing.db")
    # A folder, as a server's socket, is no file that can be opened.
    with pytest.raises(OSError, match="is not a regular file: pass a baked file, or connect to a server") as folder:
        zero_kv.open(tmp_path)
    assert str(tmp_path) in str(folder.value)
    with pytest.raises(FileNotFoundError) as unwritable:
        zero_kv.bake({1: b""}, tmp_path / "no" / "table.db")
    assert str(unwritable.value.filename).startswith(str(tmp_path / "no"))
    whole = numbers.read_bytes()
    for name, content in [("cut.db", whole[:-100]), ("flipped.db", whole[:300] + bytes([whole[300] ^ 1]) + whole[301:]), ("no.db", b"")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(zero_kv.Damaged, match=name):
            zero_kv.open(tmp_path / name)
    with pytest.raises(ValueError, match='verify is "never", where "full" or "touch" was expected'):
        zero_kv.open(numbers, verify="never")  # type: ignore[arg-type]


def test_a_file_changed_in_place_raises_damaged_and_returns_no_wrong_value(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake({key: bytes(100) for key in range(10_000)}, path)
    for how in ("map", "copy"):
        table = zero_kv.open(path, verify="touch", memory=how)  # type: ignore[arg-type]
        assert table[7] == bytes(100)
        whole = path.read_bytes()
        # Changes are detected by the modification time, whose clock advances in steps.
        os.utime(path, ns=(0, 0))
        with open(path, "r+b") as file:
            file.write(b"?" * 5000)
        if how == "copy":
            assert table[7] == bytes(100)
        else:
            for ask in (lambda: table[7], lambda: table.get_many([1, 2]), lambda: table.floor(3)):
                with pytest.raises(zero_kv.Damaged):
                    ask()
        path.write_bytes(whole)


@pytest.mark.parametrize("before", ["pass", "import faulthandler; faulthandler.enable()"])
def test_a_truncated_file_does_not_end_the_process(before: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    zero_kv.bake({key: bytes(100) for key in range(50_000)}, path)
    script = """
import os, sys, zero_kv
exec(sys.argv[2])
table = zero_kv.open(sys.argv[1], verify="touch")
os.truncate(sys.argv[1], 4096)
try:
    table.get_many(range(50_000))
except zero_kv.Damaged:
    print("damaged")
"""
    ran = subprocess.run([sys.executable, "-c", script, path, before], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "damaged\n"), ran.stderr
