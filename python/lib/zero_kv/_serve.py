"""Starts a server for tests and notebooks."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Self, Unpack, cast

from zero_kv._aio import AsyncClient
from zero_kv._native import Client, Direct
from zero_kv._options import ClientOptions, DirectOptions
from zero_kv.errors import NotRunning, TimedOut

_LOG_LINES = 200
# Waits until this process ends or closes the pipe, then stops the server and removes its folder.
_WATCH = 'read -r _; kill "$1" 2>/dev/null; [ -z "$2" ] || rm -rf -- "$2"'


def serve(
    path: str | os.PathLike[str],
    *,
    socket: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    program: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
) -> Server:
    """Start a server for a baked file, and return when it is ready. The server is for tests and notebooks: `with` or
    `close` stops it, and it stops when this process ends, however it ends.

    By default, the socket is in a new folder that only this user can use, and `Server.address` is its path. `options` are
    further options of `kv_store`, such as `["--workers", "2"]`. The server is the program `kv_store`: `program` if it is
    given, otherwise the one next to this Python, the one in `PATH`, or the one in the folder `$ZERO_KV_BIN`.

    The log of the server is in `Server.log`, and its warnings and errors are also written to standard error.

    Raises `NotRunning` with the server's log if the server ends before it is ready, `TimedOut` if it is not ready within
    `timeout` seconds, and `FileNotFoundError` if there is no such file or no such program.

    >>> with zero_kv.serve("names.db") as server, server.client() as client:  # doctest: +SKIP
    ...     client[128512]
    """
    return Server(path, socket, options, program, timeout)


class Server:
    """A running server, which `serve` has started."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        socket: str | os.PathLike[str] | None,
        options: Sequence[str],
        program: str | os.PathLike[str] | None,
        timeout: float,
    ) -> None:
        file = pathlib.Path(path)
        found = find_program(program)
        if not file.is_file():
            raise FileNotFoundError(2, "the table to serve does not exist: bake it with zero_kv.bake", str(file))
        folder = tempfile.mkdtemp(prefix="zero-kv-") if socket is None else None
        self.path: pathlib.Path = file
        """The path of the served file."""
        self.address: str = os.path.join(folder, "zero-kv.sock") if folder is not None else os.fspath(socket or "")
        """The path of the server's socket."""
        self._lines: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self._is_ready = threading.Event()
        command = [str(found), "--db", str(file), "--socket", self.address, *options]
        # Ctrl-C in a terminal or a notebook interrupts the call, and not the server.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
        self._process = process
        watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "zero-kv-watch", str(process.pid), folder or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stop = weakref.finalize(self, _stop, process, watcher, folder, os.getpid())
        self._reader = threading.Thread(
            target=_read_log, args=(process, self._lines, self._is_ready), name="zero-kv log", daemon=True
        )
        self._reader.start()
        try:
            is_in_time = self._is_ready.wait(timeout)
        except BaseException:
            self.close()
            raise
        if not is_in_time or process.poll() is not None or not self._has_started:
            has_ended = is_in_time
            self.close()
            log = self.log or "no output"
            if has_ended:
                raise NotRunning(f"{file}: kv_store ended with status {process.returncode} before it was ready: {log}")
            raise TimedOut(f"{file}: kv_store was not ready within {timeout} s: raise timeout, or see its log: {log}")

    @property
    def _has_started(self) -> bool:
        return any("ready on" in line for line in self._lines)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """The last 200 lines of the server's log."""
        return "".join(self._lines)

    def client(self, **options: Unpack[ClientOptions]) -> Client[Any, Any]:
        """Return a `Client` of the server. `options` are the arguments of `Client`."""
        return Client(self.address, **options)

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """Return an `AsyncClient` of the server. `options` are the arguments of `AsyncClient`."""
        return AsyncClient(self.address, **options)

    def direct(self, **options: Unpack[DirectOptions]) -> Direct[Any, Any]:
        """Return a `Direct` that looks up in the server's table. `options` are the arguments of `Direct`."""
        return Direct(self.address, **options)

    def close(self) -> None:
        """Stop the server, and remove its socket."""
        self._stop()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = self._process.poll()
        self.close()
        if status is not None and error is not None:
            error.add_note(f"kv_store ended with status {status} before this exception: {self.log}")

    def __repr__(self) -> str:
        state = f"process {self.pid}" if self.is_running else "stopped"
        return f"<zero_kv.Server {str(self.path)!r} on {self.address!r}, {state}>"


def find_program(program: str | os.PathLike[str] | None) -> pathlib.Path:
    """Return the path of `kv_store`."""
    if program is not None:
        candidates = [pathlib.Path(program)]
    else:
        in_path = shutil.which("kv_store")
        candidates = [
            pathlib.Path(sysconfig.get_path("scripts")) / "kv_store",
            pathlib.Path(sys.executable).parent / "kv_store",
            *([pathlib.Path(in_path)] if in_path else []),
            *([pathlib.Path(os.environ["ZERO_KV_BIN"]) / "kv_store"] if "ZERO_KV_BIN" in os.environ else []),
        ]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    looked = ", ".join(dict.fromkeys(map(str, candidates)))
    remedy = "build it with `cargo build --release`, and add its folder to PATH or name the folder in ZERO_KV_BIN"
    raise FileNotFoundError(2, f"the program kv_store is missing (looked at {looked}): {remedy}", "kv_store")


def _read_log(process: subprocess.Popen[str], lines: collections.deque[str], is_ready: threading.Event) -> None:
    """Keep the last lines of the log, and write warnings and errors to standard error."""
    with cast(IO[str], process.stderr) as log:
        for line in log:
            lines.append(line)
            if "ready on" in line:
                is_ready.set()
            elif is_ready.is_set() and (" WARN " in line or " ERROR " in line or "panicked" in line):
                sys.stderr.write(f"kv_store: {line}")
    process.wait()
    is_ready.set()


def _stop(
    process: subprocess.Popen[str], watcher: subprocess.Popen[bytes], folder: str | None, owner_pid: int
) -> None:
    if os.getpid() != owner_pid:
        return  # A child process of a fork does not own the server.
    # First, because the number of a process that has ended can belong to another process later.
    watcher.kill()
    watcher.wait()
    cast(IO[bytes], watcher.stdin).close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
