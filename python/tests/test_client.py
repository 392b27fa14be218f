"""Promises of `Client`, with a real server."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import socket
import sys
import tempfile
import threading

import pytest

import zero_kv
from conftest import ROWS
from support import Server, seeded, serving, started


def test_the_environment_has_the_default_address(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero_kv.bake({7: b"seven"}, tmp_path / "table.db")

    async def get() -> object:
        async with zero_kv.AsyncClient() as client:
            return await client.get(7)

    with serving(tmp_path / "table.db") as server:
        monkeypatch.setenv("ZERO_KV_SOCKET", str(server.path))
        with zero_kv.Client() as client:
            assert client.get(7) == b"seven"
        assert zero_kv.Direct()[7] == b"seven"
        assert asyncio.run(get()) == b"seven"
    monkeypatch.setenv("ZERO_KV_SOCKET", "zkv://127.0.0.1:1")
    with pytest.raises(zero_kv.NotRunning, match="zkv://127.0.0.1:1"):
        zero_kv.Client()
    with pytest.raises(zero_kv.NotRunning, match="zkv://127.0.0.1:1"):
        asyncio.run(get())


def test_values_longer_than_all_buffers_are_complete(tmp_path: pathlib.Path) -> None:
    rng = seeded("long values")
    rows = {key: rng.randbytes(rng.choice((0, 1, 100_000, 5_000_000))) for key in range(30)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as client:
        assert client.get_many(list(rows) * 3) == list(rows.values()) * 3
        assert all(client.get(key) == value for key, value in rows.items())


def test_each_failure_raises_its_own_class(server: Server, tmp_path: pathlib.Path) -> None:
    with pytest.raises(zero_kv.NotRunning, match="cannot connect: .*is kv_store running, and on this socket?") as raised:
        zero_kv.Client(tmp_path / "no.sock")
    assert isinstance(raised.value, ConnectionError) and isinstance(raised.value, zero_kv.Error)
    client = zero_kv.Client(server.path, timeout=0.05, strict=True)
    with pytest.raises(zero_kv.KeyKind, match="keys of this table are unsigned 64-bit numbers"):
        client.get("seven")
    assert client.get(2) == ROWS[2], "the connection remains usable"
    with pytest.raises(ValueError, match="a key of 0 bytes, where 1 to 65535 are allowed"):
        client.get("")
    with pytest.raises(zero_kv.KeyKind, match="use keys of one kind"):
        client.count(1, "b")
    with pytest.raises(ValueError, match="timeout is -1"):
        zero_kv.Client(server.path, timeout=-1)
    with server.paused(), pytest.raises(zero_kv.TimedOut, match="timed out after .* waiting for a response") as timed_out:
        client.get(2)
    assert isinstance(timed_out.value, TimeoutError)
    assert client.get(2) == ROWS[2], "a new connection is made"
    client.close()
    with pytest.raises(zero_kv.Closed, match="the client is closed"):
        client.get(2)


def test_a_peer_that_is_not_a_server_is_a_protocol_error(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n")
                peer.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with zero_kv.Client(path) as client, pytest.raises(zero_kv.ProtocolError, match="status code"):
            client.get(1)
        thread.join()


def test_calls_survive_a_restart_of_the_server(server: Server) -> None:
    with zero_kv.Client(server.path, reconnect_timeout=30) as client:
        for how in (signal.SIGKILL, signal.SIGTERM) * 3:
            assert client.get(2) == ROWS[2]
            server.stop(how)
            starting = threading.Thread(target=server.start)
            starting.start()
            # The socket may exist without a listener, or not exist.
            assert client.get_many([4, 5, 6]) == [ROWS[4], None, ROWS[6]]
            starting.join()


def test_threads_share_a_client(server: Server) -> None:
    """Other threads run while calls wait for a paused server."""
    with zero_kv.Client(server.path) as client:
        wrong: list[object] = []

        def ask(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(200):
                keys = [rng.randrange(4000) for _ in range(rng.choice((1, 5, 300)))]
                if client.get_many(keys) != [ROWS.get(key) for key in keys] or client.get(keys[0]) != ROWS.get(keys[0]):
                    wrong.append(keys)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        with server.paused():
            for thread in threads:
                thread.start()
            assert all(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_child_process_reconnects(server: Server) -> None:
    """Parent and child make calls at the same time on their own connections, even if the fork happens during calls."""
    with zero_kv.Client(server.path) as client:
        stop = threading.Event()

        wrong: list[object] = []

        def ask() -> None:
            while not stop.is_set():
                found = client.get_many(range(0, 1000))
                if found != [ROWS.get(key) for key in range(0, 1000)]:
                    wrong.append(found)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    are_right = all(client.get(key) == ROWS[key] for key in range(0, 200, 2))
                    os._exit(0 if are_right else 1)
                assert all(client.get(key) == ROWS[key] for key in range(1000, 1200, 2))
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not wrong


def test_clients_and_tables_can_be_pickled_for_worker_processes(server: Server, numbers: pathlib.Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as workers, zero_kv.Client(server.path, timeout=7) as client:
        for table in (client, zero_kv.Direct(server.path), zero_kv.open(numbers)):
            assert workers.map(table.get, range(10)) == [ROWS.get(key) for key in range(10)]
    assert repr(pickle.loads(pickle.dumps(client))) == f'<zero_kv.Client "{server.path}">'


def test_a_client_gets_values_of_a_new_bake(server: Server) -> None:
    with zero_kv.Client(server.path) as client:
        assert client.get(2) == ROWS[2]
        zero_kv.bake({2: "new"}, server.file)
        while client.get(2) == ROWS[2]:
            pass
        assert (client.get(2), client.count()) == (b"new", 1)


def test_redis_py_uses_the_same_socket(server: Server) -> None:
    redis = pytest.importorskip("redis")
    with redis.Redis(unix_socket_path=server.path) as client:
        assert client.get(2) == ROWS[2] and client.get(3) is None
        assert client.mget([2, 3, 4]) == [ROWS[2], None, ROWS[4]]
        assert client.exists(2) == 1
        with client.pipeline(transaction=False) as pipeline:
            for key in range(100):
                pipeline.get(key)
            assert pipeline.execute() == [ROWS.get(key) for key in range(100)]


OTHER_USERS_SERVER = """
import os, socket, sys
os.setuid(4321)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    received = 0
    while request := connection.recv(16, socket.MSG_WAITALL):
        received += len(request)
        # The type of the keys is bytes, and no key is found.
        connection.sendall(bytes(7) + b"\\x05bytes" if request[3] == 17 else bytes([0, 0, 0, 1, 0, 0, 0, 0]))
    print("requests" if received else "none", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="starting a server as another user requires root")
def test_a_server_of_another_user_in_a_shared_directory_must_be_named() -> None:
    async def ask(path: str, user: str | int | None) -> object:
        async with zero_kv.AsyncClient(path, server_user=user) as client:
            return await client.get_bytes(7)

    def ask_waiting(path: str, user: str | int | None) -> object:
        with zero_kv.Client(path, server_user=user) as client:
            return client.get_bytes(7)

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        path = os.path.join(folder, "s.sock")
        command = [sys.executable, "-c", OTHER_USERS_SERVER, path]
        with started(command) as server:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            for user in (None, 4322, "no such user"):
                for call in (
                    lambda: ask_waiting(path, user),
                    lambda: asyncio.run(ask(path, user)),
                    lambda: zero_kv.Direct(path, server_user=user),
                ):
                    with pytest.raises(zero_kv.UntrustedServer, match="runs as user 4321"):
                        call()
                    assert server.stdout.readline() == "none\n", "the client sent bytes to a server that it does not trust"
            for named in (4321, "4321"):
                assert ask_waiting(path, named) is None and asyncio.run(ask(path, named)) is None
                assert [server.stdout.readline() for _ in range(2)] == ["requests\n"] * 2
                with zero_kv.Client(path, server_user=named) as client:
                    pickled = pickle.dumps(client)
                assert server.stdout.readline() == "none\n", "this client sent no request"
                with pickle.loads(pickled) as client:
                    assert client.get_bytes(7) is None
                assert server.stdout.readline() == "requests\n"
            server.kill()
