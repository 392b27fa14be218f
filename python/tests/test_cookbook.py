"""Runs the Python programs in docs/cookbook."""

import pathlib
import re
import subprocess

import pytest

from support import PROGRAMS as BINARIES

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs" / "cookbook").glob("*.md"))
PROGRAMS = {page.stem: re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S) for page in PAGES}
assert any(PROGRAMS.values()), "docs/cookbook has no programs"
KV_STORE = BINARIES / "kv_store"


@pytest.mark.parametrize("page", [page for page, programs in PROGRAMS.items() if programs])
def test_the_programs_of_a_page_run(page, tmp_path, monkeypatch):
    if "import numpy" in "".join(PROGRAMS[page]):
        pytest.importorskip("numpy")
    if "import pyarrow" in "".join(PROGRAMS[page]):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZERO_KV_BIN", str(BINARIES))
    (tmp_path / "datasets").symlink_to(REPOSITORY / "datasets")
    server = None
    try:
        for program in PROGRAMS[page]:
            served = re.search(r'zero_kv.Direct\("(.*).sock"\)', program)
            if served:
                name = served[1]
                server = subprocess.Popen(
                    [KV_STORE, "--db", f"{name}.db", "--socket", f"{name}.sock"], stderr=subprocess.PIPE, text=True
                )
                assert any("ready on" in line for line in server.stderr), "the server does not report that it is ready"
            exec(compile(program, f"{page}.md", "exec"), {})
    finally:
        if server:
            server.kill()
            server.communicate()


def test_programs_are_found_in_the_pages():
    assert {"features", "ip-to-country", "python-dictionary"} <= {page for page, programs in PROGRAMS.items() if programs}
