"""Publishes a Parquet file with Spark, serves it, and looks rows up: docs/cookbook/spark.md explains each step.

    python3 examples/spark/serve_parquet.py FOLDER [--rows N] [--shards N] [--programs FOLDER]
"""

import argparse
import pathlib
import subprocess
import sys

import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

import zero_kv
import zero_kv.spark


def make_parquet(path, rows):
    """Write a Parquet file of users."""
    ids = pyarrow.array(range(rows), pyarrow.int64())
    names = pyarrow.array([f"user {number}" for number in range(rows)])
    scores = pyarrow.array([number / 8 for number in range(rows)], pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "name": names, "score": scores}), path)


def publish(path, url, shards):
    """Bake the rows of a Parquet file in parallel tasks, and publish them as one generation."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        generation = zero_kv.spark.write(spark.read.parquet(str(path)), url, key="id", shards=shards, note="nightly")
        print(f"generation {generation.number}: {generation.rows} rows, {generation.len_bytes} bytes")
        count = zero_kv.spark.read(spark, url).where("score >= 100").count()
        print(f"users with a score of 100 or more: {count}")
    finally:
        spark.stop()


def serve(url, folder, programs):
    """Serve the newest generation, and return the server when it is ready."""
    command = [programs / "kv_store", "--from", url, "--cache", folder / "cache", "--socket", folder / "users.sock"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "ready on" in line:
            return server
    sys.exit("kv_store ended: build it with `cargo build --release --features full`")


def main():
    parser = argparse.ArgumentParser(description="Publishes a Parquet file with Spark, serves it, and looks rows up.")
    parser.add_argument("folder", type=pathlib.Path, help="folder of all files, which is created")
    parser.add_argument("--rows", type=int, default=100_000, help="number of users")
    parser.add_argument("--shards", type=int, default=4, help="number of shards")
    parser.add_argument("--programs", type=pathlib.Path, default="target/release", help="folder of kv_store")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    url = f"file://{folder}/published/users"
    make_parquet(folder / "users.parquet", arguments.rows)
    publish(folder / "users.parquet", url, arguments.shards)
    server = serve(url, folder, arguments.programs)
    try:
        with zero_kv.Client(str(folder / "users.sock")) as client:
            print(f"user 7: {dict(client[7])}")
            print(f"user {arguments.rows}: {client.get(arguments.rows)}")
            scores = client.columns([1, 2, 3], ["score"])
            print(f"scores of users 1 to 3: {scores.ravel().tolist()}")
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    main()
