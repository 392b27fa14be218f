"""The types of the topology of a cluster."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class TopologyNode(TypedDict):
    """A node of a `Topology`. Without `health`, the node is online. docs/CLUSTER.md describes the fields."""

    id: str
    host: str
    port: int
    role: Literal["primary", "replica"]
    primary: NotRequired[str]
    slots: NotRequired[list[str]]
    zone: NotRequired[str]
    health: NotRequired[Literal["loading", "fail", "hidden"]]


class Topology(TypedDict):
    """The nodes of a cluster and their slots, from `ClusterClient.topology`. docs/CLUSTER.md describes the fields."""

    format: int
    number: int
    nodes: list[TopologyNode]
