"""The asyncio client: a socket for `Question` and `Wire`, which are compiled."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

from zero_kv._native import Question, Wire, check_server_user
from zero_kv.errors import Closed, NotRunning, Refused, TimedOut

_PAUSE_MIN_S = 0.001
_PAUSE_MAX_S = 0.1
# What SO_PEERCRED holds: the process, the user, and the group.
_UCRED = struct.Struct("iII")


class _Connection(asyncio.Protocol):
    """One connection: questions of many tasks, answered in their order."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.process_id = os.getpid()
        self.is_open = True
        self._path = path
        self._wire = Wire(path)
        self._is_flushing = False
        self._transport: asyncio.Transport | None = None

    def ask(self, question: Question) -> asyncio.Future[Any]:
        if not self.is_open:
            raise self._wire.closed()
        future: asyncio.Future[Any] = self.loop.create_future()
        self._wire.ask(question, future)
        if not self._is_flushing:
            # Questions of all tasks that run before are sent together.
            self._is_flushing = True
            self.loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._is_flushing = False
        requests = self._wire.take_requests()
        if self._transport is not None and self.is_open and requests:
            self._transport.write(requests)

    def close(self) -> None:
        self.is_open = False
        if self.loop.is_closed():
            return  # With all who waited, and the socket.
        self._wire.fail(Closed(f"{self._path}: the client is closed"))
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._wire.received(data)
        except Exception as error:
            # Where the next answer begins nobody can say.
            self.is_open = False
            self._wire.fail(error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._wire.fail(self._wire.closed())


class AsyncClient:
    """Questions to a server, for asyncio.

    All tasks share one connection, and their questions are sent without waiting for each other's answers. A call that
    is cancelled takes nothing from the others. A connection that fails is made anew, and the questions that had no
    answer are put `retries` times more.

    Connects with the first question; `async with` closes the connection at its end. `server_user` is that of `Client`.

    >>> async with AsyncClient("/tmp/zero-kv.sock") as client:  # doctest: +SKIP
    ...     value = await client.get(128512)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "/tmp/zero-kv.sock",
        *,
        connect_timeout: float = 5.0,
        timeout: float | None = 30.0,
        retries: int = 1,
        reconnect_timeout: float = 2.0,
        server_user: str | int | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._retries = retries
        self._reconnect_timeout = reconnect_timeout
        self._server_user = server_user
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._is_closed = False

    async def get(self, key: int | bytes | str, default: Any = None, /) -> Any:
        """The value of a key, or `default` if the key is not in the table."""
        value = await self._ask(Question.get(key))
        return default if value is None else value

    async def get_many(self, keys: Iterable[int] | Iterable[bytes | str]) -> list[bytes | None]:
        """The values of many keys, in their order; `None` where a key is not in the table."""
        values: list[bytes | None] = await self._ask(Question.get_many(keys))
        return values

    async def exists(self, key: int | bytes | str) -> bool:
        """Whether a key is in the table."""
        return bool(await self._ask(Question.exists(key)))

    async def floor(self, key: int | bytes | str) -> tuple[Any, bytes] | None:
        """The row with the largest key that is not above `key`."""
        row: tuple[Any, bytes] | None = await self._ask(Question.floor(key))
        return row

    async def ceiling(self, key: int | bytes | str) -> tuple[Any, bytes] | None:
        """The row with the smallest key that is not below `key`."""
        row: tuple[Any, bytes] | None = await self._ask(Question.ceiling(key))
        return row

    async def first(self) -> tuple[Any, bytes] | None:
        """The row with the smallest key."""
        row: tuple[Any, bytes] | None = await self._ask(Question.outermost(False))
        return row

    async def last(self) -> tuple[Any, bytes] | None:
        """The row with the largest key."""
        row: tuple[Any, bytes] | None = await self._ask(Question.outermost(True))
        return row

    def range(
        self, start: int | bytes | str | None = None, end: int | bytes | str | None = None
    ) -> AsyncIterator[tuple[Any, bytes]]:
        """The rows from `start` on and before `end`, in key order, asked for page by page as they are wanted."""
        return self._rows(Question.page(start, end))

    def prefix(self, prefix: bytes | str) -> AsyncIterator[tuple[Any, bytes]]:
        """The rows whose keys begin with `prefix`, in key order."""
        return self._rows(Question.prefix(prefix))

    async def count(self, start: int | bytes | str | None = None, end: int | bytes | str | None = None) -> int:
        """How many keys there are from `start` on and before `end`."""
        return int(await self._ask(Question.count(start, end)))

    async def info(self) -> dict[str, str]:
        """What the server says of itself."""
        info: dict[str, str] = await self._ask(Question.info())
        return info

    async def ping(self) -> None:
        """Return if the server answers."""
        await self._ask(Question.ping())

    async def close(self) -> None:
        """Close the connection. Calls fail with `Closed` from here on, those that wait as well."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Another process connects anew.
        return self.__dict__ | {"_connection": None, "_connecting": None}

    def __repr__(self) -> str:
        return f"<zero_kv.AsyncClient {self._path!r}>"

    async def _rows(self, question: Question | None) -> AsyncIterator[tuple[Any, bytes]]:
        while question is not None:
            rows, question = await self._ask(question)
            for row in rows:
                yield row

    async def _ask(self, question: Question) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as timeout:
                return await self._retried(question)
        except TimeoutError as error:
            if isinstance(error, TimedOut) or not timeout.expired():
                raise
            message = f"{self._path}: timed out after {self._timeout} s waiting for an answer"
            raise TimedOut(message) from None

    async def _retried(self, question: Question) -> Any:
        loop, retries, pause_s, until = asyncio.get_running_loop(), self._retries, _PAUSE_MIN_S, -math.inf
        connection = await self._connected(0.0)
        while True:
            try:
                return await connection.ask(question)
            except (Closed, Refused) as error:
                if self._is_closed:
                    raise
                # A server that restarts may take a connection and end before it reads from it.
                if isinstance(error, Refused) and loop.time() < until:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                elif retries > 0:
                    retries, pause_s, until = retries - 1, _PAUSE_MIN_S, loop.time() + self._reconnect_timeout
                else:
                    raise
            connection = await self._connected(max(0.0, until - loop.time()))

    async def _connected(self, patience_s: float) -> _Connection:
        """The connection, or a new one, for which a server that is not there is waited for so long."""
        if self._is_closed:
            raise Closed(f"{self._path}: the client is closed")
        loop = asyncio.get_running_loop()
        connection = self._connection
        # A child process, and another event loop, have connections of their own.
        if connection is not None and connection.is_open and connection.loop is loop:
            if connection.process_id == os.getpid():
                return connection
        pause_s, until = _PAUSE_MIN_S, loop.time() + patience_s
        while True:
            try:
                return await self._connect(loop)
            except NotRunning:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(min(pause_s, max(0.0, until - loop.time())))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        """One attempt, which all tasks share that want a connection."""
        connecting = self._connecting
        if connecting is None or connecting.done() or connecting.get_loop() is not loop:
            connecting = self._connecting = loop.create_task(self._attempt(loop))
        try:
            # A task that is cancelled leaves the attempt to the others.
            self._connection = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if self._is_closed and connecting.cancelled():
                raise Closed(f"{self._path}: the client is closed") from None
            raise
        return self._connection

    async def _attempt(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        path = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            async with asyncio.timeout(self._connect_timeout):
                transport, connection = await loop.create_unix_connection(lambda: _Connection(self._path, loop), path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            message = f"{self._path}: cannot connect: {error.strerror}: is kv_store running, and on this socket?"
            raise NotRunning(message) from error
        except PermissionError as error:
            message = f"{self._path}: cannot connect: {error.strerror}: ask for access to the socket and its folder"
            raise Refused(message) from error
        except TimeoutError as error:
            raise TimedOut(f"{self._path}: timed out after {self._connect_timeout} s connecting") from error
        try:
            check_server_user(self._path, _peer_uid(transport), self._server_user)
        except BaseException:
            transport.abort()
            raise
        return connection


def _peer_uid(transport: asyncio.Transport) -> int:
    """Returns the user that the server runs as."""
    # A second socket object, because not every event loop returns one with getsockopt.
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as peer:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(credentials)[1]
    return uid
