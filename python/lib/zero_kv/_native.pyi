import datetime
import ipaddress
import os
import pathlib
import uuid
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, Unpack, final, overload

import numpy
import numpy.typing
from typing_extensions import TypeVar

from zero_kv._info import ServerInfo, Topology
from zero_kv._options import ClientOptions, ClusterOptions, DirectOptions

__version__: str

_T = TypeVar("_T")
_K = TypeVar("_K", default=Any)
"""The type of keys in results: `int`, `bytes`, an address of `ipaddress`, `uuid.UUID`, `datetime.date`,
`datetime.datetime`, or a tuple."""
_V = TypeVar("_V", default=Any)
"""The type of values: `bytes`, or `TypedRow` in a typed table."""
_Path: TypeAlias = str | os.PathLike[str]
Key: TypeAlias = (
    int | bytes | str | ipaddress.IPv4Address | ipaddress.IPv6Address | uuid.UUID | datetime.date | tuple[Any, ...]
)
"""A key as an argument. In a table whose keys are neither numbers nor bytes, `str` is the written form of a key."""

_Keys: TypeAlias = Iterable[Any]
_Numbers: TypeAlias = numpy.typing.NDArray[numpy.integer[Any]]
_ArrowParts: TypeAlias = tuple[Memory, Memory, Memory, int, bool]

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Rows(Generic[_T]):
    """Keys, values, or rows of a table in key order, read during iteration or by their position, as in a list: `rows[0]` is
    the first one, `rows[-1]` the last one, and `rows[10:20]` selects ten.

    `len` reads no rows. All rows come from one table, even if the server replaces its table during the iteration.
    """

    def __len__(self) -> int: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __reversed__(self) -> Iterator[_T]: ...
    @overload
    def __getitem__(self, position: int, /) -> _T: ...
    @overload
    def __getitem__(self, position: slice, /) -> Rows[_T]: ...

@final
class ClientRows(Generic[_T]):
    """The keys, values, or rows of a range in key order, requested page by page during each iteration. The values of a typed
    table are `TypedRow`.

    If the server replaces its table during an iteration, the rows come from both the old and the new table.
    """

    def __iter__(self) -> Iterator[_T]: ...
    def __reversed__(self) -> Iterator[_T]: ...
    def __contains__(self, item: object, /) -> bool: ...

@final
class Schema(Mapping[str, str]):
    """The columns of a typed table, as a mapping from names to types, in the order of the table.

    A type is a text such as `"f32"`, `"text"`, `"timestamp(us)"`, `"decimal(10,2)"`, or `"list(f32,128)"`. The types of
    columns that can be null end with `?`. The key is not a column.
    """

    def __getitem__(self, name: str, /) -> str: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    @property
    def key_name(self) -> str | None:
        """The name that the key had in the rows from which the table was baked, or `None`."""

@final
class TypedRow(Mapping[str, Any]):
    """A row of a typed table, as a read-only mapping from the names of columns to values.

    Values are `bool`, `int`, `float`, `str`, `bytes`, `datetime.date`, `datetime.datetime` in UTC, `decimal.Decimal`, or
    lists, and `None` for null. A `datetime` has microseconds, so the nanoseconds of a `timestamp(ns)` are dropped.
    """

    def __getitem__(self, name: str, /) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    @property
    def schema(self) -> Schema:
        """The columns of the row."""

class LookupTable(Mapping[_K, _V]):
    """What tables in this process (`Table`, `Direct`, and `Published`) and blocking clients (`Client` and
    `ClusterClient`) have in common: the lookups of a mapping. Keys are `int`, or `bytes` and `str` (as UTF-8),
    or objects of another `key_type`, for which `str` and `bytes` are the written form: addresses of `ipaddress`,
    `uuid.UUID`, `datetime.date`, `datetime.datetime` (in UTC if it has no time zone), and tuples, whose leading parts
    are prefixes and ends of ranges. Values are `bytes`, or, in a typed table, `TypedRow`. Methods that return buffers
    and arrays of values return the bytes of rows.

    A table of `u64` or `bytes` does not have a key of the other kind, a number that is negative or has more than 64
    bits, `None`, or bytes that are empty or longer than 65535: `in` is false, `get` and `get_many` return the default,
    and `[]` raises `KeyError`. With `strict=True`, these keys raise `KeyKind` or `TypeError`, `OverflowError`, or
    `ValueError`. `floor`, `ceiling`, `range`, `prefix`, `count`, and `columns` always raise these exceptions, and so do
    all methods of other tables for an object that is no key of their type.

    In an array of pyarrow, Polars, or pandas, and in a masked array of NumPy, keys can be null. In all methods, the
    table has no row for a null key.
    """

    def __getitem__(self, key: Key, /) -> _V:  # type: ignore[override]
        """Return the value of a key, or raise `KeyError` if the table does not have the key."""

    @overload
    def get(self, key: object, /) -> _V | None: ...
    @overload
    def get(self, key: object, default: _V | _T, /) -> _V | _T:
        """Return the value of a key, or `default` if the table does not have the key. The value is `bytes`, or, in a typed
        table, a `TypedRow`.
        """

    @overload
    def get_bytes(self, key: object, /) -> bytes | None: ...
    @overload
    def get_bytes(self, key: object, default: _T, /) -> bytes | _T:
        """Return the bytes of a value or row, or `default` if the table does not have the key."""

    def get_row(self, key: object, default: Any = None, /) -> Any:
        """Return the row of a key in a typed table, or `default` if the table does not have the key.

        Raises `NotTyped` if the table has no schema.
        """

    @overload
    def get_many(self, keys: _Keys | _Numbers, *, dtype: None = None) -> list[_V | None]: ...
    @overload
    def get_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> Any: ...
    @overload
    def get_many(
        self, keys: Any, *, dtype: numpy.typing.DTypeLike
    ) -> tuple[numpy.typing.NDArray[Any], numpy.typing.NDArray[numpy.bool_]]:
        """Return the values of many keys, in the order of the keys. This method is several times faster than one call
        per key.

        For a list, another iterable, or a NumPy array of keys, the result is a list with `None` for keys that the
        table does not have. For a pyarrow array or a Polars Series, the result is a pyarrow array of type binary,
        with nulls.

        With `dtype`, the result is two NumPy arrays: the values, with zeros for missing keys, and Booleans that are
        true for the keys that were found. All values must have the length of `dtype`. With `dtype=(numpy.float32,
        64)`, each value is a row of 64 floats.
        """

    def get_bytes_many(self, keys: _Keys | _Numbers) -> list[bytes | None]:
        """Return the bytes of the values or rows of many keys, in the order of the keys. The result has `None` for keys
        that the table does not have.
        """

    def get_rows(self, keys: _Keys | _Numbers) -> list[TypedRow | None]:
        """Return the rows of many keys in a typed table, in the order of the keys. The result has `None` for keys that the
        table does not have.

        Raises `NotTyped` if the table has no schema.
        """

    def columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: numpy.typing.NDArray[Any] | None = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        """Return some columns of the rows of many keys in a typed table, in the order of the keys. `columns` are the
        names of the columns; `None` means all columns. A server sends only these columns.

        With `format="numpy"`, and if all columns have one numeric type, the result is a matrix with a row for each
        key: a two-dimensional array in C order. A list of fixed length takes as many columns of the matrix as it has
        elements. The matrix is `out` if `out` is given: a writable array in C order with the result's shape and
        dtype. Otherwise, the result is a dict with an array for each column: numbers and Booleans as usual, dates as
        `datetime64[D]`, timestamps as `datetime64` of their unit, lists of fixed length as two-dimensional arrays,
        and other types as objects of the types of `TypedRow`.

        `fill` takes the place of null and of the values of missing keys, but not of a stored `NaN`. It is one value
        for all columns of numbers and Booleans, or a dict with the values of some columns. By default, it is `NaN` for
        floats, `NaT` for dates and timestamps, and `None` for objects. Integers and Booleans have no default: if a
        value is null or a key is missing, their columns require `fill`.

        With `format="arrow"`, the result is a `pyarrow.RecordBatch`, with null for missing values. `"pandas"` and
        `"polars"` return DataFrames with the memory of the RecordBatch; the columns of the pandas DataFrame are of
        `pandas.ArrowDtype`, apart from timestamps, which are `datetime64` of their unit. Timestamps have no time zone.

        Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
        """

    def schema(self) -> Schema | None:
        """Return the columns of a typed table, or `None` if the table's values are bytes."""

    def contains(self, key: object) -> bool:
        """Return whether the table has a key."""

    def contains_many(self, keys: _Keys | _Numbers) -> list[bool]:
        """Return whether the table has each of many keys, in the order of the keys."""

    def keys(self) -> Rows[_K] | ClientRows[_K]:  # type: ignore[override]
        """Return all keys in ascending order."""

    def values(self) -> Rows[_V] | ClientRows[_V]:  # type: ignore[override]
        """Return all values, in the order of their keys."""

    def items(self) -> Rows[tuple[_K, _V]] | ClientRows[tuple[_K, _V]]:  # type: ignore[override]
        """Return all rows, in the order of their keys."""

    def floor(self, key: Key) -> tuple[_K, _V] | None:
        """Return the row with the largest key less than or equal to `key`."""

    def ceiling(self, key: Key) -> tuple[_K, _V] | None:
        """Return the row with the smallest key greater than or equal to `key`."""

    def cover(self, key: Key) -> tuple[_K, _K, _V] | None:
        """Return the range that contains `key`, in a table of ranges: its first key, its last key, and its value.

        Without ranges, a table raises `ValueError`, and a client `ServerError`.
        """

    @overload
    def cover_many(self, keys: _Keys | _Numbers, *, dtype: None = None) -> list[tuple[_K, _K, _V] | None]: ...
    @overload
    def cover_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> tuple[Any, Any, Any]: ...
    @overload
    def cover_many(self, keys: Any, *, dtype: numpy.typing.DTypeLike) -> tuple[numpy.typing.NDArray[Any], ...]:
        """Return the result of `cover` for many keys, in the order of the keys. This method is several times faster
        than one call per key.

        For a list, another iterable, or a NumPy array of keys, the result is a list of ranges, with `None` for keys
        that no range contains. For a pyarrow array or a Polars Series, the result is three pyarrow arrays with nulls:
        the first keys of the ranges, their last keys, and their values.

        With `dtype`, the result is four NumPy arrays: the first keys of the ranges, their last keys, their values, and
        Booleans that are true for the keys that a range contains. Without a range, keys and value are zero. The table's
        keys must be numbers, and all values must have the length of `dtype`.
        """

    @overload
    def floor_many(self, keys: _Keys | _Numbers, *, dtype: None = None) -> list[tuple[_K, _V] | None]: ...
    @overload
    def floor_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> tuple[Any, Any]: ...
    @overload
    def floor_many(
        self, keys: Any, *, dtype: numpy.typing.DTypeLike
    ) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[Any], numpy.typing.NDArray[numpy.bool_]]:
        """Return the result of `floor` for many keys, in the order of the keys. This method is several times faster
        than one call per key.

        For a list, another iterable, or a NumPy array of keys, the result is a list of rows, with `None` for keys
        without a row. For a pyarrow array or a Polars Series, the result is two pyarrow arrays with nulls: the rows'
        keys and their values.

        With `dtype`, the result is three NumPy arrays: the rows' keys, their values, and Booleans that are true for
        the keys with a row. Without a row, key and value are zero. The table's keys must be numbers, and all values
        must have the length of `dtype`.
        """

    @overload
    def ceiling_many(self, keys: _Keys | _Numbers, *, dtype: None = None) -> list[tuple[_K, _V] | None]: ...
    @overload
    def ceiling_many(self, keys: _ArrowArray | _ArrowStream, *, dtype: None = None) -> tuple[Any, Any]: ...
    @overload
    def ceiling_many(
        self, keys: Any, *, dtype: numpy.typing.DTypeLike
    ) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[Any], numpy.typing.NDArray[numpy.bool_]]:
        """Return the result of `ceiling` for many keys, in the order of the keys: see `floor_many`."""

    def floor_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        limit: Any = None,
        fill: Any = None,
        out: numpy.typing.NDArray[Any] | None = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> tuple[Any, ...]:
        """Return some columns of the rows that `floor` finds for many keys, in the order of the keys: for each key the
        row with the largest key less than or equal to it. `columns`, `fill`, `out`, and `format` are the arguments of
        `columns`. A server sends whole rows.

        `limit` has a key for each of the keys: the row of a key is missing if the row's key is less than its limit. In
        a table whose keys begin with an entity and end with a time, the limit of a key is the entity, or the entity and
        the earliest time, so that no key gets a row of another entity or an older row.

        With `format="numpy"`, the result is three objects: an array of the rows' keys, the columns, and an array of
        Booleans that are true for the keys with a row. Without a row, a key is zero or `None`. With another format, the
        result is the rows' keys, with nulls, and the columns.

        Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
        """

    def ceiling_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        limit: Any = None,
        fill: Any = None,
        out: numpy.typing.NDArray[Any] | None = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> tuple[Any, ...]:
        """Return some columns of the rows that `ceiling` finds for many keys: see `floor_columns`. The row of a key is
        missing if the row's key is greater than its limit.
        """

    def cover_columns(
        self,
        keys: Any,
        columns: Iterable[str] | None = None,
        *,
        fill: Any = None,
        out: numpy.typing.NDArray[Any] | None = None,
        format: Literal["numpy", "arrow", "pandas", "polars"] = "numpy",
    ) -> Any:
        """Return some columns of the ranges that contain many keys, in the order of the keys. A key that no range
        contains has no values. The arguments and the result are those of `columns`. A server sends whole rows.

        Raises `NotTyped` if the table has no schema, and `ValueError` if it does not have one of the columns.
        """

    def first(self) -> tuple[_K, _V] | None:
        """Return the row with the smallest key."""

    def last(self) -> tuple[_K, _V] | None:
        """Return the row with the largest key."""

    def range(
        self, start: Key | None = None, end: Key | None = None
    ) -> Rows[tuple[_K, _V]] | ClientRows[tuple[_K, _V]]:
        """Return the rows with keys from `start` up to, but not including, `end`, in key order."""

    def prefix(self, prefix: Key) -> Rows[tuple[_K, _V]] | ClientRows[tuple[_K, _V]]:
        """Return the rows whose keys start with `prefix`, in key order."""

    def count(self, start: Key | None = None, end: Key | None = None) -> int:
        """Return the number of keys from `start` up to, but not including, `end`."""

    def count_prefix(self, prefix: Key) -> int:
        """Return the number of keys that start with `prefix`."""

    @property
    def key_type(self) -> str:
        """The type of the keys, such as `"u64"`, `"ip"`, or, for keys of two parts, `"bytes,date"`. A client requests it
        once, and again when the server has rejected keys because the type has changed.
        """

    @property
    def strict(self) -> bool:
        """Whether a key that the table cannot have is an error."""

    def close(self) -> None:
        """End the use of the table or client. Later calls raise `Closed`."""

    def __contains__(self, key: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[_K]: ...
    def __reversed__(self) -> Iterator[_K]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Table(LookupTable[_K, _V]):
    """A table in the memory of this process: of a file, and, as a `Direct` or `Published`, the newest one of a server
    or of an object store.

    All results of a call come from one version of the table. With 64 keys or more, other threads run during a call.
    Threads can share a table. `close`, also at the end of `with`, unmaps the file. Rows, iterators, and views that
    exist remain valid, and keep the file mapped. A table is false if it has no rows, like a dict.

    A lookup in a file that was changed in place or truncated raises `Damaged`. To replace a file, rename a new file
    to its name, as `bake` does. Changes of a mapped file are detected by its length and its times. A change is not
    detected if somebody writes through a mapping that is older than the table's, or, on tmpfs, through any mapping.
    Nobody can change a table with `memory="copy"`.
    """

    def keys(self) -> Rows[_K]: ...  # type: ignore[override]
    def values(self) -> Rows[_V]: ...  # type: ignore[override]
    def items(self) -> Rows[tuple[_K, _V]]: ...  # type: ignore[override]
    def range(self, start: Key | None = None, end: Key | None = None) -> Rows[tuple[_K, _V]]: ...
    def prefix(self, prefix: Key) -> Rows[tuple[_K, _V]]: ...
    def view(self, key: Key) -> memoryview:
        """Return the value of a key as a read-only `memoryview`, or raise `KeyError` if the table does not have the key.

        If nobody can change the table (`memory="copy"`, or a server's sealed memory), the view refers to the value
        in the table. The view then keeps this table in memory, even if the server serves a newer table. For a mapped
        file, the view refers to a copy of the value.
        """

    def snapshot(self) -> Table[_K, _V]:
        """Return the current version of the table, for several lookups. It does not change when lookups in this table
        use a newer version.
        """

    @property
    def digest(self) -> str:
        """The table's XXH3-128 digest. It detects accidental changes of the file, but not deliberate changes."""

    @property
    def file_len_bytes(self) -> int:
        """The file's length in bytes."""

@final
class Direct(Table[_K, _V]):
    """A server's table, in which this process looks keys up without sending requests.

    The server transfers its file, and all processes share one copy of the file in memory. When the server serves a
    new table, lookups use the new table within milliseconds. While no server runs, lookups use the last table.
    Threads can share a `Direct`. After a fork, the child process requests its own transfer at its first lookup.

    With `memory="copy"`, the process has a private copy, which nobody can change. The default of `path` is the value of
    the environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`. `strict` is described at `LookupTable`, and the
    times at `Client`. `close`, also at the end of `with`, disconnects from the server.

    Raises `DirectRefused` if the server does not transfer its table, and the exceptions of `Client`.
    """

    def __new__(cls, path: _Path | None = None, **options: Unpack[DirectOptions]) -> Self: ...
    @property
    def generation(self) -> int:
        """The number of the generation that lookups use, as assigned by the server."""

    @property
    def is_connected(self) -> bool:
        """Whether the process is connected to a running server."""

    def refresh(self) -> None:
        """Wait until lookups use the table that the server serves now."""

@final
class Published(Table[_K, _V]):
    """A published table, which this process follows without a server.

    The newest generation, or the one that the newest pin selects, is fetched into the folder `cache`, verified, and
    mapped. A thread then polls the store every `poll_seconds` on average, and lookups use a new generation as soon as
    it is fetched and verified, and has passed its canaries. If the folder has a complete generation, the constructor does
    not wait for the store. If the store cannot be read, or a generation is damaged, lookups continue in the current
    generation, and `last_error` has the reason.

    One process at a time can use a folder, which keeps `keep` generations. The process reports its state to the store
    under the name `node`, by default the machine's name, and in the zone `zone`, so that a rollout can proceed zone by zone.
    `bandwidth_bytes_per_second` limits downloads. With `slots`, such
    as `range(0, 8192)`, only the files that have some of these slots are fetched, and the table has only their rows.
    `strict` is described at `LookupTable`.

    `progress` is called with a `Progress` during downloads, from the thread, at most ten times per second. Its exceptions
    end the constructor. After that, they are passed to `sys.unraisablehook`.

    After a fork, the child process continues to use the generation that was current, and does not follow the table.

    Raises `StoreFailed` if the folder has no complete generation and the store cannot be read, `PublishFailed` if the
    table has no usable generation, `OSError` if the folder cannot be used, and `ValueError` for a malformed URL.
    """

    def __new__(
        cls,
        url: str,
        *,
        cache: _Path,
        poll_seconds: float = 5.0,
        progress: Callable[[Progress], object] | None = None,
        node: str | None = None,
        zone: str | None = None,
        keep: int = 3,
        bandwidth_bytes_per_second: int | None = None,
        slots: range | None = None,
        strict: bool = False,
    ) -> Self: ...
    @property
    def url(self) -> str:
        """The table's URL."""

    @property
    def generation(self) -> int:
        """The number of the generation that lookups use, as its publisher assigned it."""

    @property
    def last_error(self) -> str | None:
        """Why lookups do not use the generation that they should use, or `None`."""

    def refresh(self) -> bool:
        """Poll the store now, and fetch a new generation if there is one. Return whether lookups use another generation
        than before.

        Raises `StoreFailed` or `PublishFailed` if lookups do not use the generation that they should use. They continue in
        the current generation.
        """

    def close(self) -> None:
        """Stop following the table, and unlock the folder. Lookups continue in the current generation."""

@final
class Entry:
    """An uploaded shard, which `write_shard` returns and `commit` publishes. Entries can be pickled and compared."""

    slots: range
    object: str
    """The name of the object, relative to the table's URL."""
    rows: int
    len_bytes: int
    """The length of the file in bytes."""
    digest: str
    """The digest of the file: see `Table.digest`."""
    key_type: str
    schema: list[str]
    """The columns of a typed table, as `name:type` text. Empty for other tables."""
    key_name: str
    """The name of the key's column in a typed table, or an empty text."""

    def to_json(self) -> str:
        """Return the entry as JSON text."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the entry that `to_json` wrote. Raises `ValueError` for other text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a dict of numbers and text."""

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the entry that `to_dict` made. Raises `ValueError` for another dict."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: Any, /) -> bool: ...

@final
class Generation:
    """A generation of a published table."""

    number: int
    """The number of the generation, counted from 1."""
    parent: int
    """The number of the generation that was the newest one before, or 0."""
    rows: int
    len_bytes: int
    """The length of all files in bytes."""
    digest: str
    """The digest of the file: see `Table.digest`. For several files, it is the digest of their digests."""

@final
class Progress:
    """The progress of the transfer of one file."""

    phase: Literal["verify", "upload", "read back", "download"]
    done_bytes: int
    """The number of bytes that are complete."""
    total_bytes: int
    """The length of the file in bytes."""
    path: pathlib.Path | None
    """The path of the file that is published, or `None` for a download."""

def open(
    path: _Path,
    *,
    verify: Literal["full", "touch"] = "full",
    memory: Literal["map", "copy"] = "map",
    strict: bool = False,
) -> Table[Any, Any]:
    """Open a baked file, without a server.

    With `verify="full"`, the whole file is verified before this function returns. With `verify="touch"`, only the
    file's index is verified before this function returns, and each block is verified when a lookup first reads it.
    With `memory="map"`, all processes share the file's pages, and each value is copied and then verified. With
    `memory="copy"`, this process has a private copy, which nobody can change. `strict` is described at `LookupTable`.

    Raises `OSError` if the file cannot be opened, and `Damaged` if the file is not a complete table.
    """

@final
class Client(LookupTable[_K, _V]):
    """A blocking client of a server. The address is the path of a Unix socket (a path that starts with `@` names an
    abstract socket), `zkv://host:port` for TCP, or `zkv+tls://host:port` for TCP with TLS. The default is the value
    of the environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`.

    A client is a mapping whose `[]`, `in`, `len`, and iteration send requests. It is always true. `dict(client)`
    sends a request for each key, so call `dict(client.items())`. If the server replaces its table during a call with
    many keys or an iteration, the results may come from both the old and the new table.

    Threads can share a client: each call uses its own connection, and other threads run during the call. Ctrl-C ends
    a call. After a fork, the child process reconnects.

    If the connection fails during a call, for example because the server restarted, the call is retried `retries`
    times, and attempts to reconnect continue for up to `reconnect_timeout`. If no server runs, a call fails after
    that time, and the next call reconnects. Connecting takes at most `connect_timeout`, and a call `timeout`. Times
    are in seconds, and without a `timeout` (`None`), a call waits forever. `strict` is described at `LookupTable`.

    With `cache`, a client keeps the values of hot keys in memory, at most this number of bytes, and `get`, `get_many`,
    `get_bytes`, `get_bytes_many`, and `[]` send no requests for them. A call first reads what the server has announced,
    without waiting: once the announcement of a new table has arrived, no call returns a value of the old one.

    On a Unix socket, the server must run as root, as this process's user, or as `server_user` (a name or a number,
    by default the value of the environment variable `ZERO_KV_SERVER_USER`). If no user is named, a server that runs
    as another user is accepted if only that user, root, and this process's user can write to the socket's directory
    and the directories above it.

    With a user in the address, as in `zkv+tls://user@host:port`, or with `user`, each connection logs in. The
    password is `password`, or is read from the file `password_file`, from the environment variable
    `ZERO_KV_PASSWORD`, or from the file that `ZERO_KV_PASSWORD_FILE` names. With TLS, the server's certificate must
    be signed by an authority in `ca_file` (by default, one that the system trusts), and must be valid for
    `server_name` (by default, the host). `certificate_file` and `key_file` are the client's own certificate and its
    key.

    Raises `NotRunning`, `Refused`, `UntrustedServer`, `TlsFailed`, `LoginFailed`, `NotPermitted`, `TimedOut`,
    `Closed`, `ProtocolError`, or `ServerError`, which are all subclasses of `Error`.
    """

    def __new__(cls, address: _Path | None = None, **options: Unpack[ClientOptions]) -> Self: ...
    def keys(self) -> ClientRows[_K]: ...  # type: ignore[override]
    def values(self) -> ClientRows[_V]: ...  # type: ignore[override]
    def items(self) -> ClientRows[tuple[_K, _V]]: ...  # type: ignore[override]
    def range(self, start: Key | None = None, end: Key | None = None) -> ClientRows[tuple[_K, _V]]: ...
    def prefix(self, prefix: Key) -> ClientRows[tuple[_K, _V]]: ...
    def info(self) -> ServerInfo:
        """Return facts about the server and its table: see `ServerInfo`."""

    def ping(self) -> None:
        """Send a request without a key, and return when the server has responded."""

@final
class ClusterClient(LookupTable[_K, _V]):
    """A blocking client of a cluster, which sends each request to a node that has the rows of the key's slot.

    `nodes` is the address of a node, or a list of addresses, such as `["zkv://10.0.0.1:6380",
    "zkv://10.0.0.2:6380"]`. The client learns the topology from the first of them that responds, and learns it again
    when a node responds that another node has the slot, or cannot be reached. Requests to different nodes are sent
    at the same time. Results in key order are those of all nodes.

    With `read_from_replicas=True`, requests go to replicas first; otherwise they go to a replica only if the primary
    cannot be reached. `zone` is the zone of this process, whose nodes are preferred to other nodes with the same
    role. In each of `attempts` attempts, a call tries all nodes of a slot until one answers. `timeout` is the
    maximum time in seconds of one request to one node. After this time, a call that all nodes of a slot have failed
    to answer is not attempted again, and after twice this time, a call ends. `None` means no limit. The other
    options are those of `Client`, for the connections to all nodes, which share the `cache`.

    A client is a mapping, as a `Client` is. Threads can share a client. After a fork, the child process reconnects.
    Ctrl-C ends a call to one node; a call to several nodes ends when all of them have responded, or after `timeout`.

    Raises `NotRunning`, `Refused`, `TimedOut`, or `Closed` if no node of a slot can be reached, `ProtocolError` if a
    node sends an invalid topology, `ServerError` if nodes redirect requests to each other or have different types of
    a requested column, `ValueError` if a server is not a node of a cluster, and the exceptions of `Client`.
    """

    def __new__(cls, nodes: _Path | Sequence[_Path], **options: Unpack[ClusterOptions]) -> Self: ...
    def keys(self) -> ClientRows[_K]: ...  # type: ignore[override]
    def values(self) -> ClientRows[_V]: ...  # type: ignore[override]
    def items(self) -> ClientRows[tuple[_K, _V]]: ...  # type: ignore[override]
    def range(self, start: Key | None = None, end: Key | None = None) -> ClientRows[tuple[_K, _V]]: ...
    def prefix(self, prefix: Key) -> ClientRows[tuple[_K, _V]]: ...
    def topology(self) -> Topology:
        """Return the topology that the client follows, as the document that docs/CLUSTER.md describes."""

@final
class Report:
    """Result of a bake."""

    rows: int
    """The number of rows in the file."""
    rows_read: int
    """The number of rows that were read."""
    duplicates_dropped: int
    """The number of rows that were dropped because another row with the same key was kept."""
    key_type: str
    file_len_bytes: int
    values_len_bytes: int
    """The total length of the values."""
    digest: str
    """See `Table.digest`."""
    elapsed_s: float

@final
class Memory:
    """Bytes with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Keys:
    """Keys without null, as a column of `_keys.py`."""

    def __new__(cls, column: tuple[Any, ...]) -> Self: ...

@final
class ReceivedRows:
    def columns(self, fill: Any, out: Any, format: str) -> Any: ...
    def rows(self) -> list[TypedRow | None]: ...

@final
class Request:
    @staticmethod
    def get_many(key_type: str, keys: _Keys) -> Request: ...
    @staticmethod
    def get_with_schema(key_type: str, keys: _Keys) -> list[Request]: ...
    @staticmethod
    def contains_many(key_type: str, keys: _Keys) -> Request: ...
    @staticmethod
    def floor_many(key_type: str, keys: Any) -> list[Request]: ...
    @staticmethod
    def ceiling_many(key_type: str, keys: Any) -> list[Request]: ...
    @staticmethod
    def cover_many(key_type: str, keys: Any) -> list[Request]: ...
    @staticmethod
    def first(key_type: str) -> Request: ...
    @staticmethod
    def last(key_type: str) -> Request: ...
    @staticmethod
    def page(key_type: str, start: Key | None, end: Key | None) -> Request: ...
    @staticmethod
    def page_with_prefix(key_type: str, prefix: Key) -> Request: ...
    @staticmethod
    def count(key_type: str, start: Key | None, end: Key | None) -> Request: ...
    @staticmethod
    def count_prefix(key_type: str, prefix: Key) -> Request: ...
    @staticmethod
    def schema() -> Request: ...
    @staticmethod
    def columns(key_type: str, schema: Schema, names: Iterable[str] | None, keys: Any) -> Request: ...
    def key_kind(self) -> Literal["u64", "bytes"] | None: ...
    @staticmethod
    def key_type() -> Request: ...
    @staticmethod
    def info() -> Request: ...
    @staticmethod
    def ping() -> Request: ...

@final
class ValueCache:
    def __new__(cls, cache: int) -> Self: ...
    @property
    def held_bytes(self) -> int: ...

@final
class Pipeline:
    def __new__(cls, address: str, cache: ValueCache | None = None) -> Self: ...
    def cached(self, request: Request) -> Any: ...
    def add(self, request: Request, future: Future[Any]) -> None: ...
    def take_unsent(self) -> bytes: ...
    def received(self, bytes: bytes) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def closed(self) -> BaseException: ...

def bake_rows(
    rows: Iterator[Any],
    path: str,
    keys: str,
    ranges: tuple[str, str] | None,
    layout: str,
    duplicates: str,
    base: str | None,
    memory_bytes: int | None,
    threads: int | None,
    replace: tuple[int, int | None, bool, bool],
    typed: tuple[list[tuple[str, str]], str | None, bool] | None,
    progress: Callable[[str, int, int | None], object] | None,
) -> Report: ...
def fill_fixed(table: LookupTable[Any, Any], keys: Any, len_bytes: int) -> tuple[Memory, Memory]: ...
def fill_neighbors_fixed(
    table: LookupTable[Any, Any], keys: Any, len_bytes: int, is_floor: bool
) -> tuple[str, Memory, Memory, Memory]: ...
def fill_neighbors_arrow(
    table: LookupTable[Any, Any], keys: Any, is_floor: bool
) -> tuple[str, Memory | None, _ArrowParts | None, _ArrowParts]: ...
def fill_ranges_fixed(
    table: LookupTable[Any, Any], keys: Any, len_bytes: int
) -> tuple[str, Memory, Memory, Memory, Memory]: ...
def fill_ranges_arrow(
    table: LookupTable[Any, Any], keys: Any
) -> tuple[str, tuple[Memory | None, _ArrowParts | None], tuple[Memory | None, _ArrowParts | None], _ArrowParts]: ...
def find_neighbor_columns(
    table: LookupTable[Any, Any], keys: Any, selection: dict[str, Any]
) -> tuple[str, Memory | None, list[Any] | None, Memory, ReceivedRows]: ...
def received_neighbor_columns(
    key_type: str, schema: Schema, keys: Any, rows: list[tuple[Any, Any] | None], selection: dict[str, Any]
) -> tuple[str, Memory | None, list[Any] | None, Memory, ReceivedRows]: ...
def received_rows(schema: Schema, rows: list[bytes | None], names: Iterable[str] | None) -> ReceivedRows: ...
def check_result(fill: Any, out: Any, format: str) -> None: ...
def fill_arrow(table: LookupTable[Any, Any], keys: Any, valid: list[bool] | None) -> _ArrowParts: ...
def forked() -> None: ...
def stop_following() -> None: ...
def publish_files(
    files: list[tuple[str, int, int]],
    to: str,
    canary: _Path | None,
    note: str,
    parent: int | None,
    allow: list[str],
    progress: Callable[[Progress], object] | None,
) -> Generation: ...
def endpoint(address: str, **options: Any) -> tuple[str | None, int, bool, Request | None]: ...
def decode_row(schema: Schema, bytes: bytes) -> TypedRow: ...
def default_address() -> str: ...
def default_options() -> dict[str, Any]: ...
def index_of(key: Any) -> int | bytes: ...
def key_kinds(keys: Iterable[Any]) -> list[Literal["u64", "bytes"] | None]: ...
def possible_keys(keys: Any, key_type: str) -> tuple[list[Any], list[bool] | None]: ...
def write_keys(key_type: str, keys: list[Any]) -> list[bytes | None]: ...
def wrong_kind(held: str, asked: str) -> str: ...
def check_server_user(path: str, uid: int, server_user: str | int | None) -> None: ...
def upload_shard(
    batches: Iterator[Any],
    slots: tuple[int, int],
    to: str,
    keys: str,
    has_numbers: bool,
    typed: tuple[list[tuple[str, str]], str | None, bool] | None,
    options: tuple[str, int | None, int | None],
    temp_dir: _Path | None,
    progress: Callable[[Progress], object] | None,
) -> Entry: ...
def commit_entries(
    entries: list[Entry],
    empty: list[tuple[int, int]],
    to: str,
    canary: _Path | None,
    note: str,
    parent: int | None,
    allow: list[str],
) -> Generation: ...
def fill_slots(objects: Any, column: Any, key_type: str) -> Memory: ...
def divide_slots(count: int) -> list[tuple[int, int]]: ...
def divide_slots_by_length(lens: list[bytes], len_max_bytes: int) -> list[tuple[int, int]]: ...
def measure_slots(
    batches: Iterator[Any], keys: str, has_numbers: bool, columns: list[tuple[str, str]] | None
) -> Memory: ...
def newest_generation(url: str) -> int: ...
def read_generation(url: str, number: int | None) -> tuple[int, list[Entry]]: ...
def pull_shard(url: str, entry: Entry, path: _Path) -> None: ...
def parse_columns(text: str) -> list[tuple[str, str]]: ...
