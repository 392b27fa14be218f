"""Makes NumPy and Arrow arrays of columns. NumPy, pyarrow, pandas, and Polars are imported only when they are needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from zero_kv._arrays import key_array, present_keys, spread, written_keys
from zero_kv._keys import present_columns
from zero_kv._native import find_neighbor_columns

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
        if kind.startswith("list"):
            # An array of lists would have two dimensions.
            for position, value in enumerate(part["objects"]):
                array[position] = value
        else:
            array[:] = part["objects"]
        is_number = False
    else:
        array, is_number = _fixed_array(part, count)
    if part["null_count"]:
        missing = ~numpy.asarray(memoryview(part["valid"])).view(numpy.bool_)
        given = fill.get(name) if isinstance(fill, Mapping) else fill if is_number else None
        array[missing] = _missing_value(array.dtype, given, name, kind, part["null_count"], count)
    return array


def _missing_value(dtype: Any, fill: Any, name: str, kind: str, missing: int, count: int) -> Any:
    """Return the value that an array has for null and for missing keys."""
    import numpy

    if fill is None and dtype.kind in "biu":
        raise ValueError(
            f"column {name!r} has no value for {missing} of {count} keys, because a key is missing or a value is null, "
            f"where {kind} has no value for that: pass fill, as in fill={{{name!r}: 0}}, or format=\"arrow\""
        )
    if fill is None:
        return numpy.nan if dtype.kind == "f" else numpy.datetime64("NaT") if dtype.kind == "M" else None
    if dtype.kind in "biu":
        try:
            with numpy.errstate(invalid="ignore"):
                is_exact = bool(numpy.all(numpy.asarray(fill).astype(dtype) == fill))
        except (TypeError, ValueError, OverflowError):
            is_exact = False
        if not is_exact:
            raise ValueError(f"fill of column {name!r} is {fill!r}, where a value of type {dtype} was expected")
    return fill


def fill_matrix(matrix: Any, parts: list[dict[str, Any]], count: int, fill: Any) -> Any:
    """Copy columns of one numeric type into a matrix, and return the matrix."""
    begin = 0
    for array in numpy_arrays(parts, count, fill).values():
        width = 1 if array.ndim == 1 else array.shape[1]
        matrix[:, begin : begin + width] = array.reshape(count, width)
        begin += width
    return matrix


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
        import pyarrow

        def dtype_of(kind: Any) -> Any:
            # pandas cannot join timestamps of Arrow with its own.
            return None if pyarrow.types.is_timestamp(kind) else pandas.ArrowDtype(kind)

        return batch.to_pandas(types_mapper=dtype_of)
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
        if part["text_offsets"] is None:
            child_len, child_buffers = len(values) // (kind.value_type.bit_width // 8), [None, values]
        else:
            text_offsets = pyarrow.py_buffer(part["text_offsets"])
            child_len, child_buffers = len(text_offsets) // 8 - 1, [None, text_offsets, values]
        child = pyarrow.Array.from_buffers(kind.value_type, child_len, child_buffers)
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
        # As NumPy's timestamps, without a time zone: frames with other timestamps can be joined.
        return pyarrow.timestamp(kind[len("timestamp(") : -1])
    names = {"bool": "bool_", "text": "large_utf8", "bytes": "large_binary", "date": "date32"}
    return getattr(pyarrow, names.get(kind) or _NUMPY_TYPES[kind])()


def with_present_keys(
    method: Callable[..., Any], keys: Any, columns: Any, fill: Any, out: Any, format: str
) -> Any:
    """Implement a method such as `columns` with keys of which some can be null. The values of a null key are missing
    values.
    """
    present, valid = present_columns(keys)

    def look_up(fill: Any, out: Any, format: str) -> Any:
        return method(present, columns, fill=fill, out=out, format=format)

    return with_null_keys(valid, look_up, fill, out, format)


def with_null_keys(valid: Any, look_up: Callable[[Any, Any, str], Any], fill: Any, out: Any, format: str) -> Any:
    """Return columns with missing values for null keys. `valid` is what `present_keys` returns. `look_up` returns the
    columns of the other keys.
    """
    if valid is None:
        return look_up(fill, out, format)
    if format == "numpy":
        return _numpy_with_nulls(valid, look_up(fill, None, format), fill, out)
    import numpy
    import pyarrow

    positions = pyarrow.array(numpy.cumsum(valid) - 1, mask=~valid)
    return _converted(look_up(None, None, "arrow").take(positions), format)


def _numpy_with_nulls(valid: Any, found: Any, fill: Any, out: Any) -> Any:
    import numpy

    if isinstance(found, dict):
        if out is not None:
            raise ValueError("out is given, where the columns have several types: choose columns of one numeric type")
        return {name: _spread(array, valid, _fill_of(array, fill, name), name) for name, array in found.items()}
    if isinstance(fill, Mapping):
        raise ValueError("fill is a dict, where some keys are null and the columns are one matrix: pass one number")
    array = _spread(found, valid, fill, "the matrix")
    if out is None:
        return array
    if out.shape != array.shape or out.dtype != array.dtype:
        raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, where {array.shape}, {array.dtype} was expected")
    numpy.copyto(out, array)
    return out


def _fill_of(array: Any, fill: Any, name: str) -> Any:
    if isinstance(fill, Mapping):
        return fill.get(name)
    return fill if array.dtype.kind in "biuf" else None


def _spread(array: Any, valid: Any, fill: Any, name: str) -> Any:
    import numpy

    spread = numpy.empty((len(valid), *array.shape[1:]), array.dtype)
    spread[~valid] = _missing_value(array.dtype, fill, name, str(array.dtype), int((~valid).sum()), len(valid))
    spread[valid] = array
    return spread


def neighbor_columns(
    table: Any, keys: Any, columns: Any, limit: Any, fill: Any, out: Any, format: str, is_floor: bool
) -> Any:
    """Implement `floor_columns` and `ceiling_columns`."""
    keys, valid = present_columns(keys)
    selection = neighbor_selection(valid, columns, limit, is_floor, format)
    return neighbor_result(find_neighbor_columns(table, keys, selection), fill, out, format)


def neighbor_selection(valid: Any, columns: Any, limit: Any, is_floor: bool, format: str) -> dict[str, Any]:
    """Return what the compiled code needs to choose rows and columns. `valid` is what `present_keys` returns."""
    limits, limited = (None, None) if limit is None else present_keys(limit)
    if limits is not None and valid is not None:
        # Null keys need no limit.
        limits = list(spread(limits, limited))
        if len(limits) != len(valid):
            found, expected = len(limits), len(valid)
            raise ValueError(f"limit has {found} keys, where {expected}, one for each of the keys, were expected")
        limits = [key for key, is_valid in zip(limits, valid.tolist(), strict=True) if is_valid]
    elif limited is not None:
        raise ValueError(f"limit is null for {(~limited).sum()} keys, where each key needs a limit: fill it")
    is_valid = None if valid is None else valid.tolist()
    selection = {"is_floor": is_floor, "limits": limits, "is_valid": is_valid, "names": columns}
    return {**selection, "is_written": format != "numpy"}


def neighbor_result(parts: Any, fill: Any, out: Any, format: str) -> Any:
    """Return the keys and the columns of the nearest rows."""
    import numpy

    key_type, numbers, keys, marks, rows = parts
    found = numpy.asarray(memoryview(marks)).view(numpy.bool_)
    columns = rows.columns(fill, out, format)
    if format == "numpy":
        if numbers is not None:
            return key_array(key_type, numbers), columns, found
        objects = numpy.empty(len(found), object)
        # An array of tuples would have two dimensions.
        for position, key in enumerate(keys):
            objects[position] = key
        return objects, columns, found
    import pyarrow

    if numbers is not None:
        array = pyarrow.array(key_array(key_type, numbers), mask=~found)
    else:
        array = written_keys(key_type, pyarrow.array(keys, pyarrow.large_binary()))
    if format == "arrow":
        return array, columns
    frame = _converted(pyarrow.RecordBatch.from_arrays([array], names=["key"]), format)
    return frame["key"], columns
