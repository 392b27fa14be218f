"""Zero-KV: read-only lookup tables, shared by all processes of a machine.

`bake` makes a table of rows, `open` looks up in its file.
"""

from zero_kv._bake import bake
from zero_kv._native import Report, Rows, Table, open
from zero_kv.errors import (
    BakeFailed,
    Closed,
    Damaged,
    Error,
    KeyKind,
    NotRunning,
    ProtocolError,
    Refused,
    ServerError,
    TimedOut,
)

__all__ = [
    "BakeFailed",
    "Closed",
    "Damaged",
    "Error",
    "KeyKind",
    "NotRunning",
    "ProtocolError",
    "Refused",
    "Report",
    "Rows",
    "ServerError",
    "Table",
    "TimedOut",
    "bake",
    "open",
]


def _reopen(path: str, verify: str, memory: str) -> Table:
    return open(path, verify=verify, memory=memory)  # type: ignore[arg-type]
