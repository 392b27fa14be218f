"""Zero-KV: read-only lookup tables, shared by all processes of a machine.

`bake` compiles rows into a file, and `open` opens the file for lookups. If a server serves the file, `Client` and
`AsyncClient` send requests to the server, and `Direct` looks keys up in the server's table, in this process. When the
server replaces its table, all three use the new table. `ClusterClient` and `AsyncClusterClient` send requests to the
nodes of a cluster. All of them have the same lookups, which `LookupTable` describes. `publish` uploads a file to an
object store, and `Published` follows such a table without a server. `serve` starts a server for tests and notebooks.
Engines that bake a table in many processes call `slots`, `write_shard`, and `commit`; `zero_kv.spark` does so in
Spark.
"""

import atexit as _atexit
import os as _os
from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from zero_kv._aio import AsyncClient
from zero_kv._bake import bake
from zero_kv._cluster import AsyncClusterClient
from zero_kv._info import ServerInfo, Topology, TopologyNode
from zero_kv._native import (
    Client,
    ClientRows,
    ClusterClient,
    Direct,
    Entry,
    Generation,
    LookupTable,
    Progress,
    Published,
    Report,
    Rows,
    Schema,
    Table,
    TypedRow,
    __version__,
    open,
)
from zero_kv._native import forked as _forked
from zero_kv._native import stop_following as _stop_following
from zero_kv._options import ClientOptions as _ClientOptions
from zero_kv._options import ClusterOptions as _ClusterOptions
from zero_kv._options import DirectOptions as _DirectOptions
from zero_kv._options import describe as _describe
from zero_kv._progress import BakeProgress
from zero_kv._publish import publish
from zero_kv._serve import Server, serve
from zero_kv._shards import commit, slots, write_shard
from zero_kv.errors import (
    BakeFailed,
    Closed,
    Damaged,
    DirectRefused,
    Error,
    KeyKind,
    KeyTypeChanged,
    LoginFailed,
    NotPermitted,
    NotRunning,
    NotTyped,
    ParentConflict,
    ProtocolError,
    PublishFailed,
    Refused,
    ServerError,
    StoreFailed,
    TimedOut,
    TlsFailed,
    UntrustedServer,
)

__all__ = [
    "AsyncClient",
    "AsyncClusterClient",
    "BakeFailed",
    "BakeProgress",
    "Client",
    "ClientRows",
    "Closed",
    "ClusterClient",
    "Damaged",
    "Direct",
    "DirectRefused",
    "Entry",
    "Error",
    "Generation",
    "KeyKind",
    "KeyTypeChanged",
    "LoginFailed",
    "LookupTable",
    "NotPermitted",
    "NotRunning",
    "NotTyped",
    "ParentConflict",
    "Progress",
    "ProtocolError",
    "PublishFailed",
    "Published",
    "Refused",
    "Report",
    "Rows",
    "Schema",
    "Server",
    "ServerError",
    "ServerInfo",
    "StoreFailed",
    "Table",
    "TimedOut",
    "TlsFailed",
    "Topology",
    "TopologyNode",
    "TypedRow",
    "UntrustedServer",
    "__version__",
    "bake",
    "commit",
    "open",
    "publish",
    "serve",
    "slots",
    "write_shard",
]

# Modules that need other packages, imported when they are used.
_MODULES = ("feast", "ray", "spark")


def __getattr__(name: str) -> _ModuleType:
    if name in _MODULES:
        return _import_module(f"zero_kv.{name}")
    raise AttributeError(f"module 'zero_kv' has no attribute {name!r}")


_Mapping.register(LookupTable)
_Mapping.register(Schema)
_Mapping.register(TypedRow)
_describe(Client, _ClientOptions)
_describe(ClusterClient, _ClusterOptions)
_describe(Direct, _DirectOptions)
_os.register_at_fork(after_in_child=_forked)
_atexit.register(_stop_following)
