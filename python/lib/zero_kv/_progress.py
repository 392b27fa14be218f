"""Shows the progress of a bake."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BakeProgress:
    """The progress of a bake."""

    phase: str
    """`"read"`, `"merge"`, `"write"`, `"index"`, or `"verify"`, in this order. A bake merges only if its rows do not fit in
    `memory_bytes`."""
    done: int
    """The number of rows that are done, or of bytes in the phase `"verify"`. In the phase `"index"`, each row counts
    twice."""
    total: int | None
    """The number that the phase will reach, or `None` in the phase `"read"`, because an iterator has no length."""


class Display:
    """Passes the progress of a bake to a callable, to tqdm, or to standard error."""

    def __init__(self, progress: bool | Callable[[BakeProgress], object]) -> None:
        self._callable = progress if callable(progress) else None
        self._phase = ""
        self._bar: Any = None
        self._make_bar: Any = None
        if self._callable is None:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped, import-not-found, unused-ignore]

                self._make_bar = tqdm
            except ImportError:
                pass

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        if self._callable is not None:
            self._callable(BakeProgress(phase, done, total))
        elif self._make_bar is None:
            of = "" if total is None else f" of {total}"
            end = "\n" if phase != self._phase and self._phase else ""
            sys.stderr.write(f"{end}\rbake: {phase} {done}{of} ")
            sys.stderr.flush()
        else:
            if phase != self._phase:
                self._close_bar()
                unit = "B" if phase == "verify" else "row"
                self._bar = self._make_bar(desc=f"bake: {phase}", total=total, unit=unit, unit_scale=True)
            self._bar.n = done
            self._bar.refresh()
        self._phase = phase

    def _close_bar(self) -> None:
        if self._bar is not None:
            # The last report of a phase can be earlier than its end.
            self._bar.n = self._bar.total or self._bar.n
            self._bar.close()
            self._bar = None

    def close(self, is_complete: bool) -> None:
        """End the display."""
        if self._bar is not None and not is_complete:
            self._bar.close()
            self._bar = None
        self._close_bar()
        if self._callable is None and self._make_bar is None and self._phase:
            sys.stderr.write("\n")
