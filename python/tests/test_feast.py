"""The online store for Feast. README.md has the command that runs Feast's own tests."""

from __future__ import annotations

import datetime
import pathlib
import textwrap
from typing import Any

import pytest

import zero_kv
from support import serving

pytest.importorskip("feast")
pandas = pytest.importorskip("pandas")

from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Array, Bool, Bytes, Float32, Float64, Int32, Int64, String, UnixTimestamp

import zero_kv.feast

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)
FIELDS = {
    "trips": Int64,
    "small": Int32,
    "rate": Float32,
    "ratio": Float64,
    "city": String,
    "raw": Bytes,
    "is_new": Bool,
    "seen": UnixTimestamp,
    "vector": Array(Float32),
    "counts": Array(Int64),
    "words": Array(String),
    "times": Array(UnixTimestamp),
}


def rows(ids: list[int], trips: int) -> dict[str, list[Any]]:
    return {
        "driver_id": ids,
        "event_timestamp": [NOW - datetime.timedelta(hours=1)] * len(ids),
        "created": [NOW] * len(ids),
        "trips": [trips + number for number in ids],
        "small": [-number for number in ids],
        "rate": [0.5] * len(ids),
        "ratio": [0.25] * len(ids),
        "city": ["Köln"] * len(ids),
        "raw": [b"\x00\xff"] * len(ids),
        "is_new": [number % 2 == 0 for number in ids],
        "seen": [NOW] * len(ids),
        "vector": [[1.5, 2.5]] * len(ids),
        "counts": [[number, 7] for number in ids],
        "words": [["a", "b"]] * len(ids),
        "times": [[NOW]] * len(ids),
    }


def repository(folder: pathlib.Path, **online_store: str) -> FeatureStore:
    """Return a feature store whose configuration is the example in the module's documentation."""
    example = str(zero_kv.feast.__doc__).split("`feature_store.yaml`:\n")[1].split("\n\n`feast materialize`")[0]
    text = textwrap.dedent(example)
    for name, value in online_store.items():
        text = text.replace("    path: data/online", f"    path: data/online\n    {name}: {value}")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "feature_store.yaml").write_text(text)
    return FeatureStore(repo_path=str(folder))


def view(folder: pathlib.Path, fields: dict[str, Any] = FIELDS) -> tuple[Entity, FeatureView]:
    source = FileSource(
        path=str(folder / "stats.parquet"), timestamp_field="event_timestamp", created_timestamp_column="created"
    )
    driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64)
    schema = [Field(name=name, dtype=dtype) for name, dtype in fields.items()]
    return driver, FeatureView(
        name="stats", entities=[driver], schema=schema, source=source, ttl=datetime.timedelta(days=1)
    )


def materialize(store: FeatureStore, folder: pathlib.Path, ids: list[int], trips: int) -> None:
    pandas.DataFrame(rows(ids, trips)).to_parquet(folder / "stats.parquet")
    store.materialize(NOW - datetime.timedelta(days=1), NOW + datetime.timedelta(days=1))


def online(store: FeatureStore, ids: list[int], names: list[str]) -> dict[str, list[Any]]:
    features = [f"stats:{name}" for name in names]
    found: dict[str, list[Any]] = store.get_online_features(
        features=features, entity_rows=[{"driver_id": number} for number in ids]
    ).to_dict()
    return {name: found[name] for name in names}


def test_materialized_features_are_read_online(tmp_path: pathlib.Path) -> None:
    store = repository(tmp_path)
    materialize_first = rows([1, 2], 100)
    pandas.DataFrame(materialize_first).to_parquet(tmp_path / "stats.parquet")
    store.apply(list(view(tmp_path)))
    path = tmp_path / "data" / "online" / "rides_stats.db"
    assert len(zero_kv.open(path)) == 0, "a server can serve the table before the first materialization"
    assert online(store, [1], ["trips"]) == {"trips": [None]}
    materialize(store, tmp_path, [1, 2], 100)
    found = online(store, [2, 1, 9], list(FIELDS))
    for name in FIELDS:
        one, two = materialize_first[name]
        assert found[name] == [two, one, None], name
    # A later materialization replaces rows, and keeps all others.
    materialize(store, tmp_path, [2, 3], 200)
    assert online(store, [1, 2, 3], ["trips", "words"]) == {"trips": [101, 202, 203], "words": [["a", "b"]] * 3}
    table = zero_kv.open(path)
    assert table.schema()["rate"] == "f32?" and table.schema()["vector"] == "list(f32)?" and table.schema()["words"] == "list(text)?"
    matrix = table.columns(zero_kv.feast.entity_keys({"driver_id": [3, 9, 1]}), ["trips"], fill=0)
    assert matrix.tolist() == [[203], [0], [101]]
    with pytest.raises(TypeError, match=r"the join key 'driver_id' has a value of type int64, .*: pass array.tolist\(\)"):
        zero_kv.feast.entity_keys({"driver_id": pandas.Series([3]).to_numpy()})
    store.teardown()
    assert not path.exists()


def test_a_changed_feature_view_keeps_its_rows(tmp_path: pathlib.Path) -> None:
    store = repository(tmp_path)
    pandas.DataFrame(rows([1], 0)).to_parquet(tmp_path / "stats.parquet")
    store.apply(list(view(tmp_path, {"trips": Int32, "rate": Float32})))
    materialize(store, tmp_path, [1], 0)
    store.apply(list(view(tmp_path, {"city": String, "trips": Int64})))
    assert online(store, [1], ["trips", "city"]) == {"trips": [1], "city": [None]}
    materialize(store, tmp_path, [1, 2], 0)
    assert online(store, [1, 2], ["trips", "city"]) == {"trips": [1, 2], "city": ["Köln"] * 2}
    store.apply([view(tmp_path)[0]], objects_to_delete=[view(tmp_path)[1]], partial=False)
    assert not (tmp_path / "data" / "online" / "rides_stats.db").exists()


@pytest.mark.parametrize("read", ["direct", "client"])
def test_features_are_read_from_a_server(tmp_path: pathlib.Path, read: str) -> None:
    store = repository(tmp_path, read=read, socket=f'"{tmp_path}/data/online/{{table}}.sock"')
    pandas.DataFrame(rows([1], 0)).to_parquet(tmp_path / "stats.parquet")
    store.apply(list(view(tmp_path)))
    with serving(tmp_path / "data" / "online" / "rides_stats.db"):
        for trips in (100, 200):
            materialize(store, tmp_path, [1], trips)
            while online(store, [1], ["trips"]) != {"trips": [trips + 1]}:
                pass  # The server loads the new generation.


def test_a_failed_materialization_keeps_the_old_generation(tmp_path: pathlib.Path) -> None:
    store = repository(tmp_path)
    pandas.DataFrame(rows([1], 0)).to_parquet(tmp_path / "stats.parquet")
    store.apply(list(view(tmp_path, {"city": String})))
    materialize(store, tmp_path, [1], 0)
    before = zero_kv.open(tmp_path / "data" / "online" / "rides_stats.db").digest
    from feast.protos.feast.types.EntityKey_pb2 import EntityKey
    from feast.protos.feast.types.Value_pb2 import Value

    keys = [EntityKey(join_keys=["driver_id"], entity_values=[Value(int64_val=number)]) for number in (1, 2)]
    batch = [(keys[0], {"city": Value(string_val="Ulm")}, NOW, None), (keys[1], {"city": Value(int64_val=1)}, NOW, None)]
    provider = store._get_provider()
    feature_view = store.get_feature_view("stats")
    with pytest.raises((ValueError, TypeError)):
        provider.online_write_batch(store.config, feature_view, batch, None)
    assert zero_kv.open(tmp_path / "data" / "online" / "rides_stats.db").digest == before
    # A batch may have an entity twice: the last row is kept.
    batch[1] = (keys[0], {"city": Value(string_val="Bonn")}, NOW, NOW)
    done: list[int] = []
    provider.online_write_batch(store.config, feature_view, batch, done.append)
    assert online(store, [1], ["city"]) == {"city": ["Bonn"]} and done == [2]
