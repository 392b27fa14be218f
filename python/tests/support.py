"""A server for tests, and random rows. Their seed is printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import zero_kv

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = pathlib.Path(os.environ.get("ZERO_KV_BIN", HERE.parents[1] / "target" / "debug"))


class Server:
    """A `kv_store` that serves a file on a socket in the same directory."""

    def __init__(self, file: pathlib.Path, *arguments: str) -> None:
        self.file = file
        self.path = str(file.with_suffix(".sock"))
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        program = PROGRAMS / "kv_store"
        assert program.exists(), f"{program} is missing: cargo build --features full, or set ZERO_KV_BIN to its directory"
        command = [program, "--db", self.file, "--socket", self.path, *self._arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if "ready on" in line:
                return
        raise AssertionError(f"kv_store ended: {''.join(seen)}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.communicate()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process with SIGSTOP, and continue it at the end."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def serving(file: pathlib.Path, *arguments: str) -> Iterator[Server]:
    server = Server(file, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


def lets_other_threads_run(call: Callable[[], object]) -> bool:
    """Return whether this thread runs while another thread makes the call.

    On a busy machine, the system can also pause this thread for most of a call, so the call is repeated. A call that
    holds the interpreter lock pauses this thread every time.
    """
    return any(longest_pause(call) < 0.5 for _ in range(10))


def longest_pause(call: Callable[[], object]) -> float:
    """Make a call in another thread. Return the longest pause of this thread, divided by the duration of the call."""
    times: list[float] = []
    begun = threading.Event()

    def make() -> None:
        begun.set()
        times.append(time.perf_counter())
        call()
        times.append(time.perf_counter())

    thread = threading.Thread(target=make)
    thread.start()
    begun.wait()
    pause, before = 0.0, time.perf_counter()
    while len(times) < 2 and thread.is_alive():
        now = time.perf_counter()
        pause, before = max(pause, now - before), now
    thread.join()
    pause = max(pause, time.perf_counter() - before)
    return pause / (times[1] - times[0])


def seeded(name: str) -> random.Random:
    """Return a generator with a new seed in each run, unless ZERO_KV_SEED sets it."""
    seed = os.environ.get("ZERO_KV_SEED") or str(random.SystemRandom().getrandbits(64))
    print(f"{name}: ZERO_KV_SEED={seed}")
    return random.Random(f"{name} {seed}")


def number_rows(rng: random.Random, count: int) -> dict[int, bytes]:
    """Return rows with keys of all magnitudes and values of 0 to 40 bytes."""
    keys = {rng.getrandbits(rng.choice((8, 32, 64))) for _ in range(count)} | {0, 2**64 - 1}
    return {key: rng.randbytes(rng.randrange(41)) for key in keys}


def text_rows(rng: random.Random, count: int) -> dict[bytes, bytes]:
    keys = {rng.randbytes(rng.randrange(1, 12)) for _ in range(count)} | {b"\x00", b"\xff", b"\xff\xff"}
    return {key: rng.randbytes(rng.randrange(41)) for key in keys}


class BlockingCalls:
    """The methods of an asyncio client, as methods that block."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any, **options: Any) -> Any:
            async def call() -> Any:
                async with zero_kv.AsyncClient(self._path) as client:
                    return await getattr(client, name)(*arguments, **options)

            return asyncio.run(call())

        return method


def published(url: str, folder: pathlib.Path, name: str = "cache") -> dict[Any, Any]:
    """Return the rows of the newest generation of a published table."""
    with zero_kv.Published(url, cache=folder / name) as table:
        return {key: value if isinstance(value, bytes) else dict(value) for key, value in table.items()}
