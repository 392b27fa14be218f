"""Measures the bake of Spark beside `baker`, in rows per second and core, without the shuffle.

    python python/bench_spark.py FOLDER [--rows N] [--rounds N] [--value-bytes N] [--programs FOLDER]

Both publish the same rows as the same shards to a folder, with both cores, and with the same memory. `baker` reads a
Parquet file, or rows of CSV. Spark reads rows that are in its cache, already divided into shards: the time without the
shuffle. The digests of the published tables must be equal. The rounds alternate.
"""

from __future__ import annotations

import argparse
import json
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
    listed = subprocess.run([programs / "zkv", "generations", url, "--json"], check=True, stdout=subprocess.PIPE).stdout
    return elapsed, newest_digest(listed)


def newest_digest(listed: bytes) -> str:
    generations = json.loads(listed)
    generation = (generations["generations"] if isinstance(generations, dict) else generations)[-1]
    entries = generation.get("manifest", generation)["entries"]
    return " ".join(entry["digest"] for entry in entries)


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

    seconds: dict[str, list[float]] = {"baker, Parquet": [], "baker, CSV": [], "Spark": []}
    for number in range(arguments.rounds + 1):
        results = {
            "baker, Parquet": run_baker(folder, arguments.programs, "rows.parquet"),
            "baker, CSV": run_baker(folder, arguments.programs, "rows.csv"),
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
