"""Features per second from Feast: this package's online store, Feast's Redis online store, and SQLite, Feast's default.

    pip install './python[feast]' 'feast[redis]==0.67.0' && python python/bench_feast.py DIR

All stores get the same rows, and return the same features of the same random entities. Two calls are measured: Feast's
`get_online_features(...).to_dict()`, and `columns` with `zero_kv.feast.entity_keys`, which reads the table of this
package's store without Feast. Redis serves a TCP port on this machine, because Feast connects to no Unix socket. The
ways take turns in each round, and the result is the best round of each way. A store whose package or program is missing
is left out.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import numpy
import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast import __version__ as feast_version
from feast.types import Float32

import zero_kv.feast

FEATURES = 50
NAMES = [f"f{number:02}" for number in range(FEATURES)]
NOW = datetime.datetime.now(datetime.timezone.utc)
Way = Callable[[list[int]], Any]


def frame(rows: int) -> Any:
    features = numpy.random.default_rng(18).random((rows, FEATURES), dtype=numpy.float32)
    columns = {name: features[:, number] for number, name in enumerate(NAMES)}
    return pandas.DataFrame({"driver_id": range(rows), "event_timestamp": NOW, **columns})


def filled(folder: pathlib.Path, rows: Any, online_store: dict[str, Any]) -> FeatureStore:
    """Return a feature store whose online store has the rows."""
    folder.mkdir(parents=True)
    rows.head(1).to_parquet(folder / "stats.parquet")
    config = RepoConfig(
        project="bench",
        provider="local",
        registry=str(folder / "registry.db"),
        repo_path=str(folder),
        online_store=online_store,
        entity_key_serialization_version=3,
    )
    store = FeatureStore(config=config, repo_path=None)
    source = FileSource(path=str(folder / "stats.parquet"), timestamp_field="event_timestamp")
    driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64)
    schema = [Field(name=name, dtype=Float32) for name in NAMES]
    store.apply([driver, FeatureView(name="stats", entities=[driver], schema=schema, source=source)])
    store.write_to_online_store("stats", rows)
    return store


def from_feast(store: FeatureStore) -> Way:
    features = [f"stats:{name}" for name in NAMES]

    def ask(ids: list[int]) -> Any:
        found = store.get_online_features(features=features, entity_rows=[{"driver_id": number} for number in ids])
        return found.to_dict()

    return ask


def redis_server(stack: ExitStack, folder: pathlib.Path) -> str:
    """Start Redis on a free port, and return its address."""
    import redis

    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    stack.callback(process.terminate)
    client = redis.Redis(port=port)
    while True:
        assert process.poll() is None, "redis-server ended"
        try:
            client.ping()
            return f"127.0.0.1:{port}"
        except (redis.ConnectionError, redis.BusyLoadingError):
            time.sleep(0.05)


def ways(stack: ExitStack, folder: pathlib.Path, rows: Any) -> dict[str, Way]:
    store = filled(folder / "zero-kv", rows, {"type": "zero_kv.feast.ZeroKvOnlineStore", "path": "online"})
    table = zero_kv.open(folder / "zero-kv" / "online" / "bench_stats.db")
    found = {
        "Feast, zero_kv.feast": from_feast(store),
        "columns, without Feast": lambda ids: table.columns(zero_kv.feast.entity_keys({"driver_id": ids}), NAMES),
    }
    if importlib.util.find_spec("redis") and shutil.which("redis-server"):
        (folder / "redis").mkdir()
        online_store = {"type": "redis", "connection_string": redis_server(stack, folder / "redis")}
        found["Feast, Redis"] = from_feast(filled(folder / "feast-redis", rows, online_store))
    online_store = {"type": "sqlite", "path": str(folder / "sqlite.db")}
    found["Feast, SQLite"] = from_feast(filled(folder / "feast-sqlite", rows, online_store))
    return found


def check(name: str, result: Any, rows: Any, ids: list[int]) -> None:
    expected = rows[NAMES].to_numpy()[ids]
    matrix = result if isinstance(result, numpy.ndarray) else numpy.array([result[name] for name in NAMES], numpy.float32).T
    assert (matrix == expected).all(), name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a folder that does not exist")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--entities", type=int, default=256, help="number of entities in each call")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each way in each round")
    options = parser.parse_args()
    rows = frame(options.rows)
    rng = numpy.random.default_rng(2)
    batches = [rng.choice(options.rows, options.entities).tolist() for _ in range(100)]
    with ExitStack() as stack:
        measured = ways(stack, options.folder.resolve(), rows)
        for name, ask in measured.items():
            check(name, ask(batches[0]), rows, batches[0])
        best = dict.fromkeys(measured, 0.0)
        for _ in range(options.rounds):
            for name, ask in measured.items():
                calls, began = 0, time.perf_counter()
                while (elapsed := time.perf_counter() - began) < options.seconds or calls == 0:
                    ask(batches[calls % len(batches)])
                    calls += 1
                best[name] = max(best[name], calls / elapsed)
    print(f"Python {platform.python_version()}, Feast {feast_version}, {os.cpu_count()} cores, {options.rows:,} rows\n")
    print(f"| way | calls of {options.entities} entities × {FEATURES} features per second | ms per call |\n| --- | ---: | ---: |")
    for name, rate in best.items():
        print(f"| {name} | {rate:,.1f} | {1000 / rate:,.2f} |")


if __name__ == "__main__":
    main()
