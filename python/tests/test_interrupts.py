"""Ctrl-C stops long calls."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import zero_kv
from support import PROGRAMS, cluster_of, serving, started

# Each program prints "begun", makes calls until a signal arrives, and prints "stopped" if it was KeyboardInterrupt.
PROGRAM = """
import itertools, os, signal, sys, time, numpy, pyarrow, zero_kv
path, socket = sys.argv[1:3]
ids = numpy.arange(10_000_000, dtype=numpy.uint64)
table = zero_kv.open(path, verify="touch")
client = zero_kv.Client(socket) if socket else None
def begun():
    print("begun", flush=True)
def stop(process):
    os.kill(process, signal.SIGSTOP)
    tasks = [f"/proc/{process}/task/{task}/stat" for task in os.listdir(f"/proc/{process}/task")]
    # Until all threads have stopped, the process may still respond.
    while any(open(task).read().rpartition(")")[2].split()[0] != "T" for task in tasks):
        time.sleep(0.001)
try:
    {statement}
except KeyboardInterrupt:
    print("stopped")
"""

STATEMENTS = {
    "get_many of an array": "begun(); [table.get_many(ids) for _ in range(1000)]",
    "get_many of a list": "keys = ids.tolist(); begun(); [table.get_many(keys) for _ in range(1000)]",
    "get_many with a dtype": "begun(); [table.get_many(ids, dtype='V4') for _ in range(1000)]",
    "get_many of an Arrow array": "keys = pyarrow.array(ids); begun(); [table.get_many(keys) for _ in range(1000)]",
    "floor_many": "begun(); [table.floor_many(ids) for _ in range(1000)]",
    "a list of all rows": "begun(); [list(table.items()) for _ in itertools.count()]",
    "a dict of all rows": "begun(); [dict(table) for _ in itertools.count()]",
    "a sum of all keys": "begun(); [sum(table) for _ in itertools.count()]",
    "columns": "out = numpy.empty((len(ids), 1), 'i4'); begun(); [table.columns(ids, ['v'], out=out) for _ in itertools.count()]",
    "columns of several types": "begun(); [table.columns(ids, format='arrow') for _ in itertools.count()]",
    "a client's get_many": "begun(); [client.get_many(ids) for _ in range(1000)]",
    "a client's rows": "begun(); [list(client.items()) for _ in itertools.count()]",
    "a bake": "begun(); zero_kv.bake(((i, (i & 255,)) for i in itertools.count()), path + '.new', types={'v': 'i32'})",
    "a bake of a matrix": "m = numpy.zeros((3_000_000, 4), 'f4'); begun(); "
    "[zero_kv.bake((ids[:3_000_000], m), path + '.new') for _ in itertools.count()]",
}


def interrupt(statement: str, path: pathlib.Path, socket: str) -> str:
    command = [sys.executable, "-c", PROGRAM.replace("{statement}", statement), path, socket]
    with started(command, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line == "begun\n", process.stderr.read()
        # The pipe is empty, so this only gives the call time to begin.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return out + err


@pytest.mark.parametrize("name", STATEMENTS)
def test_ctrl_c_stops_a_call(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "table.db"
    types = {"v": "i32"} if name.startswith("columns") else None
    zero_kv.bake(((i, (i & 255,) if types else b"four") for i in range(1_000_000)), path, types=types, duplicates="error")
    with serving(path) as server:
        statement = STATEMENTS[name].replace("ids)", "ids % 1_000_000)") if name == "columns" else STATEMENTS[name]
        statement = statement.replace("table.columns(ids", "table.columns(ids % 1_000_000")
        assert interrupt(statement, path, server.path) == "stopped\n"
        files = {path.name, pathlib.Path(server.path).name}
        left = {name for name in os.listdir(tmp_path) if not name.endswith(".new")} - files
        assert not left, "a stopped bake leaves no temporary files"
        if name == "a bake":
            assert not (tmp_path / "table.db.new").exists()


def test_ctrl_c_ends_the_wait_for_a_server_that_hangs(tmp_path: pathlib.Path) -> None:
    assert (PROGRAMS / "kv_store").exists()
    zero_kv.bake({1: "a"}, tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server, server.paused():
        command = "socket = sys.argv[2]; begun(); zero_kv.Client(socket).get(1)"
        program = command.replace("zero_kv.Client(socket).get(1)", "client.get(1)")
        assert interrupt(f"client = zero_kv.Client(sys.argv[2]); {program}", tmp_path / "table.db", server.path) == "stopped\n"


def test_ctrl_c_ends_the_wait_for_a_node_that_hangs(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({1: "a"}, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 1) as cluster:
        address, node = cluster.addresses()[0], cluster.servers["p0"].process.pid
        connect = f"client = zero_kv.ClusterClient({address!r}, timeout=600)"
        calls = f"stop({node}); begun(); client.get(1)"
        assert interrupt(f"{connect}; {calls}", tmp_path / "table.db", "") == "stopped\n"


def test_ctrl_c_stops_calls_to_several_nodes(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({key: "a" for key in range(1000)}, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2) as cluster:
        connect = f"client = zero_kv.ClusterClient({cluster.addresses()!r})"
        calls = "begun(); [client.get_many(ids[:1000]) for _ in itertools.count()]"
        assert interrupt(f"{connect}; {calls}", tmp_path / "table.db", "") == "stopped\n"
