"""Promises of `serve`."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

import zero_kv
from conftest import ROWS
from support import PROGRAMS, started, wait_until


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_KV_BIN", str(PROGRAMS))


def runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_server_runs_until_the_end_of_its_block(numbers: pathlib.Path) -> None:
    with zero_kv.serve(numbers) as server:
        folder = pathlib.Path(server.address).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and server.is_running and "ready on" in server.log
        with server.client() as client, server.direct() as direct:
            assert client[2] == direct[2] == ROWS[2] and len(client) == len(direct) == len(ROWS)
        assert asyncio.run(server.async_client(strict=True).get(2)) == ROWS[2]
        zero_kv.bake({1: "new"}, numbers)
        with server.client() as client:
            wait_until(lambda: client.get(1) == b"new")
        assert repr(server).startswith(f"<zero_kv.Server '{numbers}' on '{server.address}', process ")
    assert not server.is_running and not folder.exists() and not runs(server.pid) and "stopped" in repr(server)
    server.close()


def test_the_socket_and_options_can_be_chosen(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with zero_kv.serve(numbers, socket=tmp_path / "a.sock", options=["--workers", "2"]) as server:
        assert server.address == str(tmp_path / "a.sock")
        assert server.client().info()["workers"] == 2


def test_a_server_without_references_is_stopped(numbers: pathlib.Path) -> None:
    pid = zero_kv.serve(numbers).pid
    wait_until(lambda: not runs(pid))


def test_failures_show_the_output_of_the_server(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"no table")
    with pytest.raises(zero_kv.NotRunning, match=r"kv_store ended with status \d+ before it was ready: (.|\n)*bad\.db"):
        zero_kv.serve(tmp_path / "bad.db")
    with pytest.raises(zero_kv.NotRunning, match="--no-such-option"):
        zero_kv.serve(numbers, options=["--no-such-option"])
    with pytest.raises(FileNotFoundError, match="bake it with zero_kv.bake") as missing:
        zero_kv.serve(tmp_path / "missing.db")
    assert missing.value.filename == str(tmp_path / "missing.db")


def test_a_missing_program_names_the_remedy(numbers: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("ZERO_KV_BIN", "/nowhere")
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="kv_store is missing .*/nowhere/kv_store.*: build it with .* ZERO_KV_BIN"):
        zero_kv.serve(numbers)
    with zero_kv.serve(numbers, program=PROGRAMS / "kv_store") as server:
        assert server.is_running


@pytest.mark.parametrize("end", ["kill -9", "exit", "exception"])
def test_a_server_ends_with_its_process(end: str, numbers: pathlib.Path) -> None:
    ends = {"kill -9": "sys.stdin.read()", "exit": "pass", "exception": "raise SystemExit(3)"}
    script = f"""
import sys, zero_kv
server = zero_kv.serve(sys.argv[1])
print(server.pid, server.address, flush=True)
{ends[end]}
"""
    command = [sys.executable, "-c", script, numbers]
    with started(command, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid, address = process.stdout.readline().split()
        if end == "kill -9":
            assert runs(int(pid))
            process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not runs(int(pid)))
        wait_until(lambda: not os.path.exists(os.path.dirname(address)))


def test_a_server_that_dies_is_noted_in_the_exception(numbers: pathlib.Path) -> None:
    with pytest.raises(zero_kv.Error) as raised, zero_kv.serve(numbers) as server, server.client() as client:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running)
        client.get(2)
    assert any("kv_store ended with status -9" in note for note in raised.value.__notes__)
