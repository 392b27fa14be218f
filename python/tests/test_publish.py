"""Promises of `publish`."""

from __future__ import annotations

import json
import pathlib
import signal
import threading

import pytest

import zero_kv
from conftest import ROWS
from folder_server import serving_folder
from support import lets_other_threads_run


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/published/users"


def manifest_path(url: str, number: int) -> pathlib.Path:
    return pathlib.Path(url.removeprefix("file://")) / "manifests" / f"{number:020}.json"


def test_a_published_file_is_the_next_generation(numbers: pathlib.Path, url: str) -> None:
    table = zero_kv.open(numbers)
    for number in (1, 2):
        generation = zero_kv.publish(numbers, url, note=f"note {number}")
        assert (generation.number, generation.parent, generation.rows) == (number, number - 1, len(ROWS))
        assert (generation.digest, generation.len_bytes) == (table.digest, table.file_len_bytes)
        manifest = json.loads(manifest_path(url, number).read_text())["body"]
        assert (manifest["number"], manifest["note"]) == (number, f"note {number}")
    assert repr(generation) == f"<zero_kv.Generation 2, {len(ROWS)} rows, {table.file_len_bytes} bytes>"


def test_another_parent_is_rejected(numbers: pathlib.Path, url: str) -> None:
    assert zero_kv.publish(numbers, url, parent=0).number == 1
    with pytest.raises(zero_kv.ParentConflict, match="generation 1 is the newest one, expected 0"):
        zero_kv.publish(numbers, url, parent=0)
    assert zero_kv.publish(numbers, url, parent=1).number == 2


def test_files_cover_all_slots(numbers: pathlib.Path, tmp_path: pathlib.Path, url: str) -> None:
    with pytest.raises(zero_kv.PublishFailed, match="every slot exactly once"):
        zero_kv.publish([(numbers, range(0, 100))], url)
    with pytest.raises(zero_kv.PublishFailed, match="expected a slot of 0-8191"):
        zero_kv.publish([(numbers, range(0, 8192)), (numbers, range(8192, 16384))], url)
    for slots in (range(0), range(0, 16385), range(-1, 5), range(0, 16384, 2)):
        with pytest.raises(ValueError, match="range of slots"):
            zero_kv.publish([(numbers, slots)], url)
    # "foo" has slot 12182, and "bar" has slot 5061, as in Redis Cluster.
    zero_kv.bake({"bar": "1"}, tmp_path / "low.db")
    zero_kv.bake({"foo": "2"}, tmp_path / "high.db")
    files = [(tmp_path / "high.db", range(8192, 16384)), (tmp_path / "low.db", range(0, 8192))]
    generation = zero_kv.publish(files, url)
    assert (generation.number, generation.rows) == (1, 2)
    with zero_kv.Published(url, cache=tmp_path / "cache") as table:
        assert list(table.items()) == [(b"bar", b"1"), (b"foo", b"2")]


def test_errors_have_classes(numbers: pathlib.Path, tmp_path: pathlib.Path, url: str) -> None:
    with pytest.raises(ValueError, match="expected s3, gs, az, file, http, or https"):
        zero_kv.publish(numbers, "ftp://host/users")
    with pytest.raises(FileNotFoundError):
        zero_kv.publish(tmp_path / "missing.db", url)
    with pytest.raises(FileNotFoundError):
        zero_kv.publish(numbers, url, canary=tmp_path / "missing.canaries")
    (tmp_path / "damaged.db").write_bytes(b"no table")
    with pytest.raises(zero_kv.Damaged):
        zero_kv.publish(tmp_path / "damaged.db", url)
    (tmp_path / "canaries").write_text("2,absent\n")
    with pytest.raises(zero_kv.PublishFailed, match="canary 2: .*expected absent"):
        zero_kv.publish(numbers, url, canary=tmp_path / "canaries")
    assert not manifest_path(url, 1).exists()


def test_progress_has_all_phases(numbers: pathlib.Path, url: str) -> None:
    threads: set[int] = set()
    reports: list[zero_kv.Progress] = []

    def progress(report: zero_kv.Progress) -> None:
        threads.add(threading.get_ident())
        reports.append(report)

    zero_kv.publish(numbers, url, progress=progress)
    assert threads == {threading.get_ident()}
    assert list(dict.fromkeys(report.phase for report in reports)) == ["verify", "upload", "read back"]
    length = numbers.stat().st_size
    assert {(report.total_bytes, report.path) for report in reports} == {(length, numbers)}
    for phase in ("verify", "upload", "read back"):
        done = [report.done_bytes for report in reports if report.phase == phase]
        assert (done[0], done[-1]) == (0, length) and done == sorted(done)
    assert repr(reports[-1]) == f"<zero_kv.Progress read back, {length} of {length} bytes>"


@pytest.mark.parametrize("phase", ["verify", "upload", "read back"])
@pytest.mark.parametrize("error", [LookupError("stop"), KeyboardInterrupt()])
def test_an_exception_in_progress_cancels(
    numbers: pathlib.Path, url: str, phase: str, error: BaseException
) -> None:
    calls_after = 0

    def progress(report: zero_kv.Progress) -> None:
        nonlocal calls_after
        if calls_after:
            calls_after += 1
        if report.phase == phase and report.done_bytes == report.total_bytes and not calls_after:
            calls_after = 1
            raise error

    with pytest.raises(type(error)) as raised:
        zero_kv.publish(numbers, url, progress=progress)
    assert raised.value is error and calls_after == 1
    assert not manifest_path(url, 1).exists()
    assert zero_kv.publish(numbers, url).number == 1


def test_a_signal_cancels_while_the_store_does_not_respond(
    numbers: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = threading.Event()

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        end.wait()

    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    # Tests that run in the background of a script inherit an ignored SIGINT.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with serving_folder(tmp_path, interrupt) as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)
            with pytest.raises(KeyboardInterrupt):
                zero_kv.publish(numbers, "s3://tables/users")
            end.set()
    finally:
        signal.signal(signal.SIGINT, handler)


def test_other_threads_run_during_a_publication(tmp_path: pathlib.Path, url: str) -> None:
    zero_kv.bake(((key, bytes(100)) for key in range(200_000)), tmp_path / "large.db")
    assert lets_other_threads_run(lambda: zero_kv.publish(tmp_path / "large.db", url))
