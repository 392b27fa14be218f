"""Promises of `zero_kv.ray`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install './python[ray]'")

import pyarrow
import ray
import ray.data

import zero_kv
import zero_kv.ray
from support import published, seeded


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/published/users"


def test_a_dataset_is_published(cluster: None, tmp_path: pathlib.Path, url: str) -> None:
    rng = seeded("ray")
    rows = {rng.getrandbits(rng.choice((8, 32, 63))): rng.randbytes(rng.randrange(41)) for _ in range(3000)}
    table = pyarrow.table({"id": pyarrow.array(rows, pyarrow.int64()), "v": list(rows.values())})
    dataset = ray.data.from_arrow([table.slice(0, 1000), table.slice(1000)])
    generation = zero_kv.ray.write(dataset, url, "id", value="v", shards=3, note="nightly", parent=0)
    assert (generation.number, generation.rows) == (1, len(rows))
    assert published(url, tmp_path) == rows


def test_typed_columns_and_shards_without_rows(cluster: None, tmp_path: pathlib.Path, url: str) -> None:
    dataset = ray.data.from_arrow(pyarrow.table({"user": ["a", "b"], "price": [0.5, None], "name": ["x", None]}))
    zero_kv.ray.write(dataset, url, "user", types={"price": "f32?"}, shards=16)
    assert published(url, tmp_path) == {b"a": {"price": 0.5, "name": "x"}, b"b": {"price": None, "name": None}}


def test_a_failed_task_changes_nothing(cluster: None, url: str) -> None:
    dataset = ray.data.from_arrow(pyarrow.table({"id": [1, 1], "v": ["a", "b"]}))
    with pytest.raises(Exception, match="key 1 is already on row 1"):
        zero_kv.ray.write(dataset, url, "id", value="v", shards=2)
    assert not (pathlib.Path(url.removeprefix("file://")) / "manifests").exists()
    with pytest.raises(ValueError, match="key is 'zz', where one of the columns was expected"):
        zero_kv.ray.write(dataset, url, "zz", value="v", shards=2)
    with pytest.raises(zero_kv.ParentConflict):
        zero_kv.ray.write(dataset, url, "id", value="v", shards=2, parent=7)
