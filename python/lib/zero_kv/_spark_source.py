"""The data source `zero_kv` of Spark."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (  # type: ignore[import-not-found, unused-ignore]
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType  # type: ignore[import-not-found, unused-ignore]

from zero_kv._arrays import neighbor_keys
from zero_kv._engine import SLOT_COUNT, SLOTS_COLUMN, ShardBake, missing_shards
from zero_kv._native import (
    Entry,
    newest_generation,
    open,
    parse_columns,
    pull_shard,
    read_generation,
    write_keys,
)
from zero_kv._shards import commit
from zero_kv._spark_shards import arrow_schema, quoted
from zero_kv.errors import PublishFailed

_BATCH_ROWS = 8192
_WRITER_OPTIONS = {
    *("path", "key", "value", "columns", "types", "keys", "duplicates", "memory_bytes", "threads", "temp_dir"),
    *("note", "parent", "canary", "allow"),
}
_KEY_TYPES = {"u64": "bigint", "i64": "bigint", "date": "date", "timestamp": "timestamp"} | dict.fromkeys(
    ("ip", "ipv4", "uuid", "hex"), "string"
)
_READER_OPTIONS = {"path", "generation", "key", "value", "key_type", "temp_dir"}
_SPARK_TYPES = {
    "bool": "boolean",
    "i8": "tinyint",
    "i16": "smallint",
    "i32": "int",
    "i64": "bigint",
    "u8": "smallint",
    "u16": "int",
    "u32": "bigint",
    "u64": "decimal(20,0)",
    "f32": "float",
    "f64": "double",
    "text": "string",
    "bytes": "binary",
    "date": "date",
}


class ZeroKvDataSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Published tables: see `zero_kv.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "zero_kv"

    def schema(self) -> str:
        url = self._url(_READER_OPTIONS)
        _, entries = read_generation(url, _number(self.options, "generation", None))
        first = entries[0]
        columns = [(name, kind, False) for name, kind in self._key_columns(first)]
        for column in first.schema:
            name, _, kind = column.rpartition(":")
            columns.append((name, _spark_type(kind.removesuffix("?")), kind.endswith("?")))
        if not first.schema:
            columns.append((self.options.get("value", "value"), "binary", False))
        return ", ".join(f"{quoted(name)} {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns)

    def _key_columns(self, entry: Entry) -> list[tuple[str, str]]:
        """Return the names and the types of the columns of keys, one for each part."""
        parts = entry.key_type.split(",")
        name = self.options.get("key", entry.key_name or "key")
        names = [name] if len(parts) == 1 else name.split(",")
        if len(names) != len(parts):
            if "key" in self.options:
                found = f"the option 'key' is {name!r}"
                raise ValueError(f"{found}, where a name for each part was expected: {entry.key_type}")
            names = [f"key{number}" for number in range(1, len(parts) + 1)]
        kinds = [_KEY_TYPES.get(part, "binary") for part in parts]
        if "key_type" in self.options:
            # The type decimal(20,0) has a comma.
            kinds = re.findall(r"[^,(]+(?:\([^)]*\))?", self.options["key_type"])
        if len(kinds) != len(parts):
            found = f"the option 'key_type' is {self.options['key_type']!r}"
            raise ValueError(f"{found}, where a type for each part was expected: {entry.key_type}")
        return list(zip(names, kinds, strict=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        url = self._url(_READER_OPTIONS)
        _, entries = read_generation(url, _number(self.options, "generation", None))
        return _Reader(url, entries, schema, self.options.get("temp_dir"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        url, options = self._url(_WRITER_OPTIONS), self.options
        if not overwrite:
            raise ValueError('the mode is "append" or the default, where a generation is a whole table: mode("overwrite")')
        if SLOTS_COLUMN not in schema.names:
            message = f"the DataFrame has no column {SLOTS_COLUMN!r}, where one partition for each shard was expected"
            raise ValueError(f"{message}: df = zero_kv.spark.partition(df, key, shards=N)")
        if "key" not in options:
            raise ValueError('the option "key" is missing, where the name of the column with the keys was expected')
        columns, types = options.get("columns"), options.get("types")
        tasks = {
            "duplicates": options.get("duplicates", "error"),
            "memory_bytes": _number(options, "memory_bytes", 512 << 20),
            "threads": _number(options, "threads", 1),
            "temp_dir": options.get("temp_dir"),
        }
        bake = ShardBake.of_schema(
            arrow_schema(schema),
            url,
            _key_of_option(options["key"], schema.names),
            options.get("value"),
            None if columns is None else [name.strip() for name in columns.split(",")],
            None if types is None else dict(parse_columns(types)),
            options.get("keys", "auto"),
            tasks,
        )
        newest_generation(url)
        parent = _number(options, "parent", None)
        allow = [name.strip() for name in options.get("allow", "").split(",") if name.strip()]
        generation = {"note": options.get("note"), "parent": parent, "canary": options.get("canary"), "allow": allow}
        return _Writer(bake, generation)

    def _url(self, known: set[str]) -> str:
        unknown = sorted(set(self.options) - known)
        if unknown:
            raise ValueError(f"the option {unknown[0]!r} is unknown, where one of these was expected: {sorted(known)}")
        if "path" not in self.options:
            raise ValueError('the URL of the table is missing: pass it to load or save, such as save("s3://tables/users")')
        return str(self.options["path"])


def _key_of_option(text: str, names: list[str]) -> str | list[str]:
    """Return the name of a column, or the names of several columns with commas between them."""
    return text if text in names or "," not in text else [name.strip() for name in text.split(",")]


def _number(options: Any, name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is not None and not text.isdecimal():
        raise ValueError(f"the option {name!r} is {text!r}, where a number was expected")
    return default if text is None else int(text)


def _spark_type(kind: str) -> str:
    """Return Spark's type of a column."""
    if kind.startswith("list("):
        return f"array<{_spark_type(kind[len('list(') : -1].partition(',')[0])}>"
    return _SPARK_TYPES.get(kind) or ("timestamp" if kind.startswith("timestamp") else kind)


@dataclass
class _Written(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    entry: str | None


class _Writer(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Bakes the partitions of a DataFrame, and commits them."""

    def __init__(self, bake: ShardBake, generation: dict[str, Any]) -> None:
        self._bake = bake
        self._generation = generation

    def write(self, iterator: Iterator[Any]) -> _Written:
        entry = self._bake.write_partition(iterator)
        return _Written(None if entry is None else entry.to_json())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        texts = [message.entry for message in messages if isinstance(message, _Written)]
        entries = [Entry.from_json(text) for text in texts if text is not None]
        if not entries:
            entries = [self._bake.write([], range(SLOT_COUNT))]
        # All tasks have succeeded, so that the other slots have no rows.
        commit(entries, self._bake.url, empty=missing_shards(entries), **self._generation)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: no reader sees the files, and `zkv gc` deletes them."""


class _Shard(InputPartition):  # type: ignore[misc, unused-ignore]
    def __init__(self, entry: str) -> None:
        super().__init__(entry)


class _Reader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Reads the shards of a generation."""

    def __init__(self, url: str, entries: list[Entry], schema: StructType, temp_dir: str | None) -> None:
        self._url = url
        self._entries = [entry.to_json() for entry in entries]
        self._schema = schema
        self._temp_dir = temp_dir

    def partitions(self) -> list[InputPartition]:
        return [_Shard(entry) for entry in self._entries]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        entry = Entry.from_json(partition.value)
        with tempfile.TemporaryDirectory(prefix="zero-kv-shard-", dir=self._temp_dir) as folder:
            path = os.path.join(folder, "shard.db")
            pull_shard(self._url, entry, path)
            yield from _batches(open(path, verify="touch"), arrow_schema(self._schema))


def _batches(table: Any, schema: Any) -> Iterator[Any]:
    """Return the rows of a table as record batches."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    columns = table.schema()
    rows = iter(table.items() if columns is None else table.keys())
    while batch := list(itertools.islice(rows, _BATCH_ROWS)):
        if columns is None:
            keys, arrays = [key for key, _ in batch], [pyarrow.array([value for _, value in batch], pyarrow.binary())]
        else:
            found = table.columns(batch, list(columns), format="arrow")
            keys, arrays = batch, found.columns
        fields = zip([*_key_arrays(table.key_type, keys), *arrays], schema, strict=True)
        yield pyarrow.RecordBatch.from_arrays([_cast(array, field) for array, field in fields], schema=schema)


def _key_arrays(key_type: str, keys: list[Any]) -> list[Any]:
    """Return an array for each part of the keys."""
    parts = key_type.split(",")
    columns = [keys] if len(parts) == 1 else zip(*keys, strict=True)
    return [_key_array(part, list(column)) for part, column in zip(parts, columns, strict=True)]


def _key_array(key_type: str, keys: list[Any]) -> Any:
    import pyarrow

    if key_type == "bytes":
        # A part of a key can be empty, where a whole key cannot.
        return pyarrow.array(keys, pyarrow.binary())
    if key_type == "ipv4":
        return pyarrow.array(write_keys(key_type, keys), pyarrow.binary()).cast(pyarrow.string())
    return neighbor_keys(key_type, keys)


def _cast(array: Any, field: Any) -> Any:
    import pyarrow

    try:
        if pyarrow.types.is_unsigned_integer(array.type) and pyarrow.types.is_decimal(field.type):
            # Arrow casts only integers whose greatest value fits the decimal.
            return array.cast(pyarrow.string()).cast(field.type)
        if pyarrow.types.is_timestamp(array.type):
            array = array.cast(pyarrow.timestamp(array.type.unit, "UTC"))
        return array.cast(field.type)
    except pyarrow.ArrowInvalid as error:
        hint = 'pass key_type="decimal(20,0)" or key_type="binary" for such keys'
        raise PublishFailed(f"the column {field.name!r} cannot be read as {field.type}: {error}: {hint}") from error
