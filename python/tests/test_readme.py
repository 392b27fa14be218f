"""Runs the programs in README.md that need no other files or services."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

from support import HERE, PROGRAMS

README = (HERE.parent / "README.md").read_text()
SECTIONS = ["Bake a table", "Look up", "Send requests to a server"]


def blocks(section: str) -> list[str]:
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    # The other blocks use tables and servers that the text describes.
    return [block for block in found if block.startswith(("import ", "with zero_kv.", "table = zero_kv.open(")) and "tls" not in block]


def test_the_programs_of_the_readme_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZERO_KV_BIN", str(PROGRAMS))
    namespace: dict[str, Any] = {}
    ran = 0
    for section in SECTIONS:
        for program in blocks(section):
            exec(compile(program, f"README.md, {section}", "exec"), namespace)
            ran += 1
    assert ran == 6, [blocks(section) for section in SECTIONS]
