"""Publishes baked files to an object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from zero_kv._native import Generation, Progress, publish_files

_SLOT_COUNT = 16384


def publish(
    files: str | os.PathLike[str] | Iterable[tuple[str | os.PathLike[str], range]],
    to: str,
    *,
    canary: str | os.PathLike[str] | None = None,
    note: str | None = None,
    parent: int | None = None,
    allow: str | Iterable[str] = (),
    progress: Callable[[Progress], object] | None = None,
) -> Generation:
    """Publish a baked file as the next generation of the table at the URL `to`.

    The file is verified and uploaded, and the stored bytes are compared with the file. Then the generation's manifest
    is created: readers see the whole generation, or nothing of it. Other Python threads run during the call.

    `files` is a path, or, for a table in several files, pairs of a path and the `range` of its slots, such as
    `[("a.db", range(0, 8192)), ("b.db", range(8192, 16384))]`. `canary` is a file that `zkv canary` wrote. Its keys are
    looked up before the upload, and by readers before they use the generation. `note` is a text for people. With
    `parent`, the generation `parent` must be the newest one.

    A generation that differs from the preceding one as the result of a failed export does is rejected, unless `allow` is
    the name of the change, or has it: `"empty"` (no rows), `"shrink"` (at most half of the rows), `"key-type"` (keys of
    another type), or `"schema"` (other columns).

    `progress` is called with a `Progress` at most ten times per second, and at the start and the end of each phase. An
    exception in `progress`, or Ctrl-C, cancels the publication and is raised. A later call with the same file continues
    its upload, except in a folder.

    Raises `ParentConflict` if another generation is the newest one, `StoreFailed` if the store cannot be reached or
    rejects the credentials, `Damaged` or `OSError` for a bad file, `ValueError` for a malformed URL, and otherwise
    `PublishFailed`.
    """
    pairs = [(files, range(_SLOT_COUNT))] if isinstance(files, (str, os.PathLike)) else files
    named = [(os.fspath(path), *slot_bounds(slots)) for path, slots in pairs]
    return publish_files(named, to, canary, note or "", parent, allowed_changes(allow), progress)


def allowed_changes(allow: str | Iterable[str]) -> list[str]:
    """Return the names of the changes: one, or several."""
    return [allow] if isinstance(allow, str) else list(allow)


def slot_bounds(slots: range) -> tuple[int, int]:
    """Return the first and the last slot."""
    if not slots or slots.step != 1 or slots.start < 0 or slots.stop > _SLOT_COUNT:
        raise ValueError(f"slots is {slots}, where a range of slots from 0 to 16383 was expected, such as range(0, 8192)")
    return slots[0], slots[-1]
