"""Publishes a Parquet file with Spark, serves it with a cluster, and looks rows up: docs/cookbook/spark.md explains each step.

    python3 examples/spark/serve_parquet.py FOLDER [--rows N] [--shards N] [--programs FOLDER]
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys

import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession
from redis.cluster import RedisCluster

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
    # Spark starts the programs of tasks with this interpreter, which has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        generation = zero_kv.spark.write(spark.read.parquet(str(path)), url, key="id", shards=shards, note="nightly")
        print(f"generation {generation.number}: {generation.rows} rows, {generation.len_bytes} bytes")
        count = zero_kv.spark.read(spark, url).where("score >= 100").count()
        print(f"users with a score of 100 or more: {count}")
    finally:
        spark.stop()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_cluster(url, folder, programs):
    """Start two nodes, each of which serves half of the slots. Return their processes and one of their ports."""
    ports = {"a": free_port(), "b": free_port()}
    nodes = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    plan = [programs / "zkv", "topology", "plan", "--nodes", nodes, "--from", url]
    (folder / "topology.json").write_bytes(subprocess.run(plan, check=True, stdout=subprocess.PIPE).stdout)
    apply = [programs / "zkv", "topology", "apply", folder / "topology.json", "--to", url]
    subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
    servers = []
    for name, port in ports.items():
        address = f"127.0.0.1:{port}"
        command = [programs / "kv_store", "--from", url, "--cache", folder / name, "--socket", folder / f"{name}.sock"]
        command += ["--tcp", address, "--cluster", "--node", name, "--announce", address]
        servers.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for server in servers:
        if not any("ready on" in line for line in server.stderr):
            sys.exit("kv_store ended: build it with `cargo build --release --features full`")
    return servers, ports["a"]


def main():
    parser = argparse.ArgumentParser(description="Publishes a Parquet file with Spark, serves it with a cluster, and looks rows up.")
    parser.add_argument("folder", type=pathlib.Path, help="folder of all files, which is created")
    parser.add_argument("--rows", type=int, default=100_000, help="number of users")
    parser.add_argument("--shards", type=int, default=4, help="number of shards")
    parser.add_argument("--programs", type=pathlib.Path, default="target/release", help="folder of kv_store and zkv")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    url = f"file://{folder}/published/users"
    make_parquet(folder / "users.parquet", arguments.rows)
    publish(folder / "users.parquet", url, arguments.shards)
    servers, port = start_cluster(url, folder, arguments.programs)
    try:
        with RedisCluster(host="127.0.0.1", port=port, decode_responses=True) as client:
            print(f"nodes: {len(client.get_nodes())}")
            print(f"user 7: {client.hgetall(7)}")
            print(f"user {arguments.rows}: {client.hgetall(arguments.rows)}")
            print(f"scores of users 1 to 3: {[client.hget(user, 'score') for user in (1, 2, 3)]}")
    finally:
        for server in servers:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    main()
