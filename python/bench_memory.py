"""Peak memory of `zero_kv.bake` for inputs that are read in batches, and for inputs that are in memory as a whole.

    cargo build --release && pip install ./python[test] && python python/bench_memory.py FOLDER

Writes a Parquet file with random keys and values to FOLDER, and bakes it in one process per kind of input. Peak memory is
the highest resident set size of this process (`VmHWM`) from the moment when the packages are imported, less its size at
this moment. It includes the input, and mapped files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy
import polars
import pyarrow.dataset
import pyarrow.parquet

import zero_kv

ROW_GROUP_ROWS = 100_000


def write_parquet(path: pathlib.Path, rows: int, value_bytes: int) -> None:
    rng = numpy.random.default_rng(7)
    schema = pyarrow.schema({"id": pyarrow.uint64(), "value": pyarrow.binary()})
    with pyarrow.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, rows, ROW_GROUP_ROWS):
            count = min(ROW_GROUP_ROWS, rows - first)
            # An odd factor permutes the numbers below 2**64, so keys are unique and not in order.
            ids = numpy.arange(first, first + count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
            values = pyarrow.FixedSizeBinaryArray.from_buffers(
                pyarrow.binary(value_bytes), count, [None, pyarrow.py_buffer(rng.bytes(count * value_bytes))]
            )
            writer.write_table(pyarrow.table([ids, values.cast(pyarrow.binary())], schema=schema))


INPUTS: dict[str, Callable[[str], Any]] = {
    "pyarrow table": pyarrow.parquet.read_table,
    "Polars DataFrame": polars.read_parquet,
    "Polars LazyFrame": polars.scan_parquet,
    "pyarrow dataset": pyarrow.dataset.dataset,
    "iterator of record batches": lambda path: pyarrow.parquet.ParquetFile(path).iter_batches(),
}


def status_bytes(name: str) -> int:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def bake(kind: str, path: str, memory_bytes: int, results: Any) -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins at VmRSS.
    before = status_bytes("VmRSS")
    started = time.perf_counter()
    report = zero_kv.bake(INPUTS[kind](path), f"{path}.{os.getpid()}.db", key="id", value="value", memory_bytes=memory_bytes)
    results.put((report.rows, time.perf_counter() - started, status_bytes("VmHWM") - before))
    os.remove(f"{path}.{os.getpid()}.db")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--memory-mib", type=int, default=256, help="the argument memory_bytes of bake, in MiB")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "rows.parquet"
    write_parquet(path, arguments.rows, arguments.value_bytes)
    print(f"{arguments.rows} rows, {path.stat().st_size >> 20} MiB of Parquet, memory_bytes of {arguments.memory_mib} MiB\n")
    print("| input | peak memory, MiB | seconds |\n| --- | ---: | ---: |")
    context = multiprocessing.get_context("spawn")
    for kind in INPUTS:
        results = context.Queue()
        process = context.Process(target=bake, args=(kind, str(path), arguments.memory_mib << 20, results))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"the bake of a {kind} ended with status {process.exitcode}")
        rows, seconds, peak = results.get()
        assert rows == arguments.rows
        print(f"| {kind} | {peak >> 20} | {seconds:.1f} |", flush=True)
    path.unlink()


if __name__ == "__main__":
    main()
