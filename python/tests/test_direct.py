"""Promises of `Direct` in addition to those of `Table`, which test_table.py tests."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

import zero_kv
from conftest import ROWS
from support import Server, lets_other_threads_run, serving


def test_lookups_use_a_new_table(server: Server) -> None:
    direct = zero_kv.Direct(server.path)
    assert isinstance(direct, zero_kv.Table) and direct.generation == 1 and direct.is_connected
    old = direct.snapshot()
    rows, view = direct.range(0, 10), direct.view(2)
    for number in range(2, 12):
        zero_kv.bake({2: f"generation {number}"}, server.file)
        while direct[2] != f"generation {number}".encode():
            pass
    assert (len(direct), direct.get(4), direct.generation) == (1, None, 11)
    # Snapshots of the old table remain usable.
    assert len(old) == len(ROWS) and old[4] == ROWS[4] and view == ROWS[2]
    assert list(rows) == [(key, ROWS[key]) for key in range(0, 10, 2)]


def test_refresh_waits_for_the_served_table(server: Server) -> None:
    direct = zero_kv.Direct(server.path)
    with zero_kv.Client(server.path) as client:
        zero_kv.bake({2: "new"}, server.file)
        while client.get(2) == ROWS[2]:
            pass
    direct.refresh()
    assert direct[2] == b"new"


def test_many_keys_are_looked_up_in_one_table(server: Server) -> None:
    zero_kv.bake(((key, "0") for key in range(1000)), server.file)
    direct, stop, mixed = zero_kv.Direct(server.path), threading.Event(), set()
    seen: set[bytes | None] = set()

    def ask() -> None:
        while not stop.is_set():
            found = set(direct.get_many(range(1000)))
            if len(found) != 1:
                mixed.add(frozenset(found))
            seen.update(found)

    direct.refresh()
    while len(direct) != 1000:
        pass
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        zero_kv.bake(((key, str(number)) for key in range(1000)), server.file)
        while direct[0] != str(number).encode():
            pass
    stop.set()
    for thread in threads:
        thread.join()
    assert not mixed and len(seen) > 1


def test_lookups_continue_without_a_server_and_use_the_next_one(server: Server) -> None:
    direct = zero_kv.Direct(server.path)
    server.stop(signal.SIGKILL)
    while direct.is_connected:
        assert direct[2] == ROWS[2]
    zero_kv.bake({2: "new"}, server.file)
    assert direct[2] == ROWS[2]
    server.start()
    while direct[2] == ROWS[2]:
        pass
    assert direct[2] == b"new"


def test_a_child_process_follows_new_tables(server: Server) -> None:
    direct = zero_kv.Direct(server.path)
    assert direct[2] == ROWS[2]
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        assert direct[2] == ROWS[2]
        os.read(read_end, 1)
        while direct[2] == ROWS[2]:
            pass
        os._exit(0 if direct[2] == b"new" else 1)
    os.close(read_end)
    zero_kv.bake({2: "new"}, server.file)
    while direct[2] == ROWS[2]:
        pass
    os.close(write_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_of_a_child_process_share_one_transfer(server: Server) -> None:
    direct = zero_kv.Direct(server.path, connect_timeout=60.0)
    child = os.fork()
    if child == 0:
        barrier = threading.Barrier(16)
        found: list[bytes] = []

        def look_up() -> None:
            barrier.wait()
            found.append(direct[2])

        threads = [threading.Thread(target=look_up) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while len(os.listdir("/proc/self/task")) > 2:
            pass  # Waits until the threads of unused transfers have ended.
        is_one = len(os.listdir("/proc/self/task")) == 2
        os._exit(0 if is_one and found == [ROWS[2]] * 16 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_server_without_direct_mode_raises_an_exception(numbers: pathlib.Path) -> None:
    with serving(numbers, "--no-direct") as server:
        with pytest.raises(zero_kv.DirectRefused):
            zero_kv.Direct(server.path)
        with pytest.raises(zero_kv.NotRunning):
            zero_kv.Direct(str(numbers) + ".no.sock")


def test_a_copy_needs_no_file(server: Server) -> None:
    direct = zero_kv.Direct(server.path, memory="copy")
    os.truncate(server.file, 0)
    assert direct.snapshot()[2] == ROWS[2]


def test_other_threads_run_during_a_batch(server: Server) -> None:
    numpy = pytest.importorskip("numpy")
    direct = zero_kv.Direct(server.path)
    keys = numpy.arange(1, 4_000_000, 2, dtype=numpy.uint64)
    assert lets_other_threads_run(lambda: direct.get_many(keys, dtype="V10"))


def test_a_process_can_exit_with_an_open_direct(server: Server) -> None:
    """The thread that watches the server does not block the exit."""
    script = "import sys, zero_kv; direct = zero_kv.Direct(sys.argv[1]); print(direct[2].decode())"
    ran = subprocess.run([sys.executable, "-c", script, server.path], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "value of 2\n", "")
