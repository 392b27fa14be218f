"""The asyncio client.

In: keys. Out: values, rows, and facts that a server sent. This module decides which requests a call sends, and repeats
them if the connection fails or the server replaces its table. `_connection` sends them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

from zero_kv._arrays import Requested, is_arrow, is_masked, is_pandas, is_plain, spread
from zero_kv._columns import neighbor_result, neighbor_selection, with_null_keys
from zero_kv._connection import Connection, Endpoint, running_loop
from zero_kv._keys import present_of_type
from zero_kv._native import (
    Client,
    Request,
    ValueCache,
    check_result,
    decode_row,
    default_address,
    index_of,
    key_kinds,
    possible_keys,
    received_neighbor_columns,
    received_rows,
    wrong_kind,
)
from zero_kv._options import ClientOptions, asynchronous, with_defaults
from zero_kv.errors import (
    Closed,
    Error,
    KeyKind,
    KeyTypeChanged,
    NotPermitted,
    NotRunning,
    NotTyped,
    Refused,
    ServerError,
    TimedOut,
)

if TYPE_CHECKING:
    from zero_kv._info import ServerInfo
    from zero_kv._native import Key, ReceivedRows, Schema, TypedRow, _ArrowArray, _ArrowStream

# How often a call repeats requests because the server replaced its table.
_TABLE_CHANGES_MAX = 10
_PAUSE_MIN_S = 0.001
_PAUSE_MAX_S = 0.1
# The types of keys that tables store as numbers.
_NUMBERS = ("u64", "i64", "ipv4", "date", "timestamp")

_T = TypeVar("_T")


def _repeatable(keys: Any) -> Any:
    """Return the keys of a call that may be repeated: the items of an iterator can be taken only once."""
    return list(keys) if isinstance(keys, Iterator) else keys


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
        self._options = given
        self._set_endpoint()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._is_closed = False
        self._schema: Schema | None = None
        self._key_type: str | None = None

    def _set_endpoint(self) -> None:
        self._cache = ValueCache(self._options["cache"]) if self._options["cache"] else None
        self._endpoint = Endpoint(self._address, self._options, self._cache)

    @property
    def strict(self) -> bool:
        return self._strict

    async def get(self, key: Key, default: Any = None, /) -> Any:
        value = (await self._found([key], self._rows_or_values))[0]
        return default if value is None else value

    async def __getitem__(self, key: Key, /) -> Any:
        """Return the value of a key, or raise `KeyError` if the table does not have the key: `await client[key]`."""
        value = await self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    async def get_bytes(self, key: Key, default: Any = None, /) -> Any:
        value = (await self._found([key], self._values))[0]
        return default if value is None else value

    async def get_bytes_many(self, keys: Iterable[Key]) -> list[bytes | None]:
        values: list[bytes | None] = await self._found(keys, self._values)
        return values

    @overload
    async def get_many(self, keys: Iterable[Key], *, dtype: None = None) -> list[Any]: ...
    @overload
    async def get_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def get_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def get_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(_repeatable(keys), dtype)
        look_up = self._rows_or_values if requested.is_list else self._values
        until = self._until()

        async def find(key_type: str) -> list[Any]:
            return await self._found_of_type(requested.keys(key_type), look_up, key_type, until)

        return requested.values(await self._typed(find, until))

    async def schema(self) -> Schema | None:
        return await self._request_schema(self._until())

    async def _request_schema(self, until: float | None) -> Schema | None:
        self._schema = await self._call(Request.schema(), until)
        return self._schema

    async def get_row(self, key: Key, default: Any = None, /) -> Any:
        row = (await self._found([key], self._all_columns))[0]
        return default if row is None else row

    async def get_rows(self, keys: Iterable[Key]) -> list[TypedRow | None]:
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

        async def find(keys: Any, columns: Any, key_type: str, until: float | None) -> tuple[Any, Any]:
            present, valid = present_of_type(keys, key_type)
            return await self._rows_of(present, columns, key_type, until), valid

        rows, valid = await self._columns(find, keys, columns, (fill, out, format))
        return with_null_keys(valid, rows.columns, fill, out, format)

    async def floor_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        limit: Any = None,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        return await self._neighbor_columns(Request.floor_many, keys, columns, limit, (fill, out, format), True)

    async def ceiling_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        limit: Any = None,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        return await self._neighbor_columns(Request.ceiling_many, keys, columns, limit, (fill, out, format), False)

    async def _neighbor_columns(
        self,
        request: Callable[[str, Any], list[Request]],
        keys: Any,
        columns: Iterable[str] | None,
        limit: Any,
        result: tuple[Any, Any, str],
        is_floor: bool,
    ) -> Any:
        limit = _repeatable(limit)

        async def find(keys: Any, columns: Any, key_type: str, until: float | None) -> Any:
            present, valid = present_of_type(keys, key_type)
            selection = neighbor_selection(valid, columns, limit, is_floor, result[2])
            rows, schema = await self._with_schema(request(key_type, present), until)
            if schema is None:
                raise self._not_typed()
            return received_neighbor_columns(key_type, schema, present, rows, selection)

        return neighbor_result(await self._columns(find, keys, columns, result), *result)

    async def cover_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        async def find(keys: Any, columns: Any, key_type: str, until: float | None) -> tuple[ReceivedRows, Any]:
            present, valid = present_of_type(keys, key_type)
            ranges, schema = await self._with_schema(Request.cover_many(key_type, present), until)
            if schema is None:
                raise self._not_typed()
            return received_rows(schema, [None if found is None else found[2] for found in ranges], columns), valid

        rows, valid = await self._columns(find, keys, columns, (fill, out, format))
        return with_null_keys(valid, rows.columns, fill, out, format)

    async def _columns(
        self,
        find: Callable[[Any, Any, str, float | None], Awaitable[_T]],
        keys: Any,
        columns: Iterable[str] | None,
        result: tuple[Any, Any, str],
    ) -> _T:
        """Check the arguments of a method that returns columns, and find its rows with keys of the table's type."""
        check_result(*result)
        keys, columns, until = _repeatable(keys), _repeatable(columns), self._until()
        return await self._typed(lambda key_type: find(keys, columns, key_type, until), until)

    def _not_typed(self) -> NotTyped:
        return NotTyped(f"{self._address}: the table has no schema: bake it with types, or request whole values")

    async def _values(self, keys: Any, key_type: str, until: float | None) -> list[bytes | None]:
        values: list[bytes | None] = await self._call(Request.get_many(key_type, keys), until)
        return values

    async def _all_columns(self, keys: Any, key_type: str, until: float | None) -> list[TypedRow | None]:
        return (await self._rows_of(keys, None, key_type, until)).rows()

    async def _typed(self, call: Callable[[str], Awaitable[_T]], until: float | None) -> _T:
        """Make a call that encodes keys for the type of the table's keys. If the server has replaced its table by one whose
        keys have another type, make the call again, with keys of this type.
        """
        for changes in itertools.count(1):
            is_fresh = self._key_type is None
            key_type = await self._type_of_keys(until)
            try:
                try:
                    return await call(key_type)
                except (TypeError, ValueError, OverflowError) as error:
                    # A key that is no key of the known type may be one of the table's type.
                    if not is_fresh and not isinstance(error, Error):
                        await self._check_type(key_type, until)
                    raise
            except KeyTypeChanged:
                if self._key_type == key_type:
                    self._key_type = None
                if changes > _TABLE_CHANGES_MAX:
                    raise
        raise AssertionError("the loop has no end")

    async def _check_type(self, key_type: str, until: float | None) -> None:
        """Raise `KeyTypeChanged` if the server's table has keys of another type. A call that sends no key, because the table
        cannot have the keys, awaits this method before it returns.
        """
        self._key_type = None
        if await self._type_of_keys(until) != key_type:
            raise KeyTypeChanged(f"{self._address}: the type of the table's keys has changed")

    async def _found(self, keys: Any, look_up: Callable[[Any, str, float | None], Awaitable[list[Any]]]) -> list[Any]:
        """Return the results of a lookup. The result for a key that the table cannot have is `None`, unless the client is
        strict, which makes such a key an error.
        """
        keys, until = _repeatable(keys), self._until()
        return await self._typed(lambda key_type: self._found_of_type(keys, look_up, key_type, until), until)

    async def _found_of_type(
        self,
        keys: Any,
        look_up: Callable[[Any, str, float | None], Awaitable[list[Any]]],
        key_type: str,
        until: float | None,
    ) -> list[Any]:
        if is_arrow(keys) or is_masked(keys) or is_pandas(keys):
            present, valid = present_of_type(keys, key_type)
            return spread(await self._found_of_type(present, look_up, key_type, until), valid)
        if self._strict:
            return await look_up(keys, key_type, until)
        if not is_plain(key_type):
            possible, valid = possible_keys(keys, key_type)
            if valid is not None and not possible:
                await self._check_type(key_type, until)
            values = await look_up(possible, key_type, until)
            left = iter(values)
            return values if valid is None else [next(left) if is_possible else None for is_possible in valid]
        try:
            return await look_up(keys, key_type, until)
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
        if not at and found:
            await self._check_type(key_type, until)
        # A client without possible keys still has to be open.
        await self._open_connection(0.0)
        if at:
            try:
                values = await look_up([index_of(found[position]) for position in at], key_type, until)
            except KeyKind:
                return results
            for position, value in zip(at, values, strict=True):
                results[position] = value
        return results

    async def key_type(self) -> str:
        return await self._type_of_keys(self._until())

    async def _type_of_keys(self, until: float | None) -> str:
        """Return the type of the keys, which is requested once, and again after it has changed. A user who may read no key,
        but for example count keys, does not learn it, and can use only numbers and bytes.
        """
        if self._key_type is None or self._is_closed:
            try:
                self._key_type = str(await self._send(Request.key_type(), until))
            except NotPermitted:
                return "bytes"
        return self._key_type

    async def _key_kind(self, until: float | None) -> str:
        """Request the type of the keys again, and return their kind."""
        self._key_type = None
        return "u64" if await self._type_of_keys(until) in _NUMBERS else "bytes"

    async def _rows_or_values(self, keys: Any, key_type: str, until: float | None) -> list[Any]:
        """Request rows if the table is typed, and values otherwise. A client with a cache requests whole values."""
        for _ in range(_TABLE_CHANGES_MAX + 1):
            if self._schema is not None and self._cache is None:
                try:
                    return (await self._rows_of(keys, None, key_type, until)).rows()
                except NotTyped:
                    pass
            values, self._schema = await self._with_schema(Request.get_with_schema(key_type, keys), until)
            if self._schema is None:
                return values
            if self._cache is not None:
                return [None if value is None else decode_row(self._schema, value) for value in values]
        raise self._unstable()

    def _unstable(self, changes: int = _TABLE_CHANGES_MAX + 1) -> ServerError:
        return ServerError(
            f"{self._address}: the server replaced its table {changes} times during the call: try again later"
        )

    async def _rows_of(
        self, keys: Any, columns: Iterable[str] | None, key_type: str, until: float | None
    ) -> ReceivedRows:
        """Request columns. If the table has another schema than before, request its schema, and the columns again."""
        for _ in range(_TABLE_CHANGES_MAX + 1):
            is_known = self._schema is not None
            schema = self._schema if is_known else await self._request_schema(until)
            if schema is None:
                Request.get_many(key_type, keys)  # Raises the exception of a key that no table can have.
                raise self._not_typed()
            try:
                request = Request.columns(key_type, schema, columns, keys)
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

    async def contains(self, key: Key) -> bool:
        return bool((await self._found([key], self._contained))[0])

    async def contains_many(self, keys: Iterable[Key]) -> list[bool]:
        return [bool(found) for found in await self._found(keys, self._contained)]

    async def _contained(self, keys: Any, key_type: str, until: float | None) -> list[bool]:
        found: list[bool] = await self._call(Request.contains_many(key_type, keys), until)
        return found

    async def floor(self, key: Key) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(lambda key_type: Request.floor_many(key_type, [key])))[0][0]

    @overload
    async def floor_many(self, keys: Iterable[Key], *, dtype: None = None) -> list[tuple[Any, Any] | None]: ...
    @overload
    async def floor_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def floor_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def floor_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(_repeatable(keys), dtype)
        rows, key_type = await self._rows_with_schema(
            lambda key_type: Request.floor_many(key_type, requested.keys(key_type)), requested.is_list
        )
        return requested.rows(rows, key_type)

    async def ceiling(self, key: Key) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(lambda key_type: Request.ceiling_many(key_type, [key])))[0][0]

    @overload
    async def ceiling_many(self, keys: Iterable[Key], *, dtype: None = None) -> list[tuple[Any, Any] | None]: ...
    @overload
    async def ceiling_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def ceiling_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def ceiling_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(_repeatable(keys), dtype)
        rows, key_type = await self._rows_with_schema(
            lambda key_type: Request.ceiling_many(key_type, requested.keys(key_type)), requested.is_list
        )
        return requested.rows(rows, key_type)

    async def cover(self, key: Key) -> tuple[Any, Any, Any] | None:
        return (await self.cover_many([key]))[0]

    @overload
    async def cover_many(self, keys: Iterable[Key], *, dtype: None = None) -> list[tuple[Any, Any, Any] | None]: ...
    @overload
    async def cover_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    async def cover_many(self, keys: Any, *, dtype: Any) -> tuple[Any, ...]: ...
    async def cover_many(self, keys: Any, *, dtype: Any = None) -> Any:
        requested = Requested(_repeatable(keys), dtype)
        ranges, schema, key_type = await self._found_with_schema(
            lambda key_type: Request.cover_many(key_type, requested.keys(key_type))
        )
        if schema is not None and requested.is_list:
            ranges = [None if found is None else (*found[:2], decode_row(schema, found[2])) for found in ranges]
        return requested.ranges(ranges, key_type)

    async def first(self) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(lambda key_type: [Request.first(key_type)]))[0][0]

    async def last(self) -> tuple[Any, Any] | None:
        return (await self._rows_with_schema(lambda key_type: [Request.last(key_type)]))[0][0]

    def range(
        self, start: Key | None = None, end: Key | None = None
    ) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(lambda key_type: Request.page(key_type, start, end))

    def prefix(self, prefix: Key) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(lambda key_type: Request.page_with_prefix(key_type, prefix))

    async def count(self, start: Key | None = None, end: Key | None = None) -> int:
        until = self._until()
        return int(await self._typed(lambda key_type: self._call(Request.count(key_type, start, end), until), until))

    async def count_prefix(self, prefix: Key) -> int:
        until = self._until()
        return int(await self._typed(lambda key_type: self._call(Request.count_prefix(key_type, prefix), until), until))

    def keys(self) -> AsyncIterator[Any]:
        return self._part(0)

    def values(self) -> AsyncIterator[Any]:
        return self._part(1)

    def items(self) -> AsyncIterator[tuple[Any, Any]]:
        return self.range()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()

    # Without these two methods, Python would call `__getitem__` with 0, 1, 2, and so on, without an end.
    def __contains__(self, key: object, /) -> NoReturn:
        raise TypeError("`in` cannot await a response: call `await client.contains(key)`")

    def __iter__(self) -> NoReturn:
        raise TypeError("`for` cannot await responses: use `async for key in client`")

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
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_cache", "_endpoint")}
        return kept | {"_connection": None, "_connecting": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._set_endpoint()

    def __repr__(self) -> str:
        return f"<zero_kv.AsyncClient {self._address!r}{', closed' if self._is_closed else ''}>"

    async def _rows_with_schema(
        self, requests: Callable[[str], list[Request]], is_decoded: bool = True
    ) -> tuple[list[tuple[Any, Any] | None], str]:
        """Request rows and their schema. If the table has a schema, decode the values, unless the caller needs bytes.
        Also return the type of the keys, of which `requests` makes the requests.
        """
        rows, schema, key_type = await self._found_with_schema(requests)
        if schema is not None and is_decoded:
            rows = [None if row is None else (row[0], decode_row(schema, row[1])) for row in rows]
        return rows, key_type

    async def _found_with_schema(
        self, requests: Callable[[str], list[Request]]
    ) -> tuple[list[Any], Schema | None, str]:
        """Return what `_with_schema` returns, and the type of the keys, of which `requests` makes the requests."""
        until = self._until()

        async def find(key_type: str) -> tuple[list[Any], Schema | None, str]:
            return *await self._with_schema(requests(key_type), until), key_type

        return await self._typed(find, until)

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

    async def _rows(self, first: Callable[[str], Request]) -> AsyncIterator[tuple[Any, Any]]:
        """Request the rows page by page, each with its schema. `first` makes the first request, of the key type. An iteration
        that finds another type later cannot continue, and raises `KeyTypeChanged`.
        """
        until = self._until()
        pages, schema = await self._typed(lambda key_type: self._with_schema([first(key_type)], until), until)
        while True:
            rows, request = pages[0]
            for key, value in rows:
                yield key, value if schema is None else decode_row(schema, value)
            if request is None:
                return
            pages, schema = await self._with_schema([request], self._until())

    def _until(self) -> float | None:
        """Return the time at which a call that starts now fails."""
        loop = running_loop()
        return None if self._timeout is None else loop.time() + self._timeout

    async def _call(self, request: Request, until: float | None) -> Any:
        """Send a request. An error for keys of the other kind is `KeyKind`, as in a lookup in a file."""
        try:
            return await self._send(request, until)
        except KeyTypeChanged:
            raise
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
        # If the connection was lost between two calls, the server may be starting again.
        was_connected = self._connection is not None and retries > 0
        connection = await self._open_connection(self._reconnect_timeout if was_connected else 0.0)
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
