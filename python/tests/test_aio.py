"""Promises of `AsyncClient`, with a real server, on each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import pickle
import pathlib
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

import zero_kv
import zero_kv._connection
from conftest import ROWS
from support import Server, seeded, serving

Test = Callable[..., None]
pytestmark = pytest.mark.usefixtures("each_loop")


def with_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Test:
    import functools

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@with_asyncio
async def test_many_tasks_share_one_connection(server: Server) -> None:
    async with zero_kv.AsyncClient(server.path) as client:
        values = await asyncio.gather(*(client.get(key % 4000) for key in range(20_000)))
        assert values == [ROWS.get(key % 4000) for key in range(20_000)]
        assert int((await client.info())["connections"]) == 1


@with_asyncio
async def test_a_canceled_call_does_not_affect_others(server: Server) -> None:
    rng = seeded("cancelled")
    canceled = 0
    async with zero_kv.AsyncClient(server.path) as client:
        for _ in range(50):
            tasks = {key: asyncio.create_task(client.get(key)) for key in rng.sample(range(4000), 100)}
            gone = set(rng.sample(sorted(tasks), 50))
            # Some are canceled before they are sent, others while they wait.
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            for key in gone:
                tasks[key].cancel()
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
            canceled += sum(isinstance(result, asyncio.CancelledError) for result in results)
            for key, result in zip(tasks, results, strict=True):
                assert result == ROWS.get(key) or (key in gone and isinstance(result, asyncio.CancelledError))
    assert canceled > 0


@with_asyncio
async def test_each_failure_raises_its_own_class(server: Server, tmp_path: pathlib.Path) -> None:
    with pytest.raises(zero_kv.NotRunning, match="is kv_store running, and on this socket?"):
        await zero_kv.AsyncClient(tmp_path / "no.sock").get(1)
    async with zero_kv.AsyncClient(server.path, timeout=1.0, strict=True) as client:
        answers = await asyncio.gather(client.get("seven"), client.get(2), return_exceptions=True)
        assert isinstance(answers[0], zero_kv.KeyKind) and answers[1] == ROWS[2]
        with pytest.raises(zero_kv.KeyKind, match="keys of this table are unsigned 64-bit numbers"):
            await client.get_many(["a", "b"])
        assert await client.get(4) == ROWS[4]
        with pytest.raises(ValueError, match="a key of 0 bytes"):
            await client.get("")
        with server.paused(), pytest.raises(zero_kv.TimedOut, match="timed out after 1.0 s waiting for a response"):
            await client.get(2)
        # The late response is not the result of the next call.
        assert await client.get(6) == ROWS[6]
    with pytest.raises(zero_kv.Closed, match="the client is closed"):
        await client.get(2)


@with_asyncio
async def test_a_time_out_of_the_caller_is_not_converted(server: Server) -> None:
    async with zero_kv.AsyncClient(server.path) as client:
        with server.paused():
            with pytest.raises(TimeoutError) as raised:
                async with asyncio.timeout(0.05):
                    await client.get(2)
            assert not isinstance(raised.value, zero_kv.Error)
        assert await client.get(4) == ROWS[4]


@with_asyncio
async def test_a_peer_that_is_not_a_server_is_a_protocol_error(tmp_path: pathlib.Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()

    path = str(tmp_path / "other.sock")
    async with await asyncio.start_unix_server(answer, path):
        client = zero_kv.AsyncClient(path)
        answers = await asyncio.gather(client.get(1), client.get(2), return_exceptions=True)
        assert [type(answer) for answer in answers] == [zero_kv.ProtocolError] * 2


@with_asyncio
async def test_calls_survive_a_restart_of_the_server(server: Server) -> None:
    async with zero_kv.AsyncClient(server.path, reconnect_timeout=30) as client:
        for how, notices_end in itertools.product((signal.SIGKILL, signal.SIGTERM), (False, True)):
            assert await client.get(2) == ROWS[2]
            server.stop(how)
            while notices_end and client._connection.is_open:
                await asyncio.sleep(0)
            starting = threading.Thread(target=server.start)
            starting.start()
            values = await asyncio.gather(*(client.get(key) for key in range(100)), client.get_many([4, 5]))
            assert values == [*(ROWS.get(key) for key in range(100)), [ROWS[4], None]]
            starting.join()


@with_asyncio
async def test_a_connection_closed_without_a_response_is_retried_and_reported(tmp_path: pathlib.Path) -> None:
    connections = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    path = str(tmp_path / "other.sock")
    async with await asyncio.start_unix_server(answer, path):
        with pytest.raises(zero_kv.Refused, match="closed the connection without a response"):
            await zero_kv.AsyncClient(path, retries=0).get(1)
        assert connections == 1
        with pytest.raises(zero_kv.Refused):
            await zero_kv.AsyncClient(path, reconnect_timeout=0.05).get(1)
        assert connections >= 3


@with_asyncio
async def test_a_truncated_response_is_reported(tmp_path: pathlib.Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.write(bytes(7) + b"\x08" + b"sev")
        writer.close()

    path = str(tmp_path / "other.sock")
    async with await asyncio.start_unix_server(answer, path):
        with pytest.raises(zero_kv.Closed, match="after 3 of 8 bytes of the response's value"):
            await zero_kv.AsyncClient(path, retries=0).get(1)


@with_asyncio
async def test_repeated_requests_of_a_call_have_one_time_limit(tmp_path: pathlib.Path) -> None:
    generation = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer Floor from a table that was just replaced: Generation, Schema (none), Floor (no row), and Generation."""
        nonlocal generation
        while requests := await reader.read(4 * 16):
            if len(requests) == 16:
                # The first request asks for the type of the keys.
                writer.write(bytes(7) + b"\x03u64")
                continue
            await asyncio.sleep(0.2)
            generation += 2
            found, missing = bytes(7) + b"\x08", b"\0\0\0\1" + bytes(4)
            first, last = (number.to_bytes(8, "big") for number in (generation, generation + 1))
            writer.write(found + first + missing + missing + found + last)
        writer.close()

    path = str(tmp_path / "other.sock")
    async with await asyncio.start_unix_server(answer, path):
        async with zero_kv.AsyncClient(path, timeout=0.7) as client:
            with pytest.raises(zero_kv.TimedOut, match="timed out after 0.7 s"):
                await client.floor(7)
        assert generation > 0
        async with zero_kv.AsyncClient(path) as client:
            with pytest.raises(zero_kv.ServerError, match="replaced its table"):
                await client.floor(7)


def test_each_event_loop_and_child_process_has_its_own_connection(server: Server) -> None:
    client = zero_kv.AsyncClient(server.path)
    for _ in range(3):
        assert asyncio.run(client.get(2)) == ROWS[2]

    async def forking() -> None:
        assert await client.get(2) == ROWS[2]
        child = os.fork()
        if child == 0:
            asyncio.events._set_running_loop(None)
            # In an empty context, anyio does not know of the loop of the parent.
            value = contextvars.Context().run(asyncio.run, client.get(4))
            os._exit(0 if value == ROWS[4] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert await client.get(6) == ROWS[6]

    asyncio.run(forking())


def test_a_client_can_be_closed_and_pickled_after_its_event_loop_ended(server: Server) -> None:
    client = zero_kv.AsyncClient(server.path, timeout=7)
    assert asyncio.run(client.get(2)) == ROWS[2]
    other = pickle.loads(pickle.dumps(client))
    assert asyncio.run(other.get(2)) == ROWS[2]
    asyncio.run(client.close())
    with pytest.raises(zero_kv.Closed):
        asyncio.run(client.get(2))


@with_asyncio
async def test_long_values_are_complete(tmp_path: pathlib.Path) -> None:
    rng = seeded("aio long values")
    rows = {key: rng.randbytes(rng.choice((0, 1, 100_000, 5_000_000))) for key in range(30)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server:
        async with zero_kv.AsyncClient(server.path) as client:
            assert await client.get_many(list(rows) * 3) == list(rows.values()) * 3


@with_asyncio
async def test_blocking_clients_work_in_threads_beside_an_event_loop(server: Server) -> None:
    with zero_kv.Client(server.path) as client, zero_kv.Direct(server.path) as direct:
        async with zero_kv.AsyncClient(server.path) as other:
            calls = [asyncio.to_thread(client.get, key) for key in range(50)]
            calls += [asyncio.to_thread(direct.get, key) for key in range(50)]
            found = await asyncio.gather(*calls, *(other.get(key) for key in range(50)))
    assert found == [ROWS.get(key) for key in range(50)] * 3


class FailingPipeline:
    """A pipeline of which one method raises an exception."""

    name = ""

    def __init__(self, *arguments: Any) -> None:
        self._held = Pipeline(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name != self.name:
            return getattr(self._held, name)

        def fail(*_: Any) -> None:
            raise ZeroDivisionError(name)

        return fail


Pipeline = zero_kv._connection.Pipeline


@pytest.mark.parametrize("name", ["take_unsent", "received", "closed"])
def test_an_exception_in_a_callback_of_the_event_loop_ends_all_calls_at_once(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingPipeline, "name", name)
    monkeypatch.setattr(zero_kv._connection, "Pipeline", FailingPipeline)

    async def ask() -> None:
        async with zero_kv.AsyncClient(server.path, timeout=None) as client:
            paused = server.paused() if name == "closed" else contextlib.nullcontext()
            with paused:
                calls = [asyncio.create_task(client.get(key)) for key in range(9)]
                if name == "closed":
                    connection = await client._open_connection(0.0)
                    await asyncio.sleep(0)
                    assert connection._transport is not None
                    connection._transport.abort()
                answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [repr(answer) for answer in answers] == [f"ZeroDivisionError('{name}')"] * 9
            # The next call opens another connection.
            monkeypatch.setattr(FailingPipeline, "name", "")
            assert await client.get(2) == ROWS[2]

    asyncio.run(ask())


@with_asyncio
async def test_cancel_scopes_of_anyio_end_calls(server: Server) -> None:
    async with zero_kv.AsyncClient(server.path) as client:
        assert await client.get(2) == ROWS[2]
        with server.paused():
            with anyio.move_on_after(0.05) as scope:
                await client.get(4)
            assert scope.cancelled_caught
            with pytest.raises(TimeoutError) as raised:
                with anyio.fail_after(0.05):
                    await client.get(4)
            assert not isinstance(raised.value, zero_kv.Error)
        assert await client.get(6) == ROWS[6]


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_an_event_loop_of_trio_is_rejected(server: Server, timeout: float | None) -> None:
    pytest.importorskip("trio")
    clients = (zero_kv.AsyncClient(server.path, timeout=timeout), zero_kv.AsyncClusterClient([server.path], timeout=timeout))

    async def ask() -> None:
        for client in clients:
            for call in (client.get(1), client.get_many([1]), client.columns([1]), client.floor(1), client.count()):
                with pytest.raises(RuntimeError, match="no event loop of asyncio is running, .* anyio.run with the backend asyncio"):
                    await call

    anyio.run(ask, backend="trio")
