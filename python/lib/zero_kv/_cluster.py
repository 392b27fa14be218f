"""The asyncio client of a cluster.

A call sends requests to several nodes, and repeats them on other nodes. `ClusterClient` does this in a thread, so this module
only moves its calls to threads.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack

from zero_kv._connection import running_loop
from zero_kv._native import ClusterClient
from zero_kv._options import ClusterOptions, asynchronous, with_defaults
from zero_kv.errors import Closed

if TYPE_CHECKING:
    from zero_kv._native import ClientRows, Key, Schema, TypedRow
    from zero_kv._info import Topology

# The number of calls that run at the same time. Further calls wait.
_CALLS_MAX = 32
# The number of rows that an iteration takes from a page at a time.
_ROWS_MAX = 1000

_T = TypeVar("_T")


class _Calls:
    """The client that the calls of one process share, and the threads that run these calls.

    A forked process has none of its parent's threads, and its copy of the lock may be locked forever, so it needs its own
    object.
    """

    def __init__(self, connect: Callable[[], ClusterClient]) -> None:
        self.process_id = os.getpid()
        self.executor = ThreadPoolExecutor(_CALLS_MAX, "zero-kv-cluster")
        self._connect = connect
        self._lock = threading.Lock()
        self._client: ClusterClient | None = None
        self._is_closed = False

    def client(self) -> ClusterClient:
        """Return the client. The first call connects, and other calls wait for it."""
        with self._lock:
            if self._client is None:
                if self._is_closed:
                    raise Closed("the client is closed")
                self._client = self._connect()
                if self._is_closed:
                    self._client.close()
            return self._client

    def close(self) -> None:
        # This method does not wait for a thread that connects: the thread closes the client.
        self._is_closed = True
        if self._client is not None:
            self._client.close()
        # Calls that wait for a thread still start, and raise Closed. If they were canceled, their tasks would raise
        # CancelledError, although nobody canceled the tasks.
        self.executor.shutdown(wait=False)


@asynchronous(ClusterClient, ClusterOptions)
class AsyncClusterClient:
    """A client of a cluster, for asyncio. `ClusterClient` describes the methods, the nodes, and the options.

    Each call runs in a thread, and up to 32 calls run at the same time, so this client suits calls with many keys. If a
    task is canceled, its call continues in the thread until it ends.

    The first call connects. `close`, also at the end of `async with`, disconnects from all nodes; calls that have not
    started then raise `Closed`, and calls that a thread runs end normally. Event loops can share a client. After a
    fork, the child process reconnects, as does a process that unpickles the client.

    >>> async with AsyncClusterClient(["zkv://10.0.0.1:6380"]) as client:  # doctest: +SKIP
    ...     values = await client.get_many([7, 8, 9])
    """

    def __init__(
        self, nodes: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Unpack[ClusterOptions]
    ) -> None:
        self._nodes = nodes
        self._options = with_defaults(options, ClusterOptions)
        self._calls: _Calls | None = None
        self._is_closed = False

    @property
    def strict(self) -> bool:
        return bool(self._options["strict"])

    async def get(self, key: Key, default: Any = None, /) -> Any:
        return await self._call(ClusterClient.get, key, default)

    async def __getitem__(self, key: Key, /) -> Any:
        """Return the value of a key, or raise `KeyError` if the table does not have the key: `await client[key]`."""
        return await self._call(ClusterClient.__getitem__, key)

    async def get_bytes(self, key: Key, default: Any = None, /) -> Any:
        return await self._call(ClusterClient.get_bytes, key, default)

    async def get_bytes_many(self, keys: Iterable[Key]) -> list[bytes | None]:
        return await self._call(ClusterClient.get_bytes_many, keys)

    async def get_many(self, keys: Any, *, dtype: Any = None) -> Any:
        return await self._call(ClusterClient.get_many, keys, dtype=dtype)

    async def schema(self) -> Schema | None:
        return await self._call(ClusterClient.schema)

    async def get_row(self, key: Key, default: Any = None, /) -> Any:
        return await self._call(ClusterClient.get_row, key, default)

    async def get_rows(self, keys: Iterable[Key]) -> list[TypedRow | None]:
        return await self._call(ClusterClient.get_rows, keys)

    async def columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        return await self._call(ClusterClient.columns, keys, columns, fill=fill, out=out, format=format)

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
        options = {"limit": limit, "fill": fill, "out": out, "format": format}
        return await self._call(ClusterClient.floor_columns, keys, columns, **options)

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
        options = {"limit": limit, "fill": fill, "out": out, "format": format}
        return await self._call(ClusterClient.ceiling_columns, keys, columns, **options)

    async def cover_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: Any = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        return await self._call(ClusterClient.cover_columns, keys, columns, fill=fill, out=out, format=format)

    async def contains(self, key: Key) -> bool:
        return await self._call(ClusterClient.contains, key)

    async def contains_many(self, keys: Iterable[Key]) -> list[bool]:
        return await self._call(ClusterClient.contains_many, keys)

    def keys(self) -> AsyncIterator[Any]:
        return self._rows(ClusterClient.keys)

    def values(self) -> AsyncIterator[Any]:
        return self._rows(ClusterClient.values)

    def items(self) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(ClusterClient.items)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()

    # Without these two methods, Python would call `__getitem__` with 0, 1, 2, and so on, without an end.
    def __contains__(self, key: object, /) -> NoReturn:
        raise TypeError("`in` cannot await a response: call `await client.contains(key)`")

    def __iter__(self) -> NoReturn:
        raise TypeError("`for` cannot await responses: use `async for key in client`")

    async def floor(self, key: Key) -> tuple[Any, Any] | None:
        return await self._call(ClusterClient.floor, key)

    async def floor_many(self, keys: Any, *, dtype: Any = None) -> Any:
        return await self._call(ClusterClient.floor_many, keys, dtype=dtype)

    async def ceiling(self, key: Key) -> tuple[Any, Any] | None:
        return await self._call(ClusterClient.ceiling, key)

    async def ceiling_many(self, keys: Any, *, dtype: Any = None) -> Any:
        return await self._call(ClusterClient.ceiling_many, keys, dtype=dtype)

    async def cover(self, key: Key) -> tuple[Any, Any, Any] | None:
        return await self._call(ClusterClient.cover, key)

    async def cover_many(self, keys: Any, *, dtype: Any = None) -> Any:
        return await self._call(ClusterClient.cover_many, keys, dtype=dtype)

    async def first(self) -> tuple[Any, Any] | None:
        return await self._call(ClusterClient.first)

    async def last(self) -> tuple[Any, Any] | None:
        return await self._call(ClusterClient.last)

    def range(
        self, start: Key | None = None, end: Key | None = None
    ) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(ClusterClient.range, start, end)

    def prefix(self, prefix: Key) -> AsyncIterator[tuple[Any, Any]]:
        return self._rows(ClusterClient.prefix, prefix)

    async def count(self, start: Key | None = None, end: Key | None = None) -> int:
        return await self._call(ClusterClient.count, start, end)

    async def count_prefix(self, prefix: Key) -> int:
        return await self._call(ClusterClient.count_prefix, prefix)

    async def key_type(self) -> str:
        return await self._run(lambda client: client.key_type)

    async def topology(self) -> Topology:
        return await self._call(ClusterClient.topology)

    async def close(self) -> None:
        self._is_closed = True
        if self._calls is not None and self._calls.process_id == os.getpid():
            self._calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getstate__(self) -> dict[str, Any]:
        # The process that unpickles the client reconnects.
        return self.__dict__ | {"_calls": None}

    def __repr__(self) -> str:
        return f"<zero_kv.AsyncClusterClient {self._nodes!r}>"

    async def _rows(self, method: Callable[..., ClientRows[_T]], *arguments: Any) -> AsyncIterator[_T]:
        rows: Iterator[_T] = iter(await self._call(method, *arguments))
        while some := await self._run(lambda _: list(itertools.islice(rows, _ROWS_MAX))):
            for row in some:
                yield row

    async def _call(self, method: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        return await self._run(lambda client: method(client, *arguments, **options))

    async def _run(self, call: Callable[[ClusterClient], _T]) -> _T:
        if self._is_closed:
            raise Closed(f"{self._nodes!r}: the client is closed")
        loop, calls = running_loop(), self._calls
        if calls is None or calls.process_id != os.getpid():
            calls = self._calls = _Calls(lambda: ClusterClient(self._nodes, **self._options))
        return await loop.run_in_executor(calls.executor, lambda: call(calls.client()))
