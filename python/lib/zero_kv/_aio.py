"""The asyncio client.

In: keys. Out: values, rows, and facts that a server sent. This module decides which requests a call sends, and repeats
them if the connection fails or the server replaces its table. `_connection` sends them.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from zero_kv._arrays import Requested, is_arrow, whole_array
from zero_kv._columns import dense_keys, with_nulls
from zero_kv._connection import Connection, Endpoint
from zero_kv._native import Client, Request, decode_row, default_address, index_of, key_kinds, wrong_kind
from zero_kv._options import ClientOptions, asynchronous, with_defaults
from zero_kv.errors import Closed, Error, KeyKind, NotRunning, NotTyped, Refused, ServerError, TimedOut

if TYPE_CHECKING:
    from zero_kv._info import ServerInfo
    from zero_kv._native import ReceivedRows, Schema, TypedRow, _ArrowArray, _ArrowStream

# How often a call repeats requests because the server replaced its table.
_TABLE_CHANGES_MAX = 10
_PAUSE_MIN_S = 0.001
_PAUSE_MAX_S = 0.1


@asynchronous(Client, ClientOptions)
class AsyncClient:
    """A client of a server, for asyncio. `Client` describes the methods and the options.

    All tasks share one connection, and their requests are pipelined. A canceled call does not affect other calls. If
    the connection fails, the client reconnects, and requests without a response are retried `retries` times.

    The first call connects. `await client[key]` returns a value, and `async for` iterates over keys and rows. `close`,
    also at the end of `async with`, disconnects from the server; waiting calls then raise `Closed`.

    >>> async with AsyncClient("/tmp/zero-kv.sock") as client:  # doctest: +SKIP
    ...     value = await client.get(128512)
    """

    def __init__(self, address: str | os.PathLike[str] | None = None, **options: Unpack[ClientOptions]) -> None:
        given = with_defaults(options, ClientOptions)
        self._address = os.fspath(default_address() if address is None else address)
        self._timeout: float | None = given["timeout"]
        self._retries: int = given["retries"]
        self._reconnect_timeout: float = given["reconnect_timeout"]
        self._strict: bool = given["strict"]
        self._endpoint = Endpoint(self._address, given)
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self._schema: Schema | None = None

    @property
    def strict(self) -> bool:
        return self._strict

    async def get(self, key: int | bytes | str, default: Any = None, /) -> Any:
        value = (await self._found([key], self._rows_or_values))[0]
        return default if value is None else value

    async def __getitem__(self, key: int | bytes | str, /) -> Any:
        """Return the value of a key, or raise `KeyError` if the table does not have the key: `await client[key]`."""
        value = await self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    async def get_bytes(self, key: int | bytes | str, default: Any = None, /) -> Any:
        value = (await self._found([key], self._values))[0]
        return default if value is None else value

    async def get_bytes_many(self, keys: Iterable[int] | Iterable[bytes | str]) -> list[bytes | None]:
        values: list[bytes | None] = await self._found(keys, self._values)
        return values

    @overload
    async def get_many(self, keys: Iterable[int] | Iterable[bytes | str], *, dtype: None = None) -> list[Any]: ...
    @overload
    async def get_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def get_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def get_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(keys, dtype, self._strict)
        look_up = self._rows_or_values if requested.is_list else self._values
        return requested.values(await self._found(requested.keys, look_up))

    async def schema(self) -> Schema | None:
        return await self._request_schema(self._until())

    async def _request_schema(self, until: float | None) -> Schema | None:
        self._schema = await self._call(Request.schema(), until)
        return self._schema

    async def get_row(self, key: int | bytes | str, default: Any = None, /) -> Any:
        row = (await self._found([key], self._all_columns))[0]
        return default if row is None else row

    async def get_rows(self, keys: Iterable[int] | Iterable[bytes | str]) -> list[TypedRow | None]:
        rows: list[TypedRow | None] = await self._found(keys, self._all_columns)
        return rows

    async def columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        if isinstance(columns, str):
            raise TypeError("columns is a str, where a list of names was expected: put the name in a list")
        columns = None if columns is None else list(columns)
        if not is_arrow(keys):
            return (await self._rows_of(keys, columns, self._until())).columns(fill, out, format)
        keys = whole_array(keys)
        rows = await self._rows_of(dense_keys(keys.drop_null()), columns, self._until())
        if not keys.null_count:
            return rows.columns(fill, out, format)
        return with_nulls(keys, lambda given, kind: rows.columns(given, None, kind), fill, out, format)

    async def _values(self, keys: Any, until: float | None) -> list[bytes | None]:
        values: list[bytes | None] = await self._call(Request.get_many(keys), until)
        return values

    async def _all_columns(self, keys: Any, until: float | None) -> list[TypedRow | None]:
        return (await self._rows_of(keys, None, until)).rows()

    async def _found(self, keys: Any, look_up: Callable[[Any, float | None], Awaitable[list[Any]]]) -> list[Any]:
        """Return the results of a lookup. The result for a key that the table cannot have is `None`, unless the client is
        strict, which makes such a key an error.
        """
        until = self._until()
        if self._strict:
            return await look_up(keys, until)
        if isinstance(keys, Iterator):
            keys = list(keys)
        try:
            return await look_up(keys, until)
        except KeyKind:
            kind = await self._key_kind(until)
        except (TypeError, OverflowError, ValueError) as error:
            is_one = isinstance(keys, (str, bytes, bytearray)) or not isinstance(keys, Iterable)
            # Of an array of floats, `look_up` says that it may have been rounded.
            is_float = type(keys).__module__ == "numpy" and keys.dtype.kind == "f"
            if isinstance(error, Error) or is_one or is_float or getattr(keys, "ndim", 1) != 1:
                raise
            kind = None
        found, kinds = list(keys), key_kinds(keys)
        if kind is None:
            # The table's kind matters only if there are keys of both kinds.
            distinct = {kind for kind in kinds if kind is not None}
            kind = await self._key_kind(until) if len(distinct) > 1 else next(iter(distinct), None)
        at = [position for position, of in enumerate(kinds) if of is not None and of == kind]
        results: list[Any] = [None] * len(found)
        # A client without possible keys still has to be open.
        await self._open_connection(0.0)
        if at:
            try:
                values = await look_up([index_of(found[position]) for position in at], until)
            except KeyKind:
                return results
            for position, value in zip(at, values, strict=True):
                results[position] = value
        return results

    async def _key_kind(self, until: float | None) -> str:
        """Return the kind of the table's keys: the server rejects a range of keys of the other kind."""
        try:
            await self._send(Request.count(0, None), until)
        except ServerError:
            return "bytes"
        return "u64"

    async def _rows_or_values(self, keys: Any, until: float | None) -> list[Any]:
        """Request rows if the table is typed, and values otherwise."""
        if isinstance(keys, Iterator):
            keys = list(keys)
        for _ in range(_TABLE_CHANGES_MAX + 1):
            if self._schema is not None:
                try:
                    return (await self._rows_of(keys, None, until)).rows()
                except NotTyped:
                    pass
            values, self._schema = await self._with_schema(Request.get_with_schema(keys), until)
            if self._schema is None:
                return values
        raise self._unstable()

    def _unstable(self, changes: int = _TABLE_CHANGES_MAX + 1) -> ServerError:
        return ServerError(
            f"{self._address}: the server replaced its table {changes} times during the call: try again later"
        )

    async def _rows_of(self, keys: Any, columns: Iterable[str] | None, until: float | None) -> ReceivedRows:
        """Request columns. If the table has another schema than before, request its schema, and the columns again."""
        for _ in range(_TABLE_CHANGES_MAX + 1):
            is_known = self._schema is not None
            schema = self._schema if is_known else await self._request_schema(until)
            if schema is None:
                Request.get_many(keys)  # Raises the exception of a key that no table can have.
                raise NotTyped(f"{self._address}: the table has no schema: bake it with types, or request whole values")
            try:
                request = Request.columns(schema, columns, keys)
            except ValueError:
                if not is_known:
                    raise
                # The table may have been replaced by a table that has the columns.
                self._schema = None
                continue
            rows: ReceivedRows | None = await self._call(request, until)
            if rows is not None:
                return rows
            self._schema = None
        raise self._unstable()

    async def contains(self, key: int | bytes | str) -> bool:
        return bool((await self._found([key], self._contained))[0])

    async def contains_many(self, keys: Iterable[int] | Iterable[bytes | str]) -> list[bool]:
        return [bool(found) for found in await self._found(keys, self._contained)]

    async def _contained(self, keys: Any, until: float | None) -> list[bool]:
        found: list[bool] = await self._call(Request.contains_many(keys), until)
        return found

    async def floor(self, key: int | bytes | str) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(Request.floor_many([key])))[0]

    @overload
    async def floor_many(self, keys: Iterable[int] | Iterable[bytes | str], *, dtype: None = None) -> list[tuple[Any, Any] | None]: ...
    @overload
    async def floor_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def floor_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def floor_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(keys, dtype)
        return requested.rows(await self._rows_with_schema(Request.floor_many(requested.keys), requested.is_list))

    async def ceiling(self, key: int | bytes | str) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(Request.ceiling_many([key])))[0]

    @overload
    async def ceiling_many(self, keys: Iterable[int] | Iterable[bytes | str], *, dtype: None = None) -> list[tuple[Any, Any] | None]: ...
    @overload
    async def ceiling_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def ceiling_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def ceiling_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(keys, dtype)
        return requested.rows(await self._rows_with_schema(Request.ceiling_many(requested.keys), requested.is_list))

    async def first(self) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema([Request.first()]))[0]

    async def last(self) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema([Request.last()]))[0]

    def range(
        self, start: int | bytes | str | None = None, end: int | bytes | str | None = None
    ) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(Request.page(start, end))

    def prefix(self, prefix: bytes | str) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(Request.page_with_prefix(prefix))

    async def count(self, start: int | bytes | str | None = None, end: int | bytes | str | None = None) -> int:
        return int(await self._call(Request.count(start, end), self._until()))

    async def count_prefix(self, prefix: bytes | str) -> int:
        return int(await self._call(Request.count_prefix(prefix), self._until()))

    def keys(self) -> AsyncIterator[Any]:
        return self._part(0)

    def values(self) -> AsyncIterator[Any]:
        return self._part(1)

    def items(self) -> AsyncIterator[tuple[Any, Any]]:
        return self.range()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()

    async def _part(self, part: int) -> AsyncIterator[Any]:
        async for row in self.range():
            yield row[part]

    async def info(self) -> ServerInfo:
        info: ServerInfo = await self._call(Request.info(), self._until())
        return info

    async def ping(self) -> None:
        await self._call(Request.ping(), self._until())

    async def close(self) -> None:
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
        # The process that unpickles the client reconnects.
        return self.__dict__ | {"_connection": None, "_connecting": None}

    def __repr__(self) -> str:
        return f"<zero_kv.AsyncClient {self._address!r}{', closed' if self._is_closed else ''}>"

    async def _rows_with_schema(
        self, requests: list[Request], is_decoded: bool = True
    ) -> list[tuple[Any, Any] | None]:
        """Request rows and their schema. If the table has a schema, decode the values, unless the caller needs bytes."""
        rows, schema = await self._with_schema(requests, self._until())
        if schema is None or not is_decoded:
            return rows
        return [None if row is None else (row[0], decode_row(schema, row[1])) for row in rows]

    async def _with_schema(self, requests: list[Request], until: float | None) -> tuple[list[Any], Schema | None]:
        """Send requests, each of which one table must answer. Return the results of all of them, and the schema that
        these tables have in common. A call with more requests takes longer, so it tolerates more replacements.
        """
        results: list[Any] = []
        schema: Schema | None = None
        position = changes = 0
        while position < len(requests):
            found: tuple[list[Any], Schema | None] | None = await self._call(requests[position], until)
            if found is not None and (position == 0 or found[1] == schema):
                results += found[0]
                schema = found[1]
                position += 1
                continue
            changes += 1
            if changes > _TABLE_CHANGES_MAX + len(requests):
                raise self._unstable(changes)
            if found is not None:
                results, position = [], 0  # The table has another schema than those before.
        return results, schema

    async def _rows(self, request: Request | None) -> AsyncIterator[tuple[Any, Any]]:
        """Request the rows page by page, each with its schema."""
        while request is not None:
            pages, schema = await self._with_schema([request], self._until())
            rows, request = pages[0]
            for key, value in rows:
                yield key, value if schema is None else decode_row(schema, value)

    def _until(self) -> float | None:
        """Return the time at which a call that starts now fails."""
        return None if self._timeout is None else asyncio.get_running_loop().time() + self._timeout

    async def _call(self, request: Request, until: float | None) -> Any:
        """Send a request. An error for keys of the other kind is `KeyKind`, as in a lookup in a file."""
        try:
            return await self._send(request, until)
        except ServerError:
            asked = request.key_kind()
            if asked is None:
                raise
            held = await self._key_kind(until)
            if held == asked:
                raise
            raise KeyKind(wrong_kind(held, asked)) from None

    async def _send(self, request: Request, until: float | None) -> Any:
        try:
            async with asyncio.timeout_at(until) as timeout:
                return await self._send_with_retries(request)
        except TimeoutError as error:
            if isinstance(error, TimedOut) or not timeout.expired():
                raise
            message = f"{self._address}: timed out after {self._timeout} s waiting for a response"
            raise TimedOut(message) from None

    async def _send_with_retries(self, request: Request) -> Any:
        loop, retries, pause_s, until = asyncio.get_running_loop(), self._retries, _PAUSE_MIN_S, -math.inf
        connection = await self._open_connection(0.0)
        while True:
            try:
                return await connection.send(request)
            except (Closed, Refused) as error:
                if self._is_closed:
                    raise
                # A server that is stopping may accept a connection and end before it reads a request.
                if isinstance(error, Refused) and loop.time() < until:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                elif retries > 0:
                    retries, pause_s, until = retries - 1, _PAUSE_MIN_S, loop.time() + self._reconnect_timeout
                else:
                    raise
            connection = await self._open_connection(max(0.0, until - loop.time()))

    async def _open_connection(self, reconnect_s: float) -> Connection:
        """Return the open connection, or open one. If no server runs, keep trying to connect for `reconnect_s`."""
        if self._is_closed:
            raise Closed(f"{self._address}: the client is closed")
        loop = asyncio.get_running_loop()
        connection = self._connection
        # Each child process and each event loop needs its own connection.
        if connection is not None and connection.is_open and connection.loop is loop:
            if connection.process_id == os.getpid():
                return connection
        pause_s, until = _PAUSE_MIN_S, loop.time() + reconnect_s
        while True:
            try:
                return await self._connect(loop)
            except (NotRunning, Refused):
                # A server that is stopping may close a connection before the login or TLS handshake is complete.
                if loop.time() >= until:
                    raise
            await asyncio.sleep(min(pause_s, max(0.0, until - loop.time())))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Connect. All tasks that need a connection share one attempt."""
        connecting = self._connecting
        if connecting is None or connecting.done() or connecting.get_loop() is not loop:
            connecting = self._connecting = loop.create_task(self._endpoint.connect(loop))
        try:
            # The attempt continues for other tasks if this task is canceled.
            self._connection = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if self._is_closed and connecting.cancelled():
                raise Closed(f"{self._address}: the client is closed") from None
            raise
        return self._connection
