"""An online store for Feast, with one typed table per feature view.

`feature_store.yaml`:

    project: rides
    registry: data/registry.db
    provider: local
    online_store:
        type: zero_kv.feast.ZeroKvOnlineStore
        path: data/online
    entity_key_serialization_version: 3

`feast materialize` bakes a new generation of each table, which contains the new rows and the rows of the generation
before, and replaces the file atomically. Readers see either all rows of a materialization or none. A batch without
`materialization_config.online_write_batch_size` is one generation.

The tables are files in the folder `path`. With `read: file`, each process maps the files. With `read: direct` or
`read: client`, `kv_store` serves each file on the socket `socket`, in which `{table}` is replaced by the name of the
table: the project, an underscore, and the name of the feature view.

A key is the serialized entity key of Feast: see `entity_keys`. Each feature is a column. Values of the types that no
column has, such as lists of timestamps and maps, are stored as serialized `feast.types.Value` messages in a column of bytes.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from feast.infra.key_encoding_utils import serialize_entity_key  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.infra.online_stores.helpers import compute_table_id  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.infra.online_stores.online_store import OnlineStore  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.protos.feast.types.EntityKey_pb2 import EntityKey  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.protos.feast.types.Value_pb2 import Value  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.repo_config import FeastConfigBaseModel  # type: ignore[import-untyped, import-not-found, unused-ignore]
from feast.types import Array, PrimitiveFeastType  # type: ignore[import-untyped, import-not-found, unused-ignore]

from zero_kv._bake import bake
from zero_kv._native import Client, Direct, LookupTable, Table, open

# The columns beside the features. Feast reserves names that begin with two underscores.
_EVENT_TIMESTAMP = "__event_timestamp"
_CREATED_TIMESTAMP = "__created_timestamp"
# The timestamp that Feast stores for a missing timestamp.
_NO_TIMESTAMP = -(2**63)
# For each type of Feast with a column type: the column type, and the field of a Value.
_SCALARS = {
    PrimitiveFeastType.BOOL: ("bool", "bool_val"),
    PrimitiveFeastType.INT32: ("i32", "int32_val"),
    PrimitiveFeastType.INT64: ("i64", "int64_val"),
    PrimitiveFeastType.FLOAT32: ("f32", "float_val"),
    PrimitiveFeastType.FLOAT64: ("f64", "double_val"),
    PrimitiveFeastType.STRING: ("text", "string_val"),
    PrimitiveFeastType.BYTES: ("bytes", "bytes_val"),
    PrimitiveFeastType.UNIX_TIMESTAMP: ("timestamp(ms)", "unix_timestamp_val"),
}
_LISTED = {"i32", "i64", "f32", "f64", "text"}
_UTC = datetime.timezone.utc
_Rows = list[tuple[Any, dict[str, Any], datetime.datetime, datetime.datetime | None]]


class ZeroKvOnlineStoreConfig(FeastConfigBaseModel):  # type: ignore[misc, unused-ignore]
    """The section `online_store` of `feature_store.yaml`."""

    type: Literal["zero_kv.feast.ZeroKvOnlineStore"] = "zero_kv.feast.ZeroKvOnlineStore"
    path: str = "data/online"
    """The folder of the tables, relative to the feature repository."""
    read: Literal["file", "direct", "client"] = "file"
    """How features are read: from the files, in the table that a server serves, or with requests to a server."""
    socket: str = "/run/zero-kv/{table}.sock"
    """The socket of the server of a table, for `read: direct`. For `read: client`, its socket or its URL."""


class _Column:
    """The column of a feature."""

    def __init__(self, name: str, dtype: Any) -> None:
        self.name = name
        base = dtype.base_type if isinstance(dtype, Array) else dtype
        kind, self._field = _SCALARS.get(base, ("", "")) if isinstance(base, PrimitiveFeastType) else ("", "")
        self._is_list = isinstance(dtype, Array) and kind in _LISTED
        if isinstance(dtype, Array):
            self._field = self._field.replace("_val", "_list_val")
        self._is_message = not kind or (isinstance(dtype, Array) and not self._is_list)
        self._is_time = kind.startswith("timestamp") and not self._is_message
        self.type = "bytes?" if self._is_message else f"list({kind})?" if self._is_list else f"{kind}?"

    def cell(self, value: Any) -> Any:
        """Return the cell of a value."""
        field = value.WhichOneof("val")
        if field is None or field == "null_val":
            return None
        if self._is_message:
            return value.SerializeToString(deterministic=True)
        found = getattr(value, field)
        if self._is_list != field.endswith("_list_val"):
            raise ValueError(f"feature {self.name!r} has the value {field}, where {self._field} was expected")
        if self._is_list:
            return list(found.val)
        if self._is_time:
            return None if found == _NO_TIMESTAMP else found * 1000
        return found

    def value(self, cell: Any) -> Any:
        """Return the value of a cell."""
        value = Value()
        if cell is None:
            return value
        if self._is_message:
            value.ParseFromString(cell)
        elif self._is_list:
            getattr(value, self._field).val.extend(cell)
            # A list without elements is a value, too.
            getattr(value, self._field).SetInParent()
        elif self._is_time:
            value.unix_timestamp_val = int((cell - datetime.datetime(1970, 1, 1, tzinfo=_UTC)).total_seconds())
        else:
            setattr(value, self._field, cell)
        return value


class ZeroKvOnlineStore(OnlineStore):  # type: ignore[misc, unused-ignore]
    """Feast's interface to the tables of a project."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # For each file, its identity when it was opened, and its table.
        self._opened: dict[pathlib.Path, tuple[tuple[int, int, int], Table]] = {}
        self._served: dict[str, LookupTable] = {}

    def online_write_batch(
        self, config: Any, table: Any, data: _Rows, progress: Callable[[int], Any] | None
    ) -> None:
        """Bake a new generation with these rows and all other rows of the generation before."""
        columns = _columns(table)
        path = _path(config, table)

        def rows() -> Iterator[tuple[bytes, tuple[Any, ...]]]:
            for entity_key, values, event_timestamp, created_timestamp in data:
                cells = [column.cell(values[column.name]) if column.name in values else None for column in columns]
                yield _key(config, entity_key), (event_timestamp, created_timestamp, *cells)

        if data:
            with _writing(path):
                _bake(rows(), path, columns)
        if progress is not None:
            progress(len(data))

    def online_read(
        self, config: Any, table: Any, entity_keys: list[Any], requested_features: list[str] | None = None
    ) -> list[tuple[datetime.datetime | None, dict[str, Any] | None]]:
        """Return the event timestamp and the features of each entity, or `None` for entities without a row."""
        opened = self._table(config, table)
        if opened is None:
            return [(None, None)] * len(entity_keys)
        requested = None if requested_features is None else set(requested_features)
        columns = [column for column in _columns(table) if requested is None or column.name in requested]
        result: list[tuple[datetime.datetime | None, dict[str, Any] | None]] = []
        keys = [_key(config, entity_key) for entity_key in entity_keys]
        for row in opened.get_many(keys):
            if row is None:
                result.append((None, None))
            else:
                # A feature that was added after the last materialization has no column.
                values = {column.name: column.value(row.get(column.name)) for column in columns}
                result.append((row[_EVENT_TIMESTAMP], values))
        return result

    def update(
        self,
        config: Any,
        tables_to_delete: Sequence[Any],
        tables_to_keep: Sequence[Any],
        entities_to_delete: Sequence[Any],
        entities_to_keep: Sequence[Any],
        partial: bool,
    ) -> None:
        """Create tables without rows for new feature views, and delete the tables of deleted feature views. If the
        features of a view have changed, bake its table with the new columns, which are null.
        """
        for view in tables_to_delete:
            self._delete(_path(config, view))
        for view in tables_to_keep:
            columns, path = _columns(view), _path(config, view)
            with _writing(path):
                if not path.exists() or dict(open(path, verify="touch").schema() or {}) != _types(columns):
                    _bake([], path, columns)

    def teardown(self, config: Any, tables: Sequence[Any], entities: Sequence[Any]) -> None:
        """Delete all tables of the project."""
        for view in tables:
            self._delete(_path(config, view))

    def _delete(self, path: pathlib.Path) -> None:
        with self._lock:
            self._opened.pop(path, None)
        with _writing(path):
            path.unlink(missing_ok=True)

    def _table(self, config: Any, view: Any) -> LookupTable | None:
        """Return the current table of a feature view, or `None` if it has none."""
        if config.online_store.read != "file":
            socket = config.online_store.socket.format(table=_name(config, view))
            with self._lock:
                if socket not in self._served:
                    self._served[socket] = (Direct if config.online_store.read == "direct" else Client)(socket)
                served = self._served[socket]
            return served.snapshot() if isinstance(served, Direct) else served
        path = _path(config, view)
        with self._lock:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return None
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            opened = self._opened.get(path)
            if opened is None or opened[0] != identity:
                # If the file is replaced again before it is opened, the next call opens the newer file.
                opened = self._opened[path] = (identity, open(path, verify="touch"))
            return opened[1]


def entity_keys(join_keys: Mapping[str, Iterable[int | str]]) -> list[bytes]:
    """Return the keys of entities in the tables of `ZeroKvOnlineStore`, for lookups without Feast.

    `join_keys` maps each join key to its values: `int` for entities of type `INT64`, and `str` for `STRING`. Other names
    or types than those of the entities are the keys of other rows, which the table does not have.

    >>> keys = entity_keys({"driver_id": [1001, 1002]})  # doctest: +SKIP
    >>> matrix = table.columns(keys, ["conv_rate", "acc_rate"])  # doctest: +SKIP
    """
    values = [[_key_value(name, value) for value in column] for name, column in join_keys.items()]
    names = list(join_keys)
    return [
        bytes(serialize_entity_key(EntityKey(join_keys=names, entity_values=row), entity_key_serialization_version=3))
        for row in zip(*values, strict=True)
    ]


def _key_value(name: str, value: object) -> Any:
    if isinstance(value, int):
        return Value(int64_val=value)
    if isinstance(value, str):
        return Value(string_val=value)
    found = type(value).__name__
    raise TypeError(f"the join key {name!r} has a value of type {found}, where int or str was expected: pass array.tolist()")


def _columns(view: Any) -> list[_Column]:
    return [_Column(feature.name, feature.dtype) for feature in view.features]


def _types(columns: list[_Column]) -> dict[str, str]:
    times = {_EVENT_TIMESTAMP: "timestamp(us)", _CREATED_TIMESTAMP: "timestamp(us)?"}
    return times | {column.name: column.type for column in columns}


def _bake(rows: Iterable[Any], path: pathlib.Path, columns: list[_Column]) -> None:
    base = path if path.exists() else None
    bake(
        rows,
        path,
        types=_types(columns),
        keys="bytes",
        duplicates="last",
        base=base,
        cast=True,
        allow_empty=True,
    )


def _name(config: Any, view: Any) -> str:
    return str(compute_table_id(config.project, view, config.registry.enable_online_feature_view_versioning))


def _path(config: Any, view: Any) -> pathlib.Path:
    folder = pathlib.Path(config.online_store.path)
    if config.repo_path is not None:
        folder = config.repo_path / folder
    return folder / f"{urllib.parse.quote(_name(config, view), safe='')}.db"


@contextlib.contextmanager
def _writing(path: pathlib.Path) -> Iterator[None]:
    """Exclude other writers of the folder: two bakes at a time with one base would lose the rows of one of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _key(config: Any, entity_key: Any) -> bytes:
    version = config.entity_key_serialization_version
    return bytes(serialize_entity_key(entity_key, entity_key_serialization_version=version))
