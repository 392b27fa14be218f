"""Promises of `ClusterClient` and `AsyncClusterClient`, with real nodes."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import zero_kv
from support import BlockingCalls, Cluster, HostileNode, cluster_of, seeded, serving, topology_of

CLIENTS = ["blocking", "asyncio"]


def connected(kind: str, cluster: Cluster, **options: Any) -> Any:
    nodes = cluster.addresses()
    if kind == "asyncio":
        return BlockingCalls(lambda: zero_kv.AsyncClusterClient(nodes, **options))
    return zero_kv.ClusterClient(nodes, **options)


def requests_of(cluster: Cluster, node: str) -> int:
    """Return the number of keys that clients have requested from a node."""
    with zero_kv.Client(cluster.servers[node].path) as client:
        info = client.info()
        return int(info["hits"]) + int(info["misses"])


def test_pages_longer_than_a_response_are_complete(tmp_path: pathlib.Path) -> None:
    rng = seeded("long pages")
    rows = {key: rng.randbytes(rng.choice((0, 100, 70_000))) for key in range(300)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2) as cluster, zero_kv.ClusterClient(cluster.addresses()) as client:
        assert dict(client.range()) == rows and list(client.range()) == list(rows.items())
        assert list(reversed(client.range(5, 290))) == list(rows.items())[5:290][::-1]


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_replica_answers_for_a_killed_primary(kind: str, tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(2000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2, replicas=1) as cluster:
        client = connected(kind, cluster, timeout=20)
        assert client.get_many(list(rows)) == list(rows.values())
        cluster.servers["p0"].stop(signal.SIGKILL)
        assert client.get_many(list(rows)) == list(rows.values())
        assert client.count() == 2000
        # Without any node of a slot, the error names the last node that was tried.
        cluster.servers["r0-0"].stop(signal.SIGKILL)
        ports = "|".join(str(node["port"]) for node in cluster.nodes if node["id"] in ("p0", "r0-0"))
        with pytest.raises(zero_kv.NotRunning, match=ports):
            client.get_many(list(rows))
        cluster.start(cluster.nodes[0])
        assert client.get_many(list(rows)) == list(rows.values())


def test_replicas_and_near_nodes_are_preferred_on_request(tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(1000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2, replicas=2) as cluster:
        # One replica of each shard is in the zone of the client.
        for node in cluster.nodes:
            if node["id"].endswith("-1"):
                node["zone"] = "near"
        cluster.write_topology(2)

        def requested_nodes(**options: Any) -> set[str]:
            before = {name: requests_of(cluster, name) for name in cluster.servers}
            deadline = time.monotonic() + 60
            while True:
                with zero_kv.ClusterClient(cluster.addresses(), **options) as client:
                    if client.topology()["number"] == 2:
                        assert client.get_many(list(rows)) == list(rows.values())
                        break
                assert time.monotonic() < deadline, "no node has read topology 2"
            return {name for name in cluster.servers if requests_of(cluster, name) > before[name]}

        assert requested_nodes() == {"p0", "p1"}
        assert requested_nodes(zone="near") == {"p0", "p1"}
        replicas = requested_nodes(read_from_replicas=True)
        assert len(replicas) == 2 and all(name.startswith("r") for name in replicas)
        assert requested_nodes(read_from_replicas=True, zone="near") == {"r0-1", "r1-1"}


def test_threads_and_child_processes_share_a_client(tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(1000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2) as cluster, zero_kv.ClusterClient(cluster.addresses()) as client:
        wrong: list[int] = []

        def read(first: int) -> None:
            for key in range(first, 1000, 4):
                if client.get(key) != rows[key] or client.get_many([key, key + 10_000]) != [rows[key], None]:
                    wrong.append(key)

        threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        # A forked process and the process that forked it do not read each other's responses.
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = [pool.apply_async(client.get_many, (list(range(200)),)) for _ in range(8)]
            mine = [client.get_many(list(range(200))) for _ in range(8)]
            assert [answer.get(60) for answer in answers] == mine == [list(rows.values())[:200]] * 8
        copy = pickle.loads(pickle.dumps(client))
        assert copy.get_many([1, 2]) == [b"1", b"2"] and repr(copy) == repr(client)


@pytest.fixture
def one_server(tmp_path: pathlib.Path) -> Iterator[str]:
    zero_kv.bake({7: b"seven"}, tmp_path / "table.db")
    with serving(tmp_path / "table.db") as server:
        yield server.path


def test_wrong_arguments_are_errors_that_name_the_remedy(one_server: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="nodes is empty: give the address of at least one node"):
        zero_kv.ClusterClient([])
    with pytest.raises(ValueError, match="not a node of a cluster.*use Client for one server"):
        zero_kv.ClusterClient(one_server)
    with pytest.raises(zero_kv.NotRunning, match="nothing.sock"):
        zero_kv.ClusterClient([str(tmp_path / "nothing.sock"), str(tmp_path / "nothing.sock")])
    with pytest.raises(ValueError, match="a password is given without a user"):
        zero_kv.ClusterClient("zkv://127.0.0.1:1", password="secret")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sentinel'"):
        zero_kv.ClusterClient("zkv://127.0.0.1:1", sentinel=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_closed_client_raises_closed(kind: str, tmp_path: pathlib.Path) -> None:
    zero_kv.bake({7: b"seven"}, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 1) as cluster:
        if kind == "blocking":
            with zero_kv.ClusterClient(cluster.addresses()) as client:
                assert client.get(7) == b"seven"
            with pytest.raises(zero_kv.Closed, match="the client is closed"):
                client.get(7)
        else:

            async def use() -> None:
                client = zero_kv.AsyncClusterClient(cluster.addresses())
                answers = await asyncio.gather(*(client.get(7) for _ in range(100)))
                assert answers == [b"seven"] * 100
                await client.close()
                with pytest.raises(zero_kv.Closed, match="the client is closed"):
                    await client.get(7)

            asyncio.run(use())


def test_a_topology_changes_while_clients_read(tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(3000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2, replicas=1) as cluster:
        client = zero_kv.ClusterClient(cluster.addresses(), attempts=30)
        done, wrong, calls = threading.Event(), [0], [0]

        def read() -> None:
            while not done.is_set():
                wrong[0] += client.get_many(list(rows)) != list(rows.values())
                wrong[0] += client.count(10, 500) != 490
                calls[0] += 1

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for number in range(2, 5):
                # Each primary and its replica change places.
                for primary in [node for node in cluster.nodes if node["role"] == "primary"]:
                    replica = next(node for node in cluster.nodes if node.get("primary") == primary["id"])
                    replica |= {"role": "primary", "slots": primary.pop("slots")}
                    del replica["primary"]
                    primary |= {"role": "replica", "primary": replica["id"]}
                cluster.write_topology(number)
                before, deadline = calls[0], time.monotonic() + 60
                while client.topology()["number"] < number or calls[0] < before + 3:
                    assert time.monotonic() < deadline and thread.is_alive()
                    client.get_many([1, 2, 3])
                    # A client learns a topology when it is redirected, or connects.
                    client = zero_kv.ClusterClient(cluster.addresses(), attempts=30)
        finally:
            done.set()
            thread.join()
        assert wrong == [0]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """A cluster of two nodes, without replicas, with the numbers below 1000 as keys."""
    zero_kv.bake({key: b"%d" % key for key in range(1000)}, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2) as cluster:
        yield cluster


def test_a_child_process_has_its_own_threads_and_connections(cluster: Cluster) -> None:
    client = zero_kv.AsyncClusterClient(cluster.addresses())

    async def read(key: int) -> bool:
        answers = await asyncio.gather(*(client.get(key) for _ in range(50)))
        return answers == [b"%d" % key] * 50

    async def forking() -> None:
        assert await read(1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(60)  # Ends a child process that waits for the threads of its parent.
                asyncio.events._set_running_loop(None)
                status = 0 if asyncio.run(read(2)) else 1
                asyncio.run(client.close())
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert await read(3)

    asyncio.run(forking())
    # Another event loop can use the client.
    assert asyncio.run(read(4))
    asyncio.run(client.close())


@pytest.mark.usefixtures("each_loop")
def test_an_asyncio_client_runs_on_each_event_loop(cluster: Cluster) -> None:
    async def ask() -> None:
        async with zero_kv.AsyncClusterClient(cluster.addresses()) as client:
            assert await asyncio.gather(*(client.get(key) for key in range(100))) == [b"%d" % key for key in range(100)]
            assert await client.get_many([3, 4]) == [b"3", b"4"] and await client.floor(5) == (5, b"5")
            assert [key async for key in client.range(10, 20)] == [(key, b"%d" % key) for key in range(10, 20)]

    asyncio.run(ask())


def test_an_asyncio_client_can_be_pickled(cluster: Cluster) -> None:
    client = zero_kv.AsyncClusterClient(cluster.addresses(), timeout=7)
    assert asyncio.run(client.get(1)) == b"1"
    copy = pickle.loads(pickle.dumps(client))
    asyncio.run(client.close())
    assert asyncio.run(copy.get(1)) == b"1" and repr(copy) == repr(client)
    asyncio.run(copy.close())


def test_closing_an_asyncio_client_cancels_no_task(cluster: Cluster) -> None:
    async def close_while_calls_wait(is_connected: bool) -> None:
        client = zero_kv.AsyncClusterClient(cluster.addresses(), timeout=60)
        if is_connected:
            await client.get(1)
        # More calls than threads. None of them ends before the client is closed, because a node is paused.
        with cluster.servers["p0"].paused(), cluster.servers["p1"].paused():
            tasks = [asyncio.create_task(client.get(1)) for _ in range(100)]
            await asyncio.sleep(0)
            await client.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(result == b"1" or isinstance(result, zero_kv.Closed) for result in results), results
        assert any(isinstance(result, zero_kv.Closed) for result in results)
        with pytest.raises(zero_kv.Closed):
            await client.get(1)

    for is_connected in (True, False):
        asyncio.run(close_while_calls_wait(is_connected))


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_call_without_a_node_ends_after_its_time_out(kind: str, cluster: Cluster) -> None:
    # If only the number of attempts ended the call, it would take more than a century.
    client = connected(kind, cluster, timeout=0.5, attempts=2**32 - 1)
    assert client.get_many([1, 2, 3]) == [b"1", b"2", b"3"]
    cluster.servers["p0"].stop(signal.SIGKILL)
    with pytest.raises(zero_kv.NotRunning, match=str(cluster.nodes[0]["port"])):
        client.get_many(list(range(1000)))
    ports = "|".join(str(node["port"]) for node in cluster.nodes)
    with cluster.servers["p1"].paused(), pytest.raises(zero_kv.Error, match=ports):
        client.get_many(list(range(1000)))


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("running", ["p0", "r0-0", "r0-1"])
def test_the_only_running_node_of_a_slot_answers(running: str, kind: str, tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(1000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 1, replicas=2) as cluster:
        for read_from_replicas in (False, True):
            client = connected(kind, cluster, read_from_replicas=read_from_replicas, attempts=1)
            stopped = [node for node in cluster.nodes if node["id"] != running]
            for node in stopped:
                cluster.servers[node["id"]].stop(signal.SIGKILL)
            assert client.get_many(list(rows)) == list(rows.values())
            assert client.count() == 1000 and client.floor(5000) == (999, b"999")
            for node in stopped:
                cluster.start(node)


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_replica_answers_for_a_primary_that_does_not_respond(kind: str, tmp_path: pathlib.Path) -> None:
    rows = {key: b"%d" % key for key in range(1000)}
    zero_kv.bake(rows, tmp_path / "table.db")
    with cluster_of(tmp_path / "table.db", 2, replicas=1) as cluster:
        client = connected(kind, cluster, timeout=1)
        assert client.get_many(list(rows)) == list(rows.values())
        # The kernel accepts connections for a paused node, so only the time-out ends a request.
        with cluster.servers["p0"].paused():
            assert client.get_many(list(rows)) == list(rows.values())
            assert client.count() == 1000
            with cluster.servers["r0-0"].paused(), pytest.raises(zero_kv.TimedOut, match="timed out"):
                client.get_many(list(rows))
        assert client.get_many(list(rows)) == list(rows.values())


def test_logins_are_those_of_all_nodes(tmp_path: pathlib.Path) -> None:
    zero_kv.bake({key: b"%d" % key for key in range(1000)}, tmp_path / "table.db")
    digest = hashlib.sha256(b"5up3r-secret").hexdigest()
    (tmp_path / "users.acl").write_text(f"user default off\nuser a on #{digest} ~* +@all\n")
    with cluster_of(tmp_path / "table.db", 2, 0, "--users", str(tmp_path / "users.acl")) as cluster:
        with zero_kv.ClusterClient(cluster.addresses(), user="a", password="5up3r-secret") as client:
            assert client.get_many(list(range(1000))) == [b"%d" % key for key in range(1000)] and client.count() == 1000
            copy = pickle.loads(pickle.dumps(client))
            assert copy.get(7) == b"7"
        # The login is the reason to report, and not that another node does not run.
        dead = "zkv://127.0.0.1:1"
        for nodes in ([*cluster.addresses(), dead], [dead, *cluster.addresses()]):
            logins: list[dict[str, Any]] = [{"user": "a", "password": "wrong"}, {"user": "b", "password": "5up3r-secret"}, {}]
            for login in logins:
                with pytest.raises(zero_kv.LoginFailed, match=str(cluster.nodes[0]["port"])):
                    zero_kv.ClusterClient(nodes, **login)


VALID_NODE = {"id": "a", "host": "127.0.0.1", "port": 1, "role": "primary", "slots": ["0-16383"]}


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (topology_of(), "0 nodes, expected 1 to 16384"),
        (topology_of(VALID_NODE | {"slots": ["0-16382"]}), "slots 16383-16383 have no primary"),
        (topology_of(VALID_NODE | {"slots": ["0-16383", "7-7"]}), "list each slot once"),
        (topology_of(VALID_NODE | {"role": "owner" * 100_000}), "unknown variant `owner"),
        (topology_of(VALID_NODE | {"port": 65536}), "invalid value: integer `65536`"),
        (topology_of(VALID_NODE | {"port": 0}), "the port is 0, expected 1 to 65535"),
        (topology_of(VALID_NODE | {"host": "a:b"}), "expected a host name or an IP address"),
        (topology_of(VALID_NODE | {"host": "/run/zero-kv.sock"}), "expected a host name or an IP address"),
        (topology_of(VALID_NODE, VALID_NODE), "another node has this id"),
        (b"[" * 100_000, "malformed"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_an_invalid_topology_is_a_protocol_error(kind: str, topology: bytes, expected: str) -> None:
    node = HostileNode(lambda _, op: (0, b"u64" if op == HostileNode.KEY_TYPE else topology))
    with pytest.raises(zero_kv.ProtocolError, match=re.escape(expected)) as raised:
        if kind == "blocking":
            zero_kv.ClusterClient(node.address)
        else:
            BlockingCalls(lambda: zero_kv.AsyncClusterClient(node.address)).get(7)
    assert str(raised.value).startswith(node.address) and len(str(raised.value)) < 1000
    node.close()


def test_nodes_that_redirect_to_each_other_end_a_call_after_its_attempts() -> None:
    ports: list[int] = []

    def answer(this: int, op: int) -> tuple[int, bytes]:
        if op == HostileNode.KEY_TYPE:
            return 0, b"u64"
        if op != HostileNode.TOPOLOGY:
            return HostileNode.MOVED
        other = next(port for port in ports if port != this)
        here = {"id": "here", "host": "127.0.0.1", "port": this, "role": "primary"}
        return 0, topology_of(here, VALID_NODE | {"port": other})

    nodes = [HostileNode(answer), HostileNode(answer)]
    ports += [node.port for node in nodes]
    client = zero_kv.ClusterClient(nodes[0].address, attempts=5, timeout=60)
    with pytest.raises(zero_kv.ServerError, match="another node of the cluster serves the slot"):
        client.get_bytes(7)
    assert sum(node.requests for node in nodes) <= 20
    for node in nodes:
        node.close()


def test_a_client_is_used_closed_and_forked_by_many_threads(cluster: Cluster) -> None:
    current = [zero_kv.ClusterClient(cluster.addresses())]
    stop, wrong = threading.Event(), []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            client = current[0]
            try:
                if client.get_many([1, 2, 3000]) != [b"1", b"2", None] or client.count(10, 30) != 20:
                    wrong.append("value")
                if rng.random() < 0.1 and pickle.loads(pickle.dumps(client)).get(5) != b"5":
                    wrong.append("copy")
            except zero_kv.Closed:
                pass
            except BaseException as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            old, current[0] = current[0], zero_kv.ClusterClient(cluster.addresses())
            assert current[0].get(7) == b"7"
            old.close()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(60)
                    status = 0 if current[0].get(9) == b"9" else 1
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
