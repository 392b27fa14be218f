"""Spark sessions for tests, and bakes that fail."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed: pip install './python[spark]'", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Java is not installed, which Spark needs: install Java 17 or newer", allow_module_level=True)

import pyspark
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import zero_kv
from zero_kv._engine import ShardBake


def session(master: str, **options: str) -> SparkSession:
    """Start Spark. Failed tasks are repeated."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Executors do not have this module: its classes are sent to them.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    builder = SparkSession.builder.master(master).appName("zero-kv tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        **{f"spark.{name.replace('_', '.')}": value for name, value in options.items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


@dataclass(frozen=True)
class FailsFirst(ShardBake):
    """Fails in the first attempt of each task, after the upload."""

    def write(self, batches: Iterable[Any], shard: range) -> zero_kv.Entry:
        entry = super().write(batches, shard)
        if _attempt() == 0:
            raise RuntimeError("the first attempt fails")
        return entry


@dataclass(frozen=True)
class FailsAlways(ShardBake):
    """Fails in each attempt of one task, after the upload."""

    def write(self, batches: Iterable[Any], shard: range) -> zero_kv.Entry:
        entry = super().write(batches, shard)
        if shard.start == 0:
            raise RuntimeError("each attempt fails")
        return entry


def _is_first(bake: ShardBake, shard: range) -> bool:
    """Return whether no attempt has written the shard before. The numbers of attempts restart if Spark repeats a stage."""
    marker = pathlib.Path(bake.url.removeprefix("file://")) / f"written-{shard.start}"
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class StallsFirst(ShardBake):
    """Stalls in the first attempt of one task, after the upload, so that Spark starts a speculative copy."""

    def write(self, batches: Iterable[Any], shard: range) -> zero_kv.Entry:
        entry = super().write(batches, shard)
        if shard.start == 0 and _is_first(self, shard):
            time.sleep(60)
        return entry


@dataclass(frozen=True)
class KillsExecutor(ShardBake):
    """Kills the executor in the first attempt of one task, after the upload."""

    def write(self, batches: Iterable[Any], shard: range) -> zero_kv.Entry:
        entry = super().write(batches, shard)
        if shard.start == 0 and _is_first(self, shard):
            # A daemon, whose parent is the executor, forks the processes that run tasks.
            stat = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
            executor = int(stat.rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        return entry


@contextlib.contextmanager
def cluster(folder: pathlib.Path) -> Iterator[str]:
    """Start a master of Spark, and two workers with one core each. Return the URL of the master.

    The workers have two addresses, because Spark starts a speculative copy of a task only on another host.
    """
    home = pathlib.Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
    common = ["--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", master.rpartition(":")[2], *common]]
    for host in ("127.0.0.1", "127.0.0.2"):
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / host)]
        commands.append([f"{deploy}.worker.Worker", "--host", host, *common, *limits, master])
    processes = []
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    try:
        for command in commands:
            log = open(folder / f"{len(processes)}.log", "wb")
            start = [home / "bin" / "spark-class", *command]
            processes.append(subprocess.Popen(start, env=environment, stdout=log, stderr=log))
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
