"""A shell that runs the commands of a document one after another, on this machine or in another root folder."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

POLL_S = 0.02


class Failed(Exception):
    """A command failed, took too long, or printed something else than the document shows."""


class Shell:
    """bash, with the output of all commands in one file. Commands that end with & stay jobs of the shell."""

    def __init__(self, command: list[str], log: pathlib.Path, variables: dict[str, str]) -> None:
        self._log = log
        self._steps = 0
        self._seen_bytes = 0
        output = log.open("wb")
        self._process = subprocess.Popen(
            [*command, "bash"], stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
        output.close()
        for name, value in variables.items():
            self.run(f"export {name}='{value}'", 10)

    def run(self, command: str, timeout_s: float, wait_for: str | None = None) -> tuple[int, str]:
        """Run a command, and return its status and output. If the output of a job must appear first, wait for it."""
        self._steps += 1
        marker = f"--- step {self._steps} ended with "
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n%s%s\\n' '{marker}' $?\n".encode())
        self._process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        while True:
            new = self._log.read_bytes()[self._seen_bytes :]
            printed = new.decode(errors="replace")
            before, found, after = printed.partition(f"\n{marker}")
            if found and "\n" in after and (wait_for is None or wait_for in printed):
                break
            if self._process.poll() is not None:
                raise Failed(f"the shell ended with status {self._process.returncode}:\n{printed}")
            if time.monotonic() > deadline:
                raise Failed(f"found no end within {timeout_s:.0f} s, or no {wait_for!r}:\n{printed}")
            time.sleep(POLL_S)
        self._seen_bytes += len(new)
        status, rest = after.split("\n", 1)
        return int(status), before + rest

    def stop(self) -> None:
        """Stop the shell and all of its jobs."""
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
