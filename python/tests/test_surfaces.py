"""All tables and clients have the same lookups, with the same names, parameters, docstrings, results, and errors."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pyarrow
import pytest

import zero_kv
from support import BlockingCalls, bake_text, cluster_of, number_rows, seeded, serving, text_rows

LOCAL: list[type] = [zero_kv.Table, zero_kv.Direct, zero_kv.Published]
BLOCKING: list[type] = [zero_kv.Client, zero_kv.ClusterClient]
ASYNCHRONOUS: list[type] = [zero_kv.AsyncClient, zero_kv.AsyncClusterClient]
CLASSES = [zero_kv.LookupTable, *LOCAL, *BLOCKING, *ASYNCHRONOUS]

# What only some classes have, and why.
SPECIAL = {
    "view": (LOCAL, "a view refers to memory of this process"),
    "snapshot": (LOCAL, "requests cannot choose a version of the server's table"),
    "digest": (LOCAL, "of a server, it is in info()"),
    "file_len_bytes": (LOCAL, "of a server, it is in info()"),
    "generation": ([zero_kv.Direct, zero_kv.Published], "files have no generation, and info() reports a server's"),
    "refresh": ([zero_kv.Direct, zero_kv.Published], "a file does not change, and requests use the server's table"),
    "is_connected": ([zero_kv.Direct], "clients connect when they need a connection"),
    "url": ([zero_kv.Published], "only published tables are in an object store"),
    "last_error": ([zero_kv.Published], "the thread that follows the table has no caller"),
    "info": ([zero_kv.Client, zero_kv.AsyncClient], "the nodes of a cluster have different facts"),
    "ping": ([zero_kv.Client, zero_kv.AsyncClient], "a cluster has several servers"),
    "topology": ([zero_kv.ClusterClient, zero_kv.AsyncClusterClient], "only clusters have one"),
}
# Members with the same name but another docstring, and why.
OWN_DOCSTRINGS = {
    (zero_kv.Published, "close"): "lookups continue in the current generation",
    (zero_kv.Published, "generation"): "a publisher assigns the numbers",
    (zero_kv.Published, "refresh"): "it polls an object store, and raises its errors",
}


def members(cls: type) -> dict[str, Any]:
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


def test_all_classes_have_the_same_members() -> None:
    common = members(zero_kv.LookupTable)
    special = [name for name, (classes, _) in SPECIAL.items() for _ in classes]
    assert len(common) > 20 and not common.keys() & set(special)
    for cls in CLASSES:
        expected = {*common, *(name for name, (classes, _) in SPECIAL.items() if cls in classes)}
        assert members(cls).keys() == expected, cls


def test_members_with_one_name_have_one_signature_and_one_docstring() -> None:
    for left, right in itertools.combinations(CLASSES, 2):
        for name in members(left).keys() & members(right).keys():
            one, other = members(left)[name], members(right)[name]
            if callable(one):
                # The kind of `self` depends on the language.
                assert parameters(one)[1:] == parameters(other)[1:], (left, right, name)
            if not any((cls, name) in OWN_DOCSTRINGS for cls in (left, right)):
                assert inspect.getdoc(one) and inspect.getdoc(one) == inspect.getdoc(other), (left, right, name)
    for cls, name in OWN_DOCSTRINGS:
        assert name in vars(cls)


def test_clients_have_the_options_and_the_defaults_of_the_library() -> None:
    for blocking, asynchronous in zip(BLOCKING, ASYNCHRONOUS, strict=True):
        assert parameters(blocking) == parameters(asynchronous)
    defaults = zero_kv._native.default_options()
    for cls in (*BLOCKING, *ASYNCHRONOUS, zero_kv.Direct):
        options = inspect.signature(cls).parameters
        assert {"connect_timeout", "timeout", "server_user", "strict"} < options.keys()
        for name, parameter in list(options.items())[1:]:
            assert parameter.default == defaults.get(name), (cls, name)
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            cls("zkv://127.0.0.1:1", colour="red")
    for cls in (*BLOCKING, zero_kv.Direct):
        for name in list(inspect.signature(cls).parameters)[1:]:
            # Options of any name pass, and those of a wrong type do not.
            with pytest.raises((TypeError, ValueError), match=name):
                cls("zkv://127.0.0.1:1", **{name: object()})


class Surfaces:
    """One table as a file, in a server, in an object store, and in a cluster."""

    def __init__(self, stack: contextlib.ExitStack, folder: pathlib.Path, bake: Callable[[pathlib.Path], object], shards: int) -> None:
        self.file = folder / "table.db"
        bake(self.file)
        self.address = stack.enter_context(serving(self.file)).path
        self.nodes = stack.enter_context(cluster_of(self.file, shards)).addresses()
        zero_kv.publish(self.file, f"file://{folder}/published")
        self._published = (f"file://{folder}/published", folder / "cache")

    @contextlib.contextmanager
    def opened(self, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield all tables and clients, and each asyncio client with methods that block."""
        url, cache = self._published
        with contextlib.ExitStack() as stack:
            yield {
                "open": stack.enter_context(zero_kv.open(self.file, **options)),
                "Direct": stack.enter_context(zero_kv.Direct(self.address, **options)),
                "Published": stack.enter_context(zero_kv.Published(url, cache=cache, **options)),
                "Client": stack.enter_context(zero_kv.Client(self.address, **options)),
                "ClusterClient": stack.enter_context(zero_kv.ClusterClient(self.nodes, **options)),
                "AsyncClient": BlockingCalls(lambda: zero_kv.AsyncClient(self.address, **options)),
                "AsyncClusterClient": BlockingCalls(lambda: zero_kv.AsyncClusterClient(self.nodes, **options)),
            }


def typed_rows(rng: random.Random, count: int) -> dict[int, dict[str, Any]]:
    return {
        key: {"price": key / 4, "stock": rng.choice((None, key)), "name": rng.choice((None, f"item {key}"))}
        for key in rng.sample(range(10 * count), count)
    }


def hashed_rows(rng: random.Random, count: int) -> dict[bytes, bytes]:
    # Keys with one hash tag have one slot.
    return text_rows(rng, count) | {b"{user}.%d" % number: b"%d" % number for number in range(50)}


def fixed_rows(rng: random.Random, count: int) -> dict[int, bytes]:
    return {rng.randrange(10 * count): rng.randbytes(4) for _ in range(count)}


TYPES = {"price": "f32", "stock": "i64?", "name": "text?"}


def bake_ranges(rng: random.Random, count: int, path: pathlib.Path) -> None:
    """Bake a typed table of ranges with gaps. Some ranges are single keys."""
    ends = sorted(rng.sample(range(10 * count), 2 * count))
    lines = [f"{first},{last - rng.choice((0, 1))},{first / 4},{rng.choice(('', first))},item {first}\n"
             for first, last in zip(ends[::2], ends[1::2])]
    bake_text(path, "first,last,price,stock,name\n" + "".join(lines), "--header", "--ranges", "first,last", "--keys", "u64",
              "--types", ",".join(f"{name}:{kind}" for name, kind in TYPES.items()))


Bake = Callable[[random.Random, int, pathlib.Path], object]
TABLES: dict[str, Bake] = {
    "numbers": lambda rng, count, path: zero_kv.bake(number_rows(rng, count), path),
    "text": lambda rng, count, path: zero_kv.bake(hashed_rows(rng, count), path),
    "fixed": lambda rng, count, path: zero_kv.bake(fixed_rows(rng, count), path),
    "typed": lambda rng, count, path: zero_kv.bake(typed_rows(rng, count), path, types=TYPES),
    "ranges": bake_ranges,
}


@pytest.fixture(scope="module", params=TABLES)
def surfaces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surfaces]:
    bake, rng = TABLES[request.param], seeded(f"surfaces {request.param}")
    # Tables of ranges are not divided.
    shards = 1 if request.param == "ranges" else 2
    with contextlib.ExitStack() as stack:
        yield Surfaces(stack, tmp_path_factory.mktemp(request.param), lambda path: bake(rng, 3000, path), shards)


# Clients whose result of a call differs, and why.
OTHER_RESULTS = {
    ("get_rows", "([None],)"): (["AsyncClient"], "without a possible key, no request says that the table has no schema"),
}
IMPOSSIBLE: list[Any] = [2**64, -1, None, 1.5, float("nan"), "", b"x" * 70_000, "\ud800", 2**70, (1,)]


def calls_of(table: zero_kv.Table, rng: random.Random) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Return calls of all methods, with keys that the table has or does not have, and with wrong keys."""
    is_u64 = table.key_type == "u64"
    others: Any = number_rows(rng, 50) if is_u64 else text_rows(rng, 50)
    known = list(table)
    wrong = b"seven" if is_u64 else 7
    some = [*rng.choices(known, k=4), *rng.choices(list(others), k=3)]
    for key in (*some, *IMPOSSIBLE, wrong, "seven", [1]):
        for name in ("get", "get_bytes", "get_row", "contains", "floor", "ceiling", "cover"):
            yield name, (key,), {}
        for name in ("get", "get_bytes", "get_row"):
            yield name, (key, "default"), {}
    many = rng.choices([*known, *others], k=2000)
    arrow = pyarrow.array([*many, None], pyarrow.uint64() if is_u64 else pyarrow.binary())
    chunked = pyarrow.chunked_array([arrow[:10], arrow[10:]])
    every = [many, tuple(many[:3]), [*many, *IMPOSSIBLE], [*many, wrong], [wrong], [], [None], arrow, chunked, [[1]], b"many", 7]
    if is_u64:
        every += [numpy.array(many, numpy.uint64), numpy.array([1.0]), numpy.array([4, -4]), [float(many[0])]]
    for keys in every:
        for name in ("get_many", "get_bytes_many", "get_rows", "contains_many", "floor_many", "ceiling_many", "cover_many"):
            yield name, (keys,), {}
        for name in ("columns", "cover_columns"):
            yield name, (keys,), {"fill": 0}
            yield name, (keys, ["name", "stock"]), {"format": "arrow"}
        for name in ("floor_columns", "ceiling_columns"):
            yield name, (keys,), {"fill": 0}
            yield name, (keys, ["stock"]), {"format": "arrow", "limit": keys}
        for name in ("get_many", "floor_many", "cover_many"):
            yield name, (keys,), {"dtype": "V4"}
    for name in ("columns", "cover_columns"):
        yield name, (many, ["price"]), {}
        yield name, (many, ["nothing"]), {}
        yield name, (many, "price"), {}
    for start, end in (rng.choices([None, *some], k=2) for _ in range(10)):
        yield "range", (start, end), {}
        yield "count", (), {"start": start, "end": end}
    for start, end in ((wrong, None), (None, wrong), (some[0], wrong), (None, -1)):
        yield "range", (start, end), {}
        yield "count", (start, end), {}
    for prefix in (b"\x07", "{user}.", "", b"\xff", 7, None):
        yield "prefix", (prefix,), {}
        yield "count_prefix", (prefix,), {}
    for name in ("first", "last", "keys", "values", "items", "schema"):
        yield name, (), {}


def plain(found: Any) -> Any:
    """Return a result as objects whose representations are equal if the results are."""
    if isinstance(found, (zero_kv.TypedRow, zero_kv.Schema, dict)):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, (zero_kv.Rows, zero_kv.ClientRows, list)):
        return [plain(row) for row in found]
    if isinstance(found, tuple):
        return tuple(plain(value) for value in found)
    if isinstance(found, numpy.ndarray):
        return found.dtype, found.shape, found.tolist()
    if isinstance(found, (pyarrow.Array, pyarrow.ChunkedArray, pyarrow.RecordBatch)):
        return type(found), found.to_pylist()
    return found


def outcome(surface: Any, name: str, arguments: Any, options: Any) -> str:
    try:
        return repr(plain(getattr(surface, name)(*arguments, **options)))
    except Exception as error:
        if name.startswith("cover"):
            # A server does not tell a table without ranges apart from other causes of an error.
            return "raises"
        message = str(error) if isinstance(error, zero_kv.KeyKind) else ""
        return f"raises {type(error).__name__} {message}"


@pytest.mark.parametrize("is_strict", [False, True])
def test_all_lookups_have_the_same_results_and_errors(surfaces: Surfaces, is_strict: bool) -> None:
    with surfaces.opened(strict=is_strict) as opened:
        calls = list(calls_of(opened["open"], seeded("calls")))
        called = {name for name, _, _ in calls}
        assert called == members(zero_kv.LookupTable).keys() - {"strict", "close", "key_type"}
        wrong = []
        for name, arguments, options in calls:
            exempt, _ = OTHER_RESULTS.get((name, repr(arguments)), ([], ""))
            compared = {kind: surface for kind, surface in opened.items() if kind not in exempt}
            found = {kind: outcome(surface, name, arguments, options) for kind, surface in compared.items()}
            if len(set(found.values())) > 1:
                texts = {kind: text[:200] for kind, text in found.items()}
                wrong.append(f"{name}{repr(arguments)[:200]} {options}: {texts}")
        assert not wrong, "\n".join(wrong)


def test_blocking_clients_are_mappings_as_tables_are(surfaces: Surfaces) -> None:
    with surfaces.opened() as opened:
        table = opened["open"]
        key = table.first()[0]
        for kind in ("Direct", "Published", "Client", "ClusterClient"):
            other = opened[kind]
            assert isinstance(other, zero_kv.LookupTable) and other and not other.strict
            assert repr(other).startswith(f"<zero_kv.{kind} \"")
            assert len(other) == len(table) and list(other) == list(table) == list(reversed(other))[::-1]
            assert list(reversed(other.range(key))) == list(reversed(table.items()))
            assert other[key] == table[key] and key in other and key in other.keys() and None not in other
            with pytest.raises(KeyError) as missing:
                other[None]
            assert missing.value.args == (None,)


def test_asynchronous_clients_have_operators(surfaces: Surfaces) -> None:
    table = zero_kv.open(surfaces.file)
    key = next(iter(table))

    async def ask(client: Any) -> None:
        async with client:
            assert not client.strict and [key async for key in client] == list(table)
            assert await client[key] == table[key]
            with pytest.raises(KeyError):
                await client[None]

    asyncio.run(ask(zero_kv.AsyncClient(surfaces.address)))
    asyncio.run(ask(zero_kv.AsyncClusterClient(surfaces.nodes)))


def test_only_tables_in_this_process_without_rows_are_false(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({}, tmp_path / "table.db", keys="u64", allow_empty=True)
    assert not zero_kv.open(tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server, zero_kv.Client(server.path) as client:
        assert not zero_kv.Direct(server.path)
        server.stop()
        # A request would fail.
        assert client
    assert client, "a closed client, too"


@pytest.mark.parametrize("client", [zero_kv.AsyncClient("zero-kv.sock"), zero_kv.AsyncClusterClient(["zkv://127.0.0.1:1"])])
def test_in_and_for_do_not_run_forever_in_asynchronous_clients(client: Any) -> None:
    with pytest.raises(TypeError, match=r"`in` cannot await a response: call `await client.contains\(key\)`"):
        assert 1 in client
    with pytest.raises(TypeError, match="`for` cannot await responses: use `async for key in client`"):
        list(client)
