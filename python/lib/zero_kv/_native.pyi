import os
from asyncio import Future
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, final, overload

import numpy
import numpy.typing

_T = TypeVar("_T")
_Path: TypeAlias = str | os.PathLike[str]
Key: TypeAlias = int | bytes | str
"""What is taken as a key. What is given as one is an `int` or `bytes`."""

_Keys: TypeAlias = Iterable[int] | Iterable[bytes | str]
_Row: TypeAlias = tuple[Any, bytes]

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Rows(Generic[_T]):
    """Rows of a table in key order, read as they are wanted.

    They are those of the table as it was when they were asked for, also when a newer one is served by now.
    """

    def __len__(self) -> int: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __reversed__(self) -> Iterator[_T]: ...

@final
class ClientRows:
    """The rows of a range in key order, asked for page by page as they are wanted, anew by each loop.

    Pages that are asked for before and after a new table was baked are of different tables.
    """

    def __iter__(self) -> Iterator[_Row]: ...
    def __reversed__(self) -> Iterator[_Row]: ...

class Table:
    """A table as a mapping: keys are `int`, or `bytes` and `str` (as UTF-8); values are `bytes`.

    Threads share it. A key of the wrong kind raises `KeyKind`, which is a `TypeError`. A file that was changed in place
    or truncated raises `Damaged`; put new files in place by rename, as `bake` does. Nobody can change a table
    with `memory="copy"`. A mapped file is verified by its length and modification time: a change is not noticed if
    somebody restores the modification time, or writes through a mapping that is older than the table's.
    """

    def __getitem__(self, key: Key, /) -> bytes:
        """The value of a key; `KeyError` if the table does not have it."""

    @overload
    def get(self, key: Key, /) -> bytes | None: ...
    @overload
    def get(self, key: Key, default: _T, /) -> bytes | _T:
        """The value of a key, or `default` if the table does not have it."""

    def view(self, key: Key) -> memoryview:
        """The value of a key as a read-only `memoryview`; `KeyError` if there is none.

        A table that nobody can change (`memory="copy"`, or a server's sealed memory) lends the value without a copy, and
        the view keeps that table in memory, also when a newer one is served. The view of a mapped file is a copy of the
        value.
        """

    @overload
    def get_many(
        self, keys: _Keys | numpy.typing.NDArray[numpy.integer[Any]], *, dtype: None = None
    ) -> list[bytes | None]: ...
    @overload
    def get_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    def get_many(
        self, keys: Any, *, dtype: numpy.typing.DTypeLike
    ) -> tuple[numpy.typing.NDArray[Any], numpy.typing.NDArray[numpy.bool_]]:
        """The values of many keys, in their order, all of one table: several times faster than one by one.

        A list, another iterable or a NumPy array of keys gives a list, with `None` where a key is not in the table. A
        pyarrow array, or a Series of Polars, gives a pyarrow array of binary, with nulls.

        With `dtype`, all values must have its length: the result is a NumPy array of it, zeros where a key is not in
        the table, and an array that says where it is. `dtype=(numpy.float32, 64)` gives rows of 64 floats.

        Other threads run meanwhile, from 64 keys on.
        """

    def floor(self, key: Key) -> _Row | None:
        """The row with the largest key that is not above `key`."""

    def ceiling(self, key: Key) -> _Row | None:
        """The row with the smallest key that is not below `key`."""

    def first(self) -> _Row | None:
        """The row with the smallest key."""

    def last(self) -> _Row | None:
        """The row with the largest key."""

    def range(self, start: Key | None = None, end: Key | None = None) -> Rows[_Row]:
        """The rows from `start` on and before `end`, like a slice: `end` is not among them.

        Their number, `len`, is known before any is read.
        """

    def prefix(self, prefix: bytes | str) -> Rows[_Row]:
        """The rows whose keys begin with `prefix`."""

    def keys(self) -> Rows[Any]:
        """All keys in their order."""

    def values(self) -> Rows[bytes]:
        """All values, in the order of their keys."""

    def items(self) -> Rows[_Row]:
        """All rows, in the order of their keys."""

    def __contains__(self, key: Key, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __reversed__(self) -> Iterator[Any]: ...
    @property
    def key_kind(self) -> Literal["u64", "bytes"]:
        """What the keys are."""

    @property
    def digest(self) -> str:
        """The table's XXH3-128 digest: files with different bytes have different ones. It detects accidents, and gives no
        protection against somebody who wants two files with the same digest.
        """

    @property
    def file_len_bytes(self) -> int:
        """The file's length."""

@final
class Direct(Table):
    """The table that a server serves, looked up in this process: no question is sent, and no value copied twice.

    The server hands its file over, and all processes share that one copy. When it serves a new table, lookups are in
    that within milliseconds; while there is no server, in what is there. Threads share it; a child process has the
    table handed over to itself when it first looks up.

    With `memory="copy"` the process has a copy, which nobody can change in place.

    Raises `DirectRefused` if the server does not hand its table over, and what `Client` raises.
    """

    def __new__(
        cls,
        path: _Path = "/tmp/zero-kv.sock",
        *,
        memory: Literal["map", "copy"] = "map",
        connect_timeout: float = 5.0,
        timeout: float | None = 30.0,
        server_user: str | int | None = None,
    ) -> Self: ...
    @property
    def generation(self) -> int:
        """The server's number of the table that is looked up in."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a server."""

    def refresh(self) -> None:
        """Have what is served now handed over, if it is another table, and wait for it."""

    def snapshot(self) -> Table:
        """The table as it is now, which stays as it is: several lookups in one and the same."""

def open(path: _Path, *, verify: Literal["full", "touch"] = "full", memory: Literal["map", "copy"] = "map") -> Table:
    """Open a baked file, without a server.

    With `verify="full"` the whole file is verified first; with `"touch"` each block is verified when a lookup first reads
    it, so that the file opens at once. With `memory="map"` all processes share the file's pages, and each value is copied
    and then verified. With `memory="copy"` this process has a private copy, which nobody can change.

    Raises `OSError` if the file cannot be opened, and `Damaged` if it is not a whole table.
    """

@final
class Client:
    """Questions to a server on its Unix socket; an `@` begins an abstract name.

    Threads share it, each with a connection of its own while it waits; other threads run meanwhile. A child process
    connects anew. A call whose connection fails, because the server was restarted, is made `retries` times more, and
    the server is waited for up to `reconnect_timeout`. Times are in seconds. Ctrl-C is seen when the call ends.

    The server must run as root, as this process's user, or as `server_user` (a name or a number, by default that of the
    environment's `ZERO_KV_SERVER_USER`). Without a name, another user's server is accepted if nobody else can write to the
    socket's folder or one above it.

    Raises `NotRunning`, `Refused`, `UntrustedServer`, `TimedOut`, `Closed`, `ProtocolError` or `ServerError`, which are all
    `Error`.
    """

    def __new__(
        cls,
        path: _Path = "/tmp/zero-kv.sock",
        *,
        connect_timeout: float = 5.0,
        timeout: float | None = 30.0,
        retries: int = 1,
        reconnect_timeout: float = 2.0,
        server_user: str | int | None = None,
    ) -> Self: ...
    @overload
    def get(self, key: Key, /) -> bytes | None: ...
    @overload
    def get(self, key: Key, default: _T, /) -> bytes | _T:
        """The value of a key, or `default` if the key is not in the table."""

    @overload
    def get_many(
        self, keys: _Keys | numpy.typing.NDArray[numpy.integer[Any]], *, dtype: None = None
    ) -> list[bytes | None]: ...
    @overload
    def get_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    def get_many(
        self, keys: Any, *, dtype: numpy.typing.DTypeLike
    ) -> tuple[numpy.typing.NDArray[Any], numpy.typing.NDArray[numpy.bool_]]:
        """The values of many keys, in their order, sent without waiting for each answer: see `Table.get_many`.

        Those that the server reads before and after a new table was baked are of different tables.
        """

    def exists(self, key: Key) -> bool:
        """Whether a key is in the table."""

    def floor(self, key: Key) -> _Row | None:
        """The row with the largest key that is not above `key`."""

    def ceiling(self, key: Key) -> _Row | None:
        """The row with the smallest key that is not below `key`."""

    def first(self) -> _Row | None:
        """The row with the smallest key."""

    def last(self) -> _Row | None:
        """The row with the largest key."""

    def range(self, start: Key | None = None, end: Key | None = None) -> ClientRows:
        """The rows from `start` on and before `end`, like a slice: `end` is not among them."""

    def prefix(self, prefix: bytes | str) -> ClientRows:
        """The rows whose keys begin with `prefix`."""

    def count(self, start: Key | None = None, end: Key | None = None) -> int:
        """How many keys there are from `start` on and before `end`."""

    def info(self) -> dict[str, str]:
        """What the server says of itself."""

    def ping(self) -> None:
        """Return if the server answers."""

    def close(self) -> None:
        """Close the connections. Calls fail with `Closed` from here on."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Report:
    """What was baked."""

    rows: int
    """Rows in the file."""
    rows_read: int
    """Rows that came."""
    duplicates_dropped: int
    """Of these, rows that gave way to another with the same key."""
    key_kind: Literal["u64", "bytes"]
    file_len_bytes: int
    values_len_bytes: int
    """The lengths of all values together."""
    digest: str
    """See `Table.digest`."""
    elapsed_s: float

@final
class Memory:
    """Bytes with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Question:
    @staticmethod
    def get(key: Key) -> Question: ...
    @staticmethod
    def exists(key: Key) -> Question: ...
    @staticmethod
    def floor(key: Key) -> Question: ...
    @staticmethod
    def ceiling(key: Key) -> Question: ...
    @staticmethod
    def get_many(keys: _Keys) -> Question: ...
    @staticmethod
    def outermost(last: bool) -> Question: ...
    @staticmethod
    def page(start: Key | None, end: Key | None) -> Question: ...
    @staticmethod
    def prefix(prefix: bytes | str) -> Question: ...
    @staticmethod
    def count(start: Key | None, end: Key | None) -> Question: ...
    @staticmethod
    def info() -> Question: ...
    @staticmethod
    def ping() -> Question: ...

@final
class Wire:
    def __new__(cls, path: str) -> Self: ...
    def ask(self, question: Question, future: Future[Any]) -> None: ...
    def take_requests(self) -> bytes: ...
    def received(self, bytes: bytes) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def closed(self) -> BaseException: ...
    @property
    def waiting_count(self) -> int: ...

def bake_rows(
    rows: Iterator[Any],
    path: str,
    keys: str,
    duplicates: str,
    base: str | None,
    memory_bytes: int | None,
    threads: int | None,
    replace: tuple[int, int | None, bool, bool],
) -> Report: ...
def fill_fixed(source: Table | Client, keys: Any, len_bytes: int) -> tuple[Memory, Memory]: ...
def fill_arrow(
    source: Table | Client, numbers: Any, offsets: Any, data: Any, valid: Any
) -> tuple[Memory, Memory, Memory, int, bool]: ...
def forked() -> None: ...
def check_server_user(path: str, uid: int, server_user: str | int | None) -> None: ...
