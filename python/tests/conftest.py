from __future__ import annotations

import asyncio
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import zero_kv
from support import LOOPS, Server, serving

ROWS = {key: f"value of {key}".encode() for key in range(0, 4000, 2)}


@pytest.fixture
def numbers(tmp_path: pathlib.Path) -> pathlib.Path:
    """A table of the even numbers below 4000."""
    zero_kv.bake(ROWS, tmp_path / "numbers.db")
    return tmp_path / "numbers.db"


@pytest.fixture
def server(numbers: pathlib.Path) -> Iterator[Server]:
    with serving(numbers) as server:
        yield server


@pytest.fixture(params=LOOPS)
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with each event loop, which replaces that of `asyncio.run`."""
    monkeypatch.setattr(asyncio, "run", LOOPS[request.param])
