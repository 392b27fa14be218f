"""Promises of `zero_kv.spark` with real executors, and of its driver. They take a few minutes, so that pytest runs them only
on request: `pytest python/tests/spark_faults.py`."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spark_support import KillsExecutor, StallsFirst, cluster, session  # isort: skip

from pyspark.sql import DataFrame, SparkSession

import zero_kv
import zero_kv.spark
from support import PROGRAMS, published
from test_shards import objects

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with cluster(tmp_path_factory.mktemp("cluster")) as master:
        spark = session(
            master,
            executor_memory="1g",
            cores_max="2",
            # Jobs wait for both executors.
            scheduler_minRegisteredResourcesRatio="1.0",
            scheduler_maxRegisteredResourcesWaitingTime="60s",
            speculation="true",
            speculation_interval="100ms",
            speculation_minTaskRuntime="500ms",
            speculation_quantile="0.5",
            speculation_multiplier="1.5",
        )
        yield spark
        spark.stop()


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/published/users"


def model(generation: str, count: int = 3000) -> dict[int, bytes]:
    """Return rows with values that name their generation."""
    return {key: f"{generation}: {key}".encode() for key in range(count)}


def frame(spark: SparkSession, rows: dict[int, bytes]) -> DataFrame:
    return spark.createDataFrame(list(rows.items()), "id bigint, v binary")


def test_a_speculative_copy_of_a_task_changes_nothing(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero_kv.spark, "ShardBake", StallsFirst)
    zero_kv.spark.write(frame(spark, model("new")), url, "id", value="v", shards=4)
    assert published(url, tmp_path) == model("new")
    first = [name for name in objects(url, "data") if "/0-4095-" in name]
    assert len(first) == 2, "both attempts have uploaded a file"
    # Garbage collection deletes the file that the manifest does not reference.
    collect = [PROGRAMS / "zkv", "gc", url, "--keep", "1", "--older-than", "0s", "--delete"]
    subprocess.run(collect, check=True, stdout=subprocess.DEVNULL)
    assert len(objects(url, "data")) == 4
    assert published(url, tmp_path, "after") == model("new")


def test_a_lost_executor_changes_nothing(
    spark: SparkSession, tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero_kv.spark, "ShardBake", KillsExecutor)
    zero_kv.spark.write(frame(spark, model("new")), url, "id", value="v", shards=4)
    assert published(url, tmp_path) == model("new")


def test_two_jobs_at_the_same_time_are_two_generations(
    spark: SparkSession, tmp_path: pathlib.Path, url: str
) -> None:
    generations: dict[str, zero_kv.Generation] = {}

    def job(name: str) -> None:
        generations[name] = zero_kv.spark.write(frame(spark, model(name)), url, "id", value="v", shards=3)

    threads = [threading.Thread(target=job, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(generation.number for generation in generations.values()) == [1, 2]
    newest = max(generations, key=lambda name: generations[name].number)
    assert published(url, tmp_path) == model(newest)


def test_one_of_two_jobs_with_the_same_parent_fails(spark: SparkSession, tmp_path: pathlib.Path, url: str) -> None:
    results: list[Any] = []

    def job(name: str) -> None:
        try:
            zero_kv.spark.write(frame(spark, model(name)), url, "id", value="v", shards=3, parent=0)
            results.append(name)
        except zero_kv.ParentConflict as error:
            results.append(error)

    threads = [threading.Thread(target=job, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [result for result in results if isinstance(result, str)]
    assert len(names) == 1 and len(results) == 2
    assert published(url, tmp_path) == model(names[0])


DRIVER = """
import os, signal, sys, threading
import zero_kv, zero_kv.spark
from spark_support import session

url, moment = sys.argv[1:]
commit = zero_kv.spark.commit

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def killed_commit(entries, *arguments, **options):
    entries = list(entries)
    assert len(entries) == 3
    if moment == "before":
        kill()
    if moment == "after":
        commit(entries, *arguments, **options)
        kill()
    threading.Timer(float(moment), kill).start()
    commit(entries, *arguments, **options)
    kill()

zero_kv.spark.commit = killed_commit
spark = session("local[2]")
rows = [(key, f"new: {key}".encode()) for key in range(3000)]
zero_kv.spark.write(spark.createDataFrame(rows, "id bigint, v binary"), url, "id", value="v", shards=3)
"""


@pytest.mark.parametrize("moment", ["before", "0", "0.0005", "0.002", "0.01", "after"])
def test_a_driver_that_is_killed_leaves_all_old_or_all_new_rows(
    tmp_path: pathlib.Path, url: str, moment: str
) -> None:
    zero_kv.bake(model("old"), tmp_path / "old.db")
    zero_kv.publish(tmp_path / "old.db", url)
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, "driver.py", url, moment]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE)}, check=False)
    assert ran.returncode == -signal.SIGKILL
    found = published(url, tmp_path)
    assert found in (model("old"), model("new"))
    assert moment != "before" or found == model("old")
    assert moment != "after" or found == model("new")
