"""Keys, arrays, and callbacks that change, close, or raise during a call."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import pytest

import zero_kv


@pytest.fixture
def numbers(tmp_path: pathlib.Path) -> pathlib.Path:
    zero_kv.bake({key: key.to_bytes(8, "little") for key in range(5000)}, tmp_path / "numbers.db")
    return tmp_path / "numbers.db"


def test_a_key_that_closes_the_table_causes_no_wrong_value(numbers: pathlib.Path) -> None:
    class Closing:
        def __init__(self, table: zero_kv.Table) -> None:
            self.table = table

        def __index__(self) -> int:
            self.table.close()
            return 7

    calls: list[Any] = [
        lambda table, key: table.get(key),
        lambda table, key: table.get_many([1, key, 2]),
        lambda table, key: table.floor_many([1, key, 2]),
        lambda table, key: list(table.range(key, 100)),
    ]
    for call in calls:
        with zero_kv.open(numbers) as table:
            expected = call(table, 7)
        table = zero_kv.open(numbers)
        try:
            # A call whose lookup has begun ends with the table that was open.
            assert call(table, Closing(table)) == expected
        except zero_kv.Closed as closed:
            assert "the table is closed" in str(closed)
        with pytest.raises(zero_kv.Closed, match="the table is closed"):
            call(table, 7)


def test_keys_that_change_their_list_cause_no_wrong_value(numbers: pathlib.Path) -> None:
    keys: list[Any] = []

    class Clearing:
        def __index__(self) -> int:
            keys.clear()
            return 4

    class Long:
        def __len__(self) -> int:
            return 2**62

        def __getitem__(self, position: int) -> int:
            if position > 5:
                raise IndexError
            return position

    table = zero_kv.open(numbers)
    keys += [Clearing() for _ in range(100)]
    assert table.get_many(keys) == [(4).to_bytes(8, "little")]
    assert table.get_many(Long()) == [key.to_bytes(8, "little") for key in range(6)]  # type: ignore[arg-type]


def test_arrays_of_any_layout_are_read_or_rejected(numbers: pathlib.Path) -> None:
    numpy = pytest.importorskip("numpy")
    table = zero_kv.open(numbers)
    wide = numpy.arange(40, dtype=numpy.uint64)
    for keys in (wide[::2], wide[::-1], wide.astype(">u8"), numpy.broadcast_to(numpy.uint64(5), (1000,))):
        expected = [int(key) for key in keys]
        values, found = table.get_many(keys, dtype=numpy.uint64)
        assert values.tolist() == expected and found.all()
    unaligned = numpy.frombuffer(b"x" + wide.tobytes(), dtype=numpy.uint8)[1:].view(numpy.uint64)
    assert table.get_many(unaligned, dtype=numpy.uint64)[0].tolist() == wide.tolist()
    for wrong in (numpy.array(5, dtype=numpy.uint64), numpy.zeros((3, 3), dtype=numpy.uint64)):
        with pytest.raises((TypeError, ValueError)):
            table.get_many(wrong, dtype=numpy.uint64)


def test_arrays_and_tables_that_other_threads_change_cause_no_crash(numbers: pathlib.Path) -> None:
    numpy = pytest.importorskip("numpy")
    keys, current, stop = numpy.zeros(4000, dtype=numpy.uint64), [zero_kv.open(numbers)], threading.Event()
    unexpected: list[str] = []

    def read() -> None:
        while not stop.is_set():
            try:
                values, found = current[0].get_many(keys, dtype=numpy.uint64)
                # Whatever the other thread writes, all keys are keys of the table.
                if not found.all() or not (values < 5000).all():
                    unexpected.append("value")
                current[0].floor_many(keys[:100])
            except zero_kv.Closed:
                pass
            except BaseException as error:
                unexpected.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for round_number in range(60):
            keys[:] = numpy.arange(round_number, round_number + 4000, dtype=numpy.uint64)
            old, current[0] = current[0], zero_kv.open(numbers)
            old.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert unexpected == []


def test_a_view_outlives_its_table(numbers: pathlib.Path) -> None:
    table = zero_kv.open(numbers)
    view = table.view(5)
    assert view is not None
    copy = memoryview(view)
    table.close()
    del view
    assert bytes(copy) == (5).to_bytes(8, "little") and copy.readonly


def test_rows_and_progress_may_bake_other_tables(tmp_path: pathlib.Path) -> None:
    def rows() -> Any:
        for key in range(10):
            zero_kv.bake({1: b"x"}, tmp_path / "inner.db")
            yield key, b"v"

    assert zero_kv.bake(rows(), tmp_path / "outer.db", keys="u64").rows == 10

    def fail(*_: Any) -> None:
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        zero_kv.bake({key: b"x" for key in range(200_000)}, tmp_path / "failed.db", progress=fail)
    assert not (tmp_path / "failed.db").exists()
