"""Promises of `Published` in addition to those of `Table`, which test_table.py tests."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading

import pytest

import zero_kv
from conftest import ROWS
from folder_server import serving_folder
from support import PROGRAMS, check_facts, serving, wait_until


class Publisher:
    """A table in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.url = folder / "published", f"file://{folder}/published"
        self._file = folder / "next.db"

    def publish(self, rows: object, canary: pathlib.Path | None = None) -> zero_kv.Generation:
        zero_kv.bake(rows, self._file)
        return zero_kv.publish(self._file, self.url, canary=canary, allow=["empty", "shrink", "key-type", "schema"])


@pytest.fixture
def publisher(tmp_path: pathlib.Path) -> Publisher:
    publisher = Publisher(tmp_path)
    publisher.publish(ROWS)
    return publisher


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cache"


def test_lookups_are_those_of_a_table(publisher: Publisher, cache: pathlib.Path) -> None:
    with zero_kv.Published(publisher.url, cache=cache) as table:
        assert isinstance(table, zero_kv.Table)
        assert (table.generation, table.last_error, table.url) == (1, None, publisher.url)
        assert (table[2], table.get(3), 4 in table, len(table)) == (ROWS[2], None, True, len(ROWS))
        assert dict(table) == ROWS and table.get_many([2, 3]) == [ROWS[2], None]
        assert table.floor(3) == (2, ROWS[2]) and list(table.range(0, 3)) == [(0, ROWS[0]), (2, ROWS[2])]
        assert bytes(table.view(2)) == ROWS[2]
        assert repr(table) == f'<zero_kv.Published "{publisher.url}", {len(ROWS)} rows, keys u64>'
        with pytest.raises(TypeError, match="create one in each process"):
            pickle.dumps(table)


def test_a_process_reports_its_zone(publisher: Publisher, cache: pathlib.Path) -> None:
    status = publisher.folder / "status" / "one.json"
    with zero_kv.Published(publisher.url, cache=cache, node="one", zone="east"):
        wait_until(status.exists)
        assert json.loads(status.read_text())["body"]["zone"] == "east"
    with pytest.raises(ValueError, match="the zone of the node is"):
        zero_kv.Published(publisher.url, cache=cache, node="one", zone="a b")


def test_facts_about_a_server_of_a_published_table_have_types(publisher: Publisher, cache: pathlib.Path) -> None:
    # Names that look like numbers stay text.
    with serving(cache, "--node", "7", "--poll", "500ms", url=publisher.url) as server:
        with zero_kv.Client(server.path) as client:
            wait_until(lambda: client.info().get("published_generation") == 1)
            info = client.info()
            check_facts(info)
            assert (info["published_node"], info["published_poll_s"], info["published_name_problem"]) == ("7", 0.5, "")


def test_columns_come_from_the_current_generation(publisher: Publisher, cache: pathlib.Path) -> None:
    numpy = pytest.importorskip("numpy")
    with zero_kv.Published(publisher.url, cache=cache) as table:
        zero_kv.bake({7: {"price": 2.5}}, publisher.folder.parent / "typed.db", types={"price": "f32"})
        with pytest.raises(zero_kv.PublishFailed, match="differs from generation 1: it has 1 row, expected at least"):
            zero_kv.publish(publisher.folder.parent / "typed.db", publisher.url)
        with pytest.raises(ValueError, match='allow has "all", where a list of these was expected: empty, shrink'):
            zero_kv.publish(publisher.folder.parent / "typed.db", publisher.url, allow=["all"])
        with pytest.raises(ValueError, match='allow has "all", where a list of these was expected: empty, shrink'):
            zero_kv.publish(publisher.folder.parent / "typed.db", publisher.url, allow="all")
        zero_kv.publish(publisher.folder.parent / "typed.db", publisher.url, allow=["shrink", "schema"])
        assert table.schema() is None and table.refresh()
        assert (table.columns([7], ["price"]) == numpy.array([[2.5]], "f4")).all()


def test_lookups_use_new_generations_by_themselves(publisher: Publisher, cache: pathlib.Path) -> None:
    with zero_kv.Published(publisher.url, cache=cache, poll_seconds=0.02) as table:
        snapshot = table.snapshot()
        for number in range(2, 5):
            publisher.publish({2: f"generation {number}"})
            while table.generation != number:
                assert table.last_error is None
            assert table[2] == f"generation {number}".encode()
        assert len(snapshot) == len(ROWS) and snapshot[4] == ROWS[4]


def test_a_batch_is_looked_up_in_one_generation(publisher: Publisher, cache: pathlib.Path) -> None:
    publisher.publish({key: "2" for key in range(1000)})
    with zero_kv.Published(publisher.url, cache=cache) as table:
        stop, found = threading.Event(), set()

        def look_up() -> None:
            while not stop.is_set():
                found.add(frozenset(table.get_many(range(1000))))

        thread = threading.Thread(target=look_up)
        thread.start()
        for number in range(3, 10):
            publisher.publish({key: str(number) for key in range(1000)})
            assert table.refresh()
        stop.set()
        thread.join()
    assert all(len(values) == 1 for values in found)


def test_refresh_returns_whether_there_is_another_generation(publisher: Publisher, cache: pathlib.Path) -> None:
    with zero_kv.Published(publisher.url, cache=cache, poll_seconds=3600) as table:
        assert not table.refresh()
        publisher.publish({2: "new"})
        assert (table.refresh(), table.generation, table[2]) == (True, 2, b"new")
    table.close()
    assert table[2] == b"new"
    with pytest.raises(zero_kv.Closed, match="open it again"):
        table.refresh()


def test_a_full_cache_needs_no_store(publisher: Publisher, cache: pathlib.Path) -> None:
    with serving_folder(publisher.folder) as url:
        zero_kv.Published(url, cache=cache).close()
    with zero_kv.Published(url, cache=cache) as table:
        assert (table.generation, table[2]) == (1, ROWS[2])
        with pytest.raises(zero_kv.StoreFailed, match="check the URL, the endpoint, and the network"):
            table.refresh()
        assert table.last_error is not None and "check the URL" in table.last_error
        assert (table.generation, table[4]) == (1, ROWS[4])
    with pytest.raises(zero_kv.StoreFailed):
        zero_kv.Published(url, cache=cache.with_name("empty"))


def test_a_pin_selects_the_generation(publisher: Publisher, cache: pathlib.Path) -> None:
    def zkv(*arguments: str) -> None:
        subprocess.run([PROGRAMS / "zkv", *arguments], check=True, capture_output=True)

    publisher.publish({2: "new"})
    zkv("pin", publisher.url, "1")
    with zero_kv.Published(publisher.url, cache=cache) as table:
        assert (table.generation, table[2]) == (1, ROWS[2])
        zkv("unpin", publisher.url)
        assert (table.refresh(), table.generation, table[2]) == (True, 2, b"new")
        zkv("pin", publisher.url, "1")
        assert (table.refresh(), table.generation) == (True, 1)


def test_a_bad_generation_does_not_replace_a_good_one(publisher: Publisher, cache: pathlib.Path) -> None:
    with zero_kv.Published(publisher.url, cache=cache) as table:
        publisher.publish({2: "new"})
        for file in publisher.folder.glob("data/*/*.zkv"):
            if file.stat().st_size < 100_000:
                content = bytearray(file.read_bytes())
                content[len(content) // 2] ^= 1
                file.chmod(0o600)
                file.write_bytes(content)
        with pytest.raises(zero_kv.PublishFailed):
            table.refresh()
        assert (table.generation, table[2]) == (1, ROWS[2]) and table.last_error
        publisher.publish({2: "newer"})
        assert table.refresh() and table[2] == b"newer" and table.last_error is None


def test_a_table_without_generations_is_an_error(tmp_path: pathlib.Path, cache: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(zero_kv.PublishFailed, match="has no generation"):
        zero_kv.Published(f"file://{tmp_path}/empty", cache=cache)
    with pytest.raises(ValueError, match="expected s3"):
        zero_kv.Published("ftp://host/users", cache=cache)
    for poll_seconds, keep in ((0.0, 3), (-1.0, 3), (5.0, 0)):
        with pytest.raises(ValueError, match="expected"):
            zero_kv.Published(f"file://{tmp_path}/empty", cache=cache, poll_seconds=poll_seconds, keep=keep)
    # None of these attempts has kept the folder locked.
    Publisher(tmp_path).publish(ROWS)
    zero_kv.Published(f"file://{tmp_path}/published", cache=cache).close()


def test_one_process_uses_a_folder_at_a_time(publisher: Publisher, cache: pathlib.Path) -> None:
    table = zero_kv.Published(publisher.url, cache=cache)
    with pytest.raises(OSError, match="another process uses this folder"):
        zero_kv.Published(publisher.url, cache=cache)
    del table
    zero_kv.Published(publisher.url, cache=cache).close()


def test_progress_reports_downloads(publisher: Publisher, cache: pathlib.Path) -> None:
    reports: list[zero_kv.Progress] = []
    with zero_kv.Published(publisher.url, cache=cache, progress=reports.append) as table:
        assert {(report.phase, report.total_bytes, report.path) for report in reports} == {
            ("download", table.file_len_bytes, None)
        }
        assert (reports[0].done_bytes, reports[-1].done_bytes) == (0, table.file_len_bytes)


def test_an_exception_in_progress_ends_only_the_constructor(
    publisher: Publisher, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: unraisable.append(hook.exc_value))
    error = LookupError("stop")

    def progress(_: zero_kv.Progress) -> None:
        raise error

    with pytest.raises(LookupError) as raised:
        zero_kv.Published(publisher.url, cache=cache, progress=progress)
    assert raised.value is error and not unraisable
    zero_kv.Published(publisher.url, cache=cache).close()
    with zero_kv.Published(publisher.url, cache=cache, progress=progress) as table:
        publisher.publish({2: "new"})
        assert table.refresh() and table[2] == b"new"
    assert unraisable and all(seen is error for seen in unraisable)


def test_a_child_process_keeps_the_generation_of_its_fork(publisher: Publisher, cache: pathlib.Path) -> None:
    table = zero_kv.Published(publisher.url, cache=cache)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        is_same = table[2] == ROWS[2] and table.generation == 1 and "forked" in (table.last_error or "")
        try:
            table.refresh()
            is_same = False
        except zero_kv.Closed:
            table.close()
        del table
        os._exit(0 if is_same else 1)
    os.close(read_end)
    publisher.publish({2: "new"})
    assert table.refresh() and table[2] == b"new"
    table.close()
    # The child process does not keep the folder locked.
    zero_kv.Published(publisher.url, cache=cache).close()
    os.close(write_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_process_can_exit_while_it_follows_a_table(publisher: Publisher, cache: pathlib.Path) -> None:
    script = (
        "import sys, zero_kv\n"
        "table = zero_kv.Published(sys.argv[1], cache=sys.argv[2], poll_seconds=0.01, progress=print)\n"
        "print(table[2].decode())"
    )
    ran = subprocess.run([sys.executable, "-c", script, publisher.url, cache], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.splitlines()[-1], ran.stderr) == (0, "value of 2", "")


def test_a_damaged_manifest_is_reported_and_changes_nothing(publisher: Publisher, cache: pathlib.Path) -> None:
    with zero_kv.Published(publisher.url, cache=cache, poll_seconds=0.02) as table:
        (publisher.folder / "manifests" / f"{2:020}.json").write_text("damaged")
        while table.last_error is None:
            pass
        assert "manifests" in table.last_error and (table.generation, table[2]) == (1, ROWS[2])
