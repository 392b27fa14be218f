"""A server for tests, and random rows. Their seed is printed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import uvloop

import zero_kv

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = pathlib.Path(os.environ.get("ZERO_KV_BIN", HERE.parents[1] / "target" / "debug"))


# Event loops that run the calls of asyncio clients.
LOOPS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {
    "asyncio": asyncio.run,
    "uvloop": uvloop.run,
    "anyio": lambda calls: anyio.run(lambda: calls, backend="asyncio"),
    "anyio on uvloop": lambda calls: anyio.run(lambda: calls, backend="asyncio", backend_options={"use_uvloop": True}),
}


def check_facts(info: zero_kv.ServerInfo) -> None:
    """Check that facts about a server have the types that `ServerInfo` declares."""
    declared = zero_kv.ServerInfo.__annotations__
    names = {"str": str, "int": int, "float": float, "bool": bool}
    for name, value in info.items():
        kind = declared[name]
        assert type(value) is names[getattr(kind, "__forward_arg__", getattr(kind, "__name__", kind))], name


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Server:
    """A `kv_store` that serves a file on a socket in the same directory, by default with the name of the file. With the URL
    of a published table, the file is the folder in which the server keeps generations.
    """

    def __init__(
        self, file: pathlib.Path, *arguments: str, socket_name: str | None = None, url: str | None = None
    ) -> None:
        self.file = file
        self.path = str(file.with_name(socket_name) if socket_name else file.with_suffix(".sock"))
        self._arguments = ["--db", file] if url is None else ["--from", url, "--cache", file]
        self._arguments += arguments
        self.start()

    def start(self) -> None:
        program = PROGRAMS / "kv_store"
        assert program.exists(), f"{program} is missing: cargo build --features full, or set ZERO_KV_BIN to its directory"
        command = [program, "--socket", self.path, *self._arguments]
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
def serving(file: pathlib.Path, *arguments: str, url: str | None = None) -> Iterator[Server]:
    server = Server(file, *arguments, url=url)
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


def bake_text(path: pathlib.Path, rows: str, *arguments: str) -> pathlib.Path:
    """Bake CSV with the program, which has options that the package lacks. Return the path."""
    text = path.with_suffix(".csv")
    text.write_text(rows)
    subprocess.run([PROGRAMS / "baker", "--quiet", *arguments, "-o", path, text], check=True, capture_output=True)
    return path


class BlockingCalls:
    """The methods of an asyncio client, as methods that block. `connect` returns the client."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any, **options: Any) -> Any:
            async def call() -> Any:
                async with self._connect() as client:
                    result = getattr(client, name)(*arguments, **options)
                    return [row async for row in result] if hasattr(result, "__aiter__") else await result

            return asyncio.run(call())

        return method


def free_port() -> int:
    """Return a port below those that Linux gives to outgoing connections, so that a server can be restarted on it."""
    while True:
        port = random.SystemRandom().randrange(11_000, 31_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Cluster:
    """Nodes that serve a table, divided into shards, each with the same number of replicas. The topology is in a file."""

    def __init__(self, file: pathlib.Path, shards: int, replicas: int = 0, *arguments: str) -> None:
        self._arguments = arguments
        self.folder = file.parent
        self.topology_file = self.folder / "topology.json"
        shard_folder = self.folder / "shards"
        if shards == 1:
            shard_folder.mkdir()
            shutil.copy(file, shard_folder / "0-16383.db")
        else:
            merge = [PROGRAMS / "baker", "merge", file, "--quiet", "--shards", str(shards), "-o", shard_folder]
            subprocess.run(merge, check=True)
        self.files = sorted(shard_folder.glob("*.db"), key=lambda file: int(file.stem.split("-")[0]))
        assert len(self.files) == shards
        self.nodes: list[dict[str, Any]] = []
        for number, shard in enumerate(self.files):
            primary = {"id": f"p{number}", "role": "primary", "slots": [shard.stem], "zone": "east"}
            self.nodes.append(primary)
            for replica in range(replicas):
                name = f"r{number}-{replica}"
                self.nodes.append({"id": name, "role": "replica", "primary": primary["id"], "zone": "west"})
        for node in self.nodes:
            node |= {"host": "127.0.0.1", "port": free_port()}
        self.write_topology(1)
        self.servers: dict[str, Server] = {}
        try:
            for node in self.nodes:
                self.start(node)
        except BaseException:
            self.stop()
            raise

    def write_topology(self, number: int) -> None:
        new = self.topology_file.with_suffix(".new")
        new.write_text(json.dumps({"format": 1, "number": number, "nodes": self.nodes}))
        new.rename(self.topology_file)

    def start(self, node: dict[str, Any]) -> None:
        shard = int((node.get("primary") or node["id"])[1:])
        file, address = self.files[shard], f"127.0.0.1:{node['port']}"
        arguments = ["--slots", file.stem, "--tcp", address, "--cluster", "--node", node["id"], "--announce", address]
        arguments += ["--topology", str(self.topology_file), *self._arguments]
        self.servers[node["id"]] = Server(file, *arguments, socket_name=f"{node['id']}.sock")

    def stop(self) -> None:
        for server in self.servers.values():
            if server.process.poll() is None:
                server.stop(signal.SIGKILL)

    def addresses(self) -> list[str]:
        return [f"zkv://127.0.0.1:{node['port']}" for node in self.nodes]


@contextlib.contextmanager
def cluster_of(file: pathlib.Path, shards: int, replicas: int = 0, *arguments: str) -> Iterator[Cluster]:
    """Run a cluster. Each node gets the further arguments."""
    cluster = Cluster(file, shards, replicas, *arguments)
    try:
        yield cluster
    finally:
        cluster.stop()


def published(url: str, folder: pathlib.Path, name: str = "cache") -> dict[Any, Any]:
    """Return the rows of the newest generation of a published table."""
    with zero_kv.Published(url, cache=folder / name) as table:
        return {key: value if isinstance(value, bytes) else dict(value) for key, value in table.items()}


class HostileNode:
    """A node that answers each request as a test specifies. `answer` gets the port of the node and the op of the request. It
    returns the status and the value of the response, or `None` to disconnect.
    """

    TOPOLOGY = 15
    KEY_TYPE = 17
    MOVED = (6, b"")

    def __init__(self, answer: Callable[[int, int], tuple[int, bytes] | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"zkv://127.0.0.1:{self.port}"
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(16, socket.MSG_WAITALL):
                self.requests += 1
                response = self._answer(self.port, int.from_bytes(request[:4], "big"))
                if response is None:
                    return
                status, value = response
                connection.sendall(status.to_bytes(4, "big") + len(value).to_bytes(4, "big") + value)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def started(command: list[Any], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process whose output is text, and wait for its end. If the block fails, the process is killed: nothing else
    would end it.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def topology_of(*nodes: dict[str, Any]) -> bytes:
    """Return a topology document."""
    return json.dumps({"format": 1, "number": 1, "nodes": nodes}).encode()
