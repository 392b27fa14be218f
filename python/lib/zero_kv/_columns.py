"""Makes NumPy and Arrow arrays of columns. NumPy, pyarrow, pandas, and Polars are imported only when they are needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from zero_kv._arrays import whole_array

_NUMPY_TYPES = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "timestamp(ms)": "datetime64[ms]",
    "timestamp(us)": "datetime64[us]",
    "timestamp(ns)": "datetime64[ns]",
}
_LIST = re.compile(r"list\((.*?)(?:,(\d+))?\)")


def numpy_arrays(parts: list[dict[str, Any]], count: int, fill: Any) -> dict[str, Any]:
    """Return a NumPy array for each column."""
    if isinstance(fill, Mapping):
        unknown = [name for name in fill if name not in {part["name"] for part in parts}]
        if unknown:
            raise ValueError(f"fill has the column {unknown[0]!r}, which is not one of the requested columns")
    return {part["name"]: _numpy_array(part, count, fill) for part in parts}


def _numpy_array(part: dict[str, Any], count: int, fill: Any) -> Any:
    import numpy

    name, kind = part["name"], part["kind"]
    is_number = True
    if part["objects"] is not None:
        array = numpy.empty(count, object)
        for position, value in enumerate(part["objects"]):
            array[position] = value
        is_number = False
    else:
        array, is_number = _fixed_array(part, count)
    given = fill.get(name) if isinstance(fill, Mapping) else fill if is_number else None
    needs_fill = is_number and array.dtype.kind in "biu" and given is None
    if needs_fill and part["is_nullable"]:
        raise ValueError(f"column {name!r} is {kind} and can be null, where {kind} has no value for null: pass fill")
    if part["null_count"] == 0:
        return array
    if needs_fill:
        raise ValueError(
            f"the table does not have {part['null_count']} of {count} keys, where {kind} has no value for a missing "
            "row: pass fill"
        )
    missing = ~numpy.asarray(memoryview(part["valid"])).view(numpy.bool_)
    if given is not None:
        array[missing] = given
    elif array.dtype.kind == "f":
        array[missing] = numpy.nan
    elif array.dtype.kind == "M":
        array[missing] = numpy.datetime64("NaT")
    return array


def _fixed_array(part: dict[str, Any], count: int) -> tuple[Any, bool]:
    """Return the array of a column of fixed length, and whether its values are numbers or Booleans."""
    import numpy

    kind = part["kind"]
    listed = _LIST.fullmatch(kind)
    element = listed[1] if listed else kind
    values = numpy.asarray(memoryview(part["values"]))
    if element == "date":
        array = values.view(numpy.int32).astype("datetime64[D]")
    else:
        array = values.view(_NUMPY_TYPES[element])
    is_number = element in _NUMPY_TYPES and not element.startswith("timestamp")
    return array.reshape((count, int(listed[2]))) if listed else array, is_number


def from_arrow_parts(parts: list[dict[str, Any]], count: int, format: str) -> Any:
    """Return a RecordBatch or a DataFrame."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    arrays = [_arrow_array(part, count) for part in parts]
    fields = [
        pyarrow.field(part["name"], array.type, nullable=True) for part, array in zip(parts, arrays, strict=True)
    ]
    return _converted(pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema(fields)), format)


def _converted(batch: Any, format: str) -> Any:
    if format == "pandas":
        import pandas  # type: ignore[import-untyped, unused-ignore]

        return batch.to_pandas(types_mapper=pandas.ArrowDtype)
    if format == "polars":
        import polars

        return polars.from_arrow(batch)
    return batch


def _arrow_array(part: dict[str, Any], count: int) -> Any:
    import pyarrow

    kind = arrow_type(part["kind"])
    values = pyarrow.py_buffer(part["values"])
    valid = pyarrow.py_buffer(part["valid"]) if part["null_count"] else None
    offsets = None if part["offsets"] is None else pyarrow.py_buffer(part["offsets"])
    if pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind):
        element_bytes = kind.value_type.bit_width // 8
        child = pyarrow.Array.from_buffers(kind.value_type, len(values) // element_bytes, [None, values])
        return pyarrow.Array.from_buffers(
            kind, count, [valid] if offsets is None else [valid, offsets], part["null_count"], children=[child]
        )
    buffers = [valid, values] if offsets is None else [valid, offsets, values]
    return pyarrow.Array.from_buffers(kind, count, buffers, part["null_count"])


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a column type."""
    import pyarrow

    listed = _LIST.fullmatch(kind)
    if listed:
        element = arrow_type(listed[1])
        return pyarrow.list_(element, int(listed[2])) if listed[2] else pyarrow.large_list(element)
    if kind.startswith("decimal"):
        precision, scale = kind[len("decimal(") : -1].split(",")
        return pyarrow.decimal128(int(precision), int(scale))
    if kind.startswith("timestamp"):
        return pyarrow.timestamp(kind[len("timestamp(") : -1], "UTC")
    names = {"bool": "bool_", "text": "large_utf8", "bytes": "large_binary", "date": "date32"}
    return getattr(pyarrow, names.get(kind) or _NUMPY_TYPES[kind])()


def with_arrow_keys(table: Any, keys: Any, columns: Any, fill: Any, out: Any, format: str) -> Any:
    """Implement `columns` with keys from pyarrow or Polars. The values of a null key are missing values."""
    keys = whole_array(keys)
    if not keys.null_count:
        return table.columns(dense_keys(keys), columns, fill=fill, out=out, format=format)
    present = dense_keys(keys.drop_null())
    return with_nulls(keys, lambda given, kind: table.columns(present, columns, fill=given, format=kind), fill, out, format)


def with_nulls(keys: Any, look_up: Callable[[Any, str], Any], fill: Any, out: Any, format: str) -> Any:
    """Return columns with missing values at the positions of null keys. `look_up` returns the columns of the other keys."""
    if format != "numpy":
        return _converted(look_up(None, "arrow").take(positions_of(keys)), format)
    return numpy_with_nulls(keys, look_up(fill, format), fill, out)


def dense_keys(keys: Any) -> Any:
    """Return the keys of an Arrow array without nulls, as NumPy array or list."""
    import pyarrow

    return keys.to_numpy(zero_copy_only=False) if pyarrow.types.is_integer(keys.type) else keys.to_pylist()


def positions_of(keys: Any) -> Any:
    """Return the position of each key among the keys that are not null, or null."""
    import pyarrow
    import pyarrow.compute  # type: ignore[import-untyped, unused-ignore]

    valid = keys.is_valid()
    positions = pyarrow.compute.cumulative_sum(valid.cast(pyarrow.int64()))
    return pyarrow.compute.if_else(valid, pyarrow.compute.subtract(positions, 1), None)


def numpy_with_nulls(keys: Any, found: Any, fill: Any, out: Any) -> Any:
    """Return the arrays with missing values at the positions of null keys."""
    import numpy

    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    if not isinstance(found, dict):
        array = _spread(found, valid, fill, "the columns")
        if out is None:
            return array
        if out.shape != array.shape or out.dtype != array.dtype:
            raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, where {array.shape}, {array.dtype} was expected")
        numpy.copyto(out, array)
        return out
    if out is not None:
        raise ValueError("out is given, where the columns have several types: choose columns of one numeric type")
    given = fill if isinstance(fill, Mapping) else None
    return {
        name: _spread(array, valid, fill if given is None and array.dtype.kind in "biuf" else (given or {}).get(name), name)
        for name, array in found.items()
    }


def _spread(array: Any, valid: Any, fill: Any, name: str) -> Any:
    import numpy

    if fill is None and array.dtype.kind in "biu":
        raise ValueError(f"{name}: {(~valid).sum()} keys are null, where {array.dtype} has no value for null: pass fill")
    spread = numpy.empty((len(valid), *array.shape[1:]), array.dtype)
    if fill is None and array.dtype.kind in "fM":
        fill = numpy.nan if array.dtype.kind == "f" else numpy.datetime64("NaT")
    spread[~valid] = fill
    spread[valid] = array
    return spread
