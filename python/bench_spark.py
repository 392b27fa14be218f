"""Measures the bake of Spark beside `baker` and `write_shard`, in rows per second and core, without the shuffle.

    python python/bench_spark.py FOLDER [--rows N] [--rounds N] [--value-bytes N] [--programs FOLDER]

All publish the same rows as the same shards to a folder, with both cores, and with the same memory. `baker` reads a
Parquet file, or rows of CSV. `write_shard` runs in two processes, which map files of Arrow batches. Spark reads rows that
are in its cache, already divided into shards: the time without the shuffle. The difference between `write_shard` and Spark
is the time in which Spark converts rows to Arrow batches and sends them to Python. The digests of the published tables
must be equal. The rounds alternate.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import SparkSession

import zero_kv
import zero_kv.spark
from zero_kv._engine import ShardBake, equal_shards
from zero_kv._native import read_generation
from zero_kv._spark_shards import arrow_schema, partition_by_shard

CORES = 2
MEMORY_BYTES = 512 << 20


def make_rows(folder: pathlib.Path, rows: int, value_bytes: int) -> None:
    """Write the rows as Parquet, in a random order."""
    rng = numpy.random.default_rng(7)
    ids = rng.permutation(rows).astype(numpy.int64)
    text = rng.integers(ord("a"), ord("z") + 1, rows * value_bytes, numpy.uint8).tobytes()
    offsets = pyarrow.py_buffer(numpy.arange(0, rows * value_bytes + 1, value_bytes, dtype=numpy.int64))
    values = pyarrow.Array.from_buffers(pyarrow.large_string(), rows, [None, offsets, pyarrow.py_buffer(text)])
    table = pyarrow.table({"id": ids, "v": values.cast(pyarrow.string())})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=1 << 17)
    pyarrow.csv.write_csv(table, folder / "rows.csv", pyarrow.csv.WriteOptions(include_header=False))


def run_baker(folder: pathlib.Path, programs: pathlib.Path, source: str) -> tuple[float, str]:
    """Return the seconds of a bake and publication, and the digest of the generation."""
    shards, url = folder / "shards", f"file://{folder}/baker"
    shutil.rmtree(shards, ignore_errors=True)
    columns = ["--key", "id", "--value", "v"] if source.endswith("parquet") else []
    command: list[Any] = [programs / "baker", folder / source, *columns, "--shards", str(CORES), "-o", shards, "--to", url]
    command += ["--threads", str(CORES), "--memory", str(CORES * MEMORY_BYTES), "--quiet"]
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    elapsed = time.perf_counter() - begun
    _, entries = read_generation(url, None)
    return elapsed, " ".join(entry.digest for entry in entries)


TASK = """
import sys
import pyarrow
import zero_kv
path, first, last, url, memory_bytes = sys.argv[1:]
batches = pyarrow.ipc.open_file(pyarrow.memory_map(path)).read_all().to_batches()
print("ready", flush=True)
sys.stdin.readline()
slots, options = range(int(first), int(last) + 1), {"memory_bytes": int(memory_bytes), "threads": 1}
print(zero_kv.write_shard(batches, slots, url, key="id", value="v", **options).to_json(), flush=True)
"""


def write_batches(folder: pathlib.Path) -> None:
    """Write the rows of each shard as Arrow batches."""
    table = pyarrow.parquet.read_table(folder / "rows.parquet")
    found = zero_kv.slots(table.column("id")).to_numpy()
    for shard in equal_shards(CORES):
        rows = table.filter(pyarrow.array((found >= shard.start) & (found < shard.stop)))
        with pyarrow.ipc.new_file(folder / f"{shard.start}.arrow", rows.schema) as file:
            file.write_table(rows, max_chunksize=16384)


def run_tasks(folder: pathlib.Path) -> tuple[float, str]:
    """Return the seconds in which two processes bake the shards, and the digests of the shards."""
    url, tasks = f"file://{folder}/tasks", []
    for shard in equal_shards(CORES):
        arguments = [folder / f"{shard.start}.arrow", str(shard.start), str(shard.stop - 1), url, str(MEMORY_BYTES)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        tasks.append(subprocess.Popen([sys.executable, "-c", TASK, *arguments], **pipes))
    assert all(task.stdout.readline() == "ready\n" for task in tasks)
    begun = time.perf_counter()
    for task in tasks:
        task.stdin.write("begin\n")
        task.stdin.flush()
    entries = [zero_kv.Entry.from_json(task.stdout.readline()) for task in tasks]
    zero_kv.commit(entries, url)
    elapsed = time.perf_counter() - begun
    for task in tasks:
        task.communicate()
    return elapsed, " ".join(entry.digest for entry in entries)


def run_spark(bake: ShardBake, partitioned: Any) -> tuple[float, str]:
    def bake_partition(batches: Iterator[Any]) -> Iterator[Any]:
        entry = bake.write_partition(batches)
        assert entry is not None
        yield pyarrow.RecordBatch.from_pydict({"entry": [entry.to_json()]})

    begun = time.perf_counter()
    written = partitioned.mapInArrow(bake_partition, "entry string").collect()
    zero_kv.commit([row.entry for row in written], bake.url)
    elapsed = time.perf_counter() - begun
    entries = sorted((zero_kv.Entry.from_json(row.entry) for row in written), key=lambda entry: entry.slots.start)
    return elapsed, " ".join(entry.digest for entry in entries)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=26)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=pathlib.Path, default="target/release")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make_rows(folder, arguments.rows, arguments.value_bytes)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.driver.memory", "3g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "16384").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    df = spark.read.parquet(str(folder / "rows.parquet"))
    options = {"memory_bytes": MEMORY_BYTES, "threads": 1}
    bake = ShardBake.of_schema(arrow_schema(df.schema), f"file://{folder}/spark", "id", "v", None, None, "auto", options)
    partitioned = partition_by_shard(df, "id", "id", "auto", equal_shards(CORES)).cache()
    assert partitioned.count() == arguments.rows

    write_batches(folder)
    names = ("baker, Parquet", "baker, CSV", "write_shard, Arrow", "Spark")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(arguments.rounds + 1):
        results = {
            "baker, Parquet": run_baker(folder, arguments.programs, "rows.parquet"),
            "baker, CSV": run_baker(folder, arguments.programs, "rows.csv"),
            "write_shard, Arrow": run_tasks(folder),
            "Spark": run_spark(bake, partitioned),
        }
        assert len({digest for _, digest in results.values()}) == 1, results
        # The first round starts processes and fills caches.
        if number:
            for name, (elapsed, _) in results.items():
                seconds[name].append(elapsed)
    spark.stop()
    print(f"{arguments.rows} rows, values of {arguments.value_bytes} bytes, {CORES} shards, medians of {arguments.rounds} rounds")
    medians = {name: float(numpy.median(times)) for name, times in seconds.items()}
    for name, median in medians.items():
        spread = f"{min(seconds[name]):.2f}-{max(seconds[name]):.2f} s"
        ratio = medians["baker, Parquet"] / median
        print(f"{name}: {arguments.rows / median / CORES:,.0f} rows/s per core ({median:.2f} s, {spread}), {ratio:.2f}")


if __name__ == "__main__":
    main()
