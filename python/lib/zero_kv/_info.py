"""The types of the facts about servers and of the topologies of clusters."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

_Percentiles = TypedDict("_Percentiles", {"service_us_p99.9": float}, total=False)


class ServerInfo(_Percentiles, total=False):
    """Facts about a server and its table, as `Client.info` returns them. `docs/PROTOCOL.md` describes them. A server of
    another version may lack some facts, or send more of them.
    """

    version: str
    pid: int
    uptime_s: int
    workers: int
    socket: str
    tcp: str
    tls: str
    file: str
    memory: str
    verify: str
    direct: bool
    generation: int
    digest: str
    keys: str
    rows: int
    file_len_bytes: int
    file_modified_s: int
    resident_len_bytes: int
    blocks: int
    blocks_verified: int
    blocks_damaged: int
    state: str
    connections: int
    connections_accepted: int
    connections_cut_idle: int
    connections_cut_stalled: int
    connections_refused: int
    panics: int
    requests_get: int
    requests_exists: int
    requests_floor: int
    requests_ceiling: int
    requests_range: int
    requests_count: int
    requests_info: int
    requests_reload: int
    requests_rollback: int
    requests_open: int
    requests_ping: int
    requests_auth: int
    requests_schema: int
    requests_select: int
    requests_get_columns: int
    requests_topology: int
    requests_generation: int
    requests_cover: int
    requests_key_type: int
    requests_track: int
    requests_redis: int
    requests_other: int
    hits: int
    misses: int
    errors: int
    read_len_bytes: int
    written_len_bytes: int
    batches: int
    batch_requests_p50: int
    batch_requests_p99: int
    batch_requests_max: int
    service_us_p50: float
    service_us_p99: float
    users: str
    logins_failed: int
    refused_users_files: int
    users_refused: str
    swaps: int
    rollbacks: int
    refused_files: int
    faults: int
    reload_requested: int
    reload_done: int
    reload_last: str
    writers_detected: str
    connections_cut_http: int
    connections_cut_slow: int
    connections_cut_generation: int
    connections_cut_memory: int
    connections_cut_buffer: int
    connections_cut_killed: int
    connections_cut_handshake: int
    connections_cut_plaintext: int
    connections_cut_tls: int
    connections_cut_metrics: int
    connections_cut_user: int
    generations_retained: int
    generations_max: int
    client_memory_bytes: int
    client_memory_max_bytes: int
    client_sockets_bytes: int
    file_refused: str
    rolled_back: str
    tls_handshakes: int
    tls_handshakes_failed: int
    tls_reloads: int
    tls_reloads_refused: int
    tls_certificate_expires_s: int
    tls_refused: str
    thread_panics: int
    thread_problems: str
    published_url: str
    published_node: str
    published_slots: str
    published_generation: int
    published_prepared: int
    published_newest: int
    published_pin: int
    published_lag_s: int
    published_poll_age_s: int
    published_poll_s: float
    published_serving_age_s: int
    published_polls: int
    published_fetched_bytes: int
    published_fetching_bytes: int
    published_fetching_total_bytes: int
    published_failures: int
    published_name_problem: str
    published_error: str
    cluster_node: str
    cluster_topology: int
    cluster_role: str
    cluster_slots: str
    cluster_file_slots: str
    cluster_file_slots_digits: str
    cluster_slots_lacking: str
    cluster_topology_refused: str
    log_dropped_lines: int
    log_1: str
    log_2: str
    log_3: str
    log_4: str
    log_5: str
    log_6: str
    log_7: str
    log_8: str
    log_9: str
    log_10: str
    batch_requests_buckets: str
    service_ns_buckets: str


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
