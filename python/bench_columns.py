"""Values per second from Python: columns of a typed table, as a matrix, and the same rows in other stores.

    cargo build --release && pip install ./python[test] duckdb && python python/bench_columns.py prepare DIR && \\
        python python/bench_columns.py measure DIR

Each call looks up 256 random keys and returns a float32 matrix with a row for each key. `prepare` bakes the rows, and
`measure` opens them, so that measurements can run on a quiet machine. The ways take turns in each round, and the result
is the best round of each way. Servers run in other processes. Ways whose package or program is missing are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import pathlib
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy

import zero_kv

COLUMNS = 50
BATCH_KEYS = 256
NAMES = [f"f{number:02}" for number in range(COLUMNS)]
FEW = NAMES[3::10]
Way = tuple[Callable[[Any], Any], int]
"""A function that looks up a batch of keys, and the number of values that it returns for each key."""


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def data(rows: int) -> tuple[Any, Any]:
    """Return random keys and their features."""
    rng = numpy.random.default_rng(18)
    keys = numpy.unique(rng.integers(0, 2**63, rows + rows // 100, dtype=numpy.uint64))[:rows]
    return rng.permutation(keys), rng.random((rows, COLUMNS), dtype=numpy.float32)


def prepare(folder: pathlib.Path, rows: int, redis_rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    keys, features = data(rows)
    pairs = zip(keys.tolist(), map(tuple, features.tolist()), strict=True)
    zero_kv.bake(pairs, folder / "features.db", types=dict.fromkeys(NAMES, "f32"))
    if lmdb := optional("lmdb"):
        with lmdb.open(str(folder / "lmdb"), map_size=1 << 32) as environment, environment.begin(write=True) as written:
            for position in numpy.argsort(keys):
                written.put(int(keys[position]).to_bytes(8, "big"), features[position].tobytes())
    if duckdb := optional("duckdb"):
        import pyarrow

        arrow = pyarrow.table({"id": keys} | {name: features[:, at] for at, name in enumerate(NAMES)})
        (folder / "features.duckdb").unlink(missing_ok=True)
        with duckdb.connect(str(folder / "features.duckdb")) as connection:
            connection.execute("CREATE TABLE features AS SELECT * FROM arrow ORDER BY id")
    if optional("redis") and shutil.which("redis-server"):
        with redis_server(folder) as client:
            for start in range(0, redis_rows, 1000):
                pipeline = client.pipeline(transaction=False)
                for key, row in zip(keys[start : start + 1000].tolist(), features[start : start + 1000].tolist(), strict=True):
                    pipeline.hset(str(key), mapping=dict(zip(NAMES, row, strict=True)))
                pipeline.execute()
            client.save()


@contextlib.contextmanager
def redis_server(folder: pathlib.Path) -> Iterator[Any]:
    import redis

    path = str(folder / "redis.sock")
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--dir", str(folder), "--save", ""]
    with served(command) as process:
        client = redis.Redis(unix_socket_path=path)
        while True:
            assert process.poll() is None, "redis-server ended"
            try:
                client.ping()
                break
            except (redis.ConnectionError, redis.BusyLoadingError):
                time.sleep(0.05)
        yield client


@contextlib.contextmanager
def served(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def zero_kv_ways(stack: ExitStack, folder: pathlib.Path, programs: pathlib.Path) -> dict[str, Way]:
    path = folder / "zero-kv.sock"
    path.unlink(missing_ok=True)
    stack.enter_context(served([str(programs / "kv_store"), "--db", str(folder / "features.db"), "--socket", str(path)]))
    while True:
        try:
            direct = zero_kv.Direct(path)
            break
        except zero_kv.Error:
            time.sleep(0.05)
    copied = zero_kv.open(folder / "features.db", memory="copy")
    out = numpy.empty((BATCH_KEYS, COLUMNS), numpy.float32)
    few = numpy.empty((BATCH_KEYS, len(FEW)), numpy.float32)
    return {
        "Direct: 50 of 50 columns, out=": (lambda keys: direct.columns(keys, NAMES, out=out), COLUMNS),
        "Direct: 50 of 50 columns": (lambda keys: direct.columns(keys, NAMES), COLUMNS),
        "Direct: 5 of 50 columns, out=": (lambda keys: direct.columns(keys, FEW, out=few), len(FEW)),
        "Direct: get_many, the bytes of the same rows": (
            lambda keys: direct.get_many(keys, dtype=(numpy.float32, COLUMNS)),
            COLUMNS,
        ),
        "open(memory=\"copy\"): 50 of 50 columns, out=": (lambda keys: copied.columns(keys, NAMES, out=out), COLUMNS),
        "open(memory=\"copy\"): 5 of 50 columns, out=": (lambda keys: copied.columns(keys, FEW, out=few), len(FEW)),
    }


def memory_ways(rows: int) -> dict[str, Way]:
    keys, features = data(rows)
    positions = dict(zip(keys.tolist(), range(rows), strict=True))
    by_key = {key: features[position] for key, position in positions.items()}
    out = numpy.empty((BATCH_KEYS, COLUMNS), numpy.float32)
    located: dict[int, Any] = {}

    def copy(batch: Any) -> Any:
        found = located.get(id(batch))
        if found is None:
            found = located[id(batch)] = numpy.array([positions[key] for key in batch.tolist()])
        return numpy.take(features, found, axis=0, out=out, mode="clip")

    return {
        "numpy.take: copying the same rows, whose positions are known": (copy, COLUMNS),
        "dict of NumPy rows": (lambda keys: numpy.stack([by_key[key] for key in keys.tolist()]), COLUMNS),
    }


def lmdb_ways(stack: ExitStack, folder: pathlib.Path) -> dict[str, Way]:
    lmdb = optional("lmdb")
    if lmdb is None:
        return {}
    environment = stack.enter_context(lmdb.open(str(folder / "lmdb"), readonly=True, map_size=1 << 32))
    read = stack.enter_context(environment.begin(buffers=True))

    def rows(keys: Any) -> Any:
        return numpy.stack([numpy.frombuffer(read.get(key.to_bytes(8, "big")), numpy.float32) for key in keys.tolist()])

    return {"lmdb, numpy.frombuffer": (rows, COLUMNS)}


def duckdb_ways(stack: ExitStack, folder: pathlib.Path) -> dict[str, Way]:
    duckdb = optional("duckdb")
    if duckdb is None:
        return {}
    connection = stack.enter_context(duckdb.connect(str(folder / "features.duckdb"), read_only=True))
    connection.execute("SET threads = 1")

    def rows(keys: Any) -> Any:
        query = f"SELECT {', '.join(NAMES)} FROM unnest($keys::UBIGINT[]) asked(id) JOIN features USING (id)"
        found = connection.execute(query, {"keys": keys.tolist()}).fetchnumpy()
        return numpy.column_stack([found[name] for name in NAMES])

    return {"DuckDB, join (the order of rows may differ)": (rows, COLUMNS)}


def polars_ways(count: int) -> dict[str, Way]:
    polars = optional("polars")
    if polars is None:
        return {}
    keys, features = data(count)
    frame = polars.DataFrame({"id": keys} | {name: features[:, at] for at, name in enumerate(NAMES)})

    def rows(keys: Any) -> Any:
        return polars.DataFrame({"id": keys}).join(frame, on="id", how="left").select(NAMES).to_numpy(order="c")

    return {"Polars, join": (rows, COLUMNS)}


def redis_ways(stack: ExitStack, folder: pathlib.Path, keys: list[int]) -> dict[str, Way]:
    if not optional("redis") or not (folder / "dump.rdb").exists():
        return {}
    client = stack.enter_context(redis_server(folder))
    rng = numpy.random.default_rng(1)
    chosen = [[str(key) for key in rng.choice(keys, BATCH_KEYS)] for _ in range(20)]

    def rows(names: list[str]) -> Callable[[Any], Any]:
        def ask(_: Any) -> Any:
            pipeline = client.pipeline(transaction=False)
            for key in chosen[int(rng.integers(len(chosen)))]:
                pipeline.hmget(key, names)
            return numpy.array(pipeline.execute(), numpy.float32)

        return ask

    return {
        f"redis-py, pipeline of 256 HMGET of 50 ({len(keys):,} rows)": (rows(NAMES), COLUMNS),
        f"redis-py, pipeline of 256 HMGET of 5 ({len(keys):,} rows)": (rows(FEW), len(FEW)),
    }


def measure(folder: pathlib.Path, rows: int, redis_rows: int, rounds: int, seconds: float, programs: pathlib.Path) -> None:
    keys, features = data(rows)
    rng = numpy.random.default_rng(2)
    batches = [rng.choice(keys, BATCH_KEYS) for _ in range(2000)]
    position_of = dict(zip(keys.tolist(), range(rows), strict=True))
    expected = features[[position_of[key] for key in batches[0].tolist()]]
    with ExitStack() as stack:
        ways = {
            **zero_kv_ways(stack, folder, programs),
            **memory_ways(rows),
            **lmdb_ways(stack, folder),
            **duckdb_ways(stack, folder),
            **polars_ways(rows),
            **redis_ways(stack, folder, keys[:redis_rows].tolist()),
        }
        for name, (ask, width) in ways.items():
            found = ask(batches[0])
            found = found[0] if isinstance(found, tuple) else found
            assert found.shape == (BATCH_KEYS, width), name
            if "order" not in name and "redis" not in name:
                assert (found == (expected if width == COLUMNS else expected[:, 3::10])).all(), name
        best = dict.fromkeys(ways, 0.0)
        for _ in range(rounds):
            for name, (ask, width) in ways.items():
                asked, began = 0, time.perf_counter()
                while (elapsed := time.perf_counter() - began) < seconds or asked == 0:
                    ask(batches[asked % len(batches)])
                    asked += 1
                best[name] = max(best[name], asked * BATCH_KEYS * width / elapsed)
    print(f"Python {platform.python_version()}, NumPy {numpy.__version__}, {os.cpu_count()} cores, {rows:,} rows of {COLUMNS} float32\n")
    print("| way | million values per second | µs per call |\n| --- | ---: | ---: |")
    for name, rate in best.items():
        print(f"| {name} | {rate / 1e6:,.1f} | {BATCH_KEYS * ways[name][1] / rate * 1e6:,.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prepare", "measure"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--redis-rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each way in each round")
    default = pathlib.Path(__file__).resolve().parents[1] / "target" / "release"
    parser.add_argument("--programs", type=pathlib.Path, default=os.environ.get("ZERO_KV_BIN", default))
    options = parser.parse_args()
    if options.step == "prepare":
        prepare(options.folder, options.rows, options.redis_rows)
    else:
        programs = pathlib.Path(options.programs)
        measure(options.folder, options.rows, options.redis_rows, options.rounds, options.seconds, programs)


if __name__ == "__main__":
    main()
