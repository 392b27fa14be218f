"""What each task of an engine needs to bake its shard, and the shards of keys. It does not know the engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from zero_kv._arrays import checked
from zero_kv._native import Entry, divide_slots, measure_slots, write_keys
from zero_kv._shards import (
    arrow_slots,
    buffers_of,
    checked_key,
    field_of,
    keys_of_columns,
    kind_of_columns,
    typed_columns,
    write_shard,
)
from zero_kv._typed_rows import Key, names_of

SLOT_COUNT = 16384
SLOTS_COLUMN = "_zero_kv_slots"
"""The column with the slots of the shard of a row."""


@dataclass(frozen=True)
class ShardBake:
    """What each task needs to bake its rows."""

    url: str
    key: Key
    kind: str
    """The type of the keys, such as "u64" or "ip"."""
    value: str | None
    types: dict[str, str] | None
    """The columns of a typed table."""
    options: dict[str, Any]

    @classmethod
    def of_schema(
        cls,
        schema: Any,
        url: str,
        key: str | Sequence[str],
        value: str | None,
        columns: Sequence[str] | None,
        types: Mapping[str, str] | None,
        keys: str,
        options: dict[str, Any],
    ) -> Self:
        """Return the bake of rows with this Arrow schema."""
        key = needed_key(key)
        kind = kind_of_key(schema, key, keys)
        if value is not None:
            if columns is not None or types is not None:
                raise ValueError(f"value is {value!r}, where columns or types are given, too: pass one or the other")
            field_of(schema, value, "value")
            return cls(url, key, kind, value, None, options)
        if columns is None:
            columns = [name for name in schema.names if name not in (*names_of(key), SLOTS_COLUMN)]
        return cls(url, key, kind, None, dict(typed_columns(schema, key, columns, types)), options)

    @property
    def columns(self) -> list[str]:
        """The columns that the bake reads."""
        return [*names_of(self.key), *([self.value] if self.value is not None else self.types or [])]

    def write(self, batches: Iterable[Any], shard: range) -> Entry:
        """Bake the rows of a shard, and upload the file."""
        columns = None if self.types is None else list(self.types)
        return write_shard(
            batches,
            shard,
            self.url,
            key=self.key,
            value=self.value,
            columns=columns,
            types=self.types,
            keys=self.kind,
            **self.options,
        )

    def write_partition(self, batches: Iterator[Any]) -> Entry | None:
        """Bake the rows of a task, which belong to one shard. Return `None` if there are none."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return None
        number = first.column(first.schema.names.index(SLOTS_COLUMN))[0].as_py()
        return self.write(itertools.chain([first], rows), decode(number))

    def measure(self, batches: Iterator[Any]) -> bytes:
        """Return the lengths of the rows of each slot, which `divide_slots_by_length` reads."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return bytes(8 * SLOT_COUNT)
        batches = itertools.chain([first], rows)
        parts, has_numbers, columns = buffers_of(batches, first.schema, self.key, self.kind, self.value, self.types)
        return bytes(memoryview(measure_slots(parts, self.kind, has_numbers, columns)))


def needed_key(key: str | Sequence[str]) -> Key:
    """Return the name of the column of keys, or the names of the columns of several parts."""
    checked_names = checked_key(key)
    if checked_names is None:
        raise TypeError("key is None, where the name of a column or a list of names was expected")
    return checked_names


def kind_of_key(schema: Any, key: Key, keys: str) -> str:
    """Return the type of the keys in columns of an Arrow schema."""
    if keys != "auto":
        # Raises an error if there is no such type, before tasks read rows.
        write_keys(keys, [])
    return kind_of_columns(schema, key, keys)


def equal_shards(count: int) -> list[range]:
    """Return the slots of shards with equal numbers of slots."""
    return [range(first, last + 1) for first, last in divide_slots(count)]


def encode(shard: range) -> int:
    """Return the slots of a shard as one number, which the rows of the shard have."""
    return shard.start * SLOT_COUNT + shard.stop - 1


def decode(number: int) -> range:
    """Return the slots of a shard that `encode` wrote."""
    first, last = divmod(number, SLOT_COUNT)
    return range(first, last + 1)


def shard_numbers(key: Key, kind: str, shards: list[range]) -> Callable[..., Any]:
    """Return a function from an Arrow array of keys, or an array for each part of the keys, to a NumPy array of the
    numbers of their shards. Messages call the columns `key`."""
    firsts, numbers = [shard.start for shard in shards], [encode(shard) for shard in shards]

    def numbers_of(*columns: Any) -> Any:
        import numpy

        for name, column in zip(names_of(key), columns, strict=True):
            if checked(column, f"the column {name!r}").null_count:
                rows = "1 row" if column.null_count == 1 else f"{column.null_count} rows"
                where = f"the column {name!r} is null in {rows} of a batch"
                raise ValueError(f"{where}, where each row needs a key: filter these rows")
        try:
            found = arrow_slots(keys_of_columns(columns, kind), kind)
        except ValueError as error:
            name = ",".join(names_of(key))
            raise ValueError(f"the column {name!r} has a key that is not of kind {kind}: {error}") from error
        at = numpy.searchsorted(firsts, found.to_numpy(), side="right") - 1
        return numpy.asarray(numbers, dtype=numpy.int32)[at]

    return numbers_of


def missing_shards(entries: Iterable[Entry]) -> list[range]:
    """Return the slots that no entry has. If all tasks have succeeded, they have no rows."""
    end, gaps = 0, []
    for entry in sorted(entries, key=lambda entry: entry.slots.start):
        if entry.slots.start > end:
            gaps.append(range(end, entry.slots.start))
        end = max(end, entry.slots.stop)
    return [*gaps, range(end, SLOT_COUNT)] if end < SLOT_COUNT else gaps
