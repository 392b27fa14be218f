"""The types and docstrings of the package."""

from __future__ import annotations

import ast
import graphlib
import inspect
import operator
import os
import pathlib
import re
import subprocess
import sys

import pytest

import zero_kv
from support import HERE

STUB = HERE.parent / "lib" / "zero_kv" / "_native.pyi"

USE = """
from collections.abc import Mapping

import numpy
import zero_kv

def use(path: str) -> None:
    report = zero_kv.bake({1: b"one", 2: "two"}, path, duplicates="last")
    rows: int = report.rows
    table: zero_kv.Table[int, bytes] = zero_kv.open(path, verify="touch")
    numbers: Mapping[int, bytes] = table
    names: Mapping[bytes, bytes] = zero_kv.open(path, strict=True)
    remote: Mapping[int, bytes] = zero_kv.Client(path)
    anywhere: list[zero_kv.LookupTable[int, bytes]] = [zero_kv.Client(path), zero_kv.open(path), zero_kv.ClusterClient([path])]
    pages: zero_kv.ClientRows[int] = zero_kv.Client[int, bytes](path).keys()
    unnamed: zero_kv.Table = zero_kv.open(path)
    with table, zero_kv.serve(path) as server, server.client() as served:
        rows_served: int = served.info()["rows"]
    first: tuple[int, bytes] = table.items()[0]
    few = table.items()[:2]
    value: bytes = table[1]
    maybe: bytes | None = table.get(2)
    either: bytes | str = table.get(2, "none")
    for key, found in table.range(1, 5):
        assert found
    number: int = len(table.range(1))
    many: list[bytes | None] = table.get_many([1, 2])
    same: list[bytes | None] = table.get_many(numpy.arange(3))
    values, mask = table.get_many([1, 2], dtype=numpy.float32)
    mask.any()
    price: float = unnamed[1]["price"]
    schema = table.schema()
    kind: str = schema["price"] if schema else "f32"
    matrix = table.columns([1, 2], ["price"], fill=0.0)
    zero_kv.bake({1: {"price": price}}, path, types={"price": kind}, base=path)
    direct: zero_kv.Table = zero_kv.Direct(timeout=None)
    generation: int = zero_kv.publish([(path, range(16384))], "file:///srv/users", progress=print).number
    with zero_kv.Published("file:///srv/users", cache=path, poll_seconds=1) as published:
        changed: bool = published.refresh() and published.generation > generation
    with zero_kv.Client(path, retries=2) as client:
        client.ping()

async def ask(path: str) -> None:
    async with zero_kv.AsyncClient(path) as client:
        values: list[bytes | None] = await client.get_many([1, 2])
        async for key, value in client.range(1, 2):
            print(key, value)

async def ask_cluster(nodes: list[str]) -> None:
    with zero_kv.ClusterClient(nodes, zone="east", read_from_replicas=True) as client:
        values: list[bytes | None] = client.get_many([1, 2])
        topology: zero_kv.Topology = client.topology()
        node: zero_kv.TopologyNode = topology["nodes"][0]
        port: int = node["port"]
        primary: str | None = node.get("primary")
    async with zero_kv.AsyncClusterClient(nodes) as other:
        number: int = (await other.topology())["number"]
        async for key, value in other.range(1, 2):
            print(key, value, number, port, primary, values)
"""

MISUSE = """
import zero_kv; from collections.abc import Mapping
zero_kv.open("a", verify="never")
zero_kv.open("a")[1.5]
zero_kv.open("a").columns([1], format="torch")
zero_kv.Client(port=6379)
zero_kv.ClusterClient(["a"]).topology()["members"]
table: zero_kv.Table[int, bytes] = zero_kv.open("a")
names: Mapping[str, str] = table
table.get(1).upper()
"""


def check(program: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", program.parent / "cache", program],
        capture_output=True,
        text=True,
    )


def test_mypy_accepts_correct_types_and_rejects_wrong_ones(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(USE)
    checked = check(tmp_path / "use.py")
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "misuse.py").write_text(MISUSE)
    wrong = check(tmp_path / "misuse.py").stdout
    lines = [f":{line}: error" for line in (3, 4, 5, 6, 7, 9, 10)]
    assert [line for line in lines if line not in wrong] == [], wrong


def test_public_names_have_the_docstrings_of_the_stub() -> None:
    documented: dict[str, str] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            inner = [(f"{node.name}.", item) for item in getattr(node, "body", []) if isinstance(item, ast.FunctionDef)]
            for prefix, item in [("", node), *inner]:
                text = ast.get_docstring(item)
                if text:
                    documented[prefix + item.name] = text
    for name in zero_kv.__all__:
        public = getattr(zero_kv, name)
        assert inspect.getdoc(public), name
        for member, held in vars(public).items() if inspect.isclass(public) else ():
            if not member.startswith("_"):
                text = inspect.getdoc(held)
                assert text, f"{name}.{member}"
    # Python documents operators itself.
    compared = [name for name in documented if "__" not in name and name.split(".")[0] in zero_kv.__all__]
    for name in compared:
        assert inspect.getdoc(operator.attrgetter(name)(zero_kv)) == documented[name], name
    assert len(compared) > 40


def test_modules_that_need_other_packages_are_imported_when_they_are_used() -> None:
    script = """
import sys, zero_kv
for name in ("feast", "ray", "spark"):
    assert f"zero_kv.{name}" not in sys.modules
    try:
        module = getattr(zero_kv, name)
    except ModuleNotFoundError as error:
        print(error.name.split(".")[0])
    else:
        assert module is sys.modules[f"zero_kv.{name}"] and (hasattr(module, "write") or module.ZeroKvOnlineStore)
        print("ok")
try:
    zero_kv.nothing
except AttributeError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    *modules, message = ran.stdout.splitlines()
    assert len(modules) == 3
    assert all(found in ("ok", package) for found, package in zip(modules, ("feast", "ray", "pyspark"), strict=True)), modules
    assert message == "module 'zero_kv' has no attribute 'nothing'"


def test_the_package_has_no_assertions() -> None:
    # Python skips them with -O, and an event loop that calls a method of a protocol only logs an AssertionError.
    sources = list((HERE.parent / "lib").rglob("*.py"))
    assert len(sources) > 10
    for source in sources:
        lines = [node.lineno for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Assert)]
        assert not lines, f"{source}: {lines}"


def test_the_modules_in_rust_have_no_import_cycle() -> None:
    imports = {
        file.stem: set(re.findall(r"\buse crate::(\w+)", file.read_text())) - {file.stem}
        for file in (HERE.parent / "src").glob("*.rs")
    }
    assert len(imports) > 10
    assert list(graphlib.TopologicalSorter(imports).static_order())


def test_the_package_itself_is_typed() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "-p", "zero_kv"]
    sources = {**os.environ, "MYPYPATH": str(HERE.parent / "lib")}
    checked = subprocess.run(command, capture_output=True, text=True, env=sources)
    assert checked.returncode == 0, checked.stdout
