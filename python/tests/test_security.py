"""Clients over TCP with TLS and logins. The certificates and hashes are created when the tests run."""

from __future__ import annotations

import asyncio
import hashlib
import pathlib
import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

import zero_kv
from conftest import ROWS
from support import Server, serving, wait_until

PASSWORD = "5up3r-secret"


def openssl(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


class Scene:
    """A server with a TLS port and with the users `a`, who has a password, and `b`, who may read the keys that start with 2."""

    def __init__(self, server: Server, folder: pathlib.Path) -> None:
        self.server = server
        self.ca = folder / "ca.crt"
        self.folder = folder
        with zero_kv.Client(server.path) as client:
            self.port = client.info()["tls"].rsplit(":")[-1]

    def address(self, user: str = "") -> str:
        return f"zkv+tls://{user}localhost:{self.port}"


@pytest.fixture
def scene(numbers: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Scene]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    openssl(tmp_path, "req", "-x509", *curve, "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(tmp_path, "req", *curve[:-2], "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.csr")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names"]
    openssl(tmp_path, "x509", "-req", "-in", "tls.csr", *authority, "-out", "tls.crt")
    digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
    users = f"user default off\nuser a on #{digest} ~* +@all\nuser b on nopass ~2* +@read\n"
    (tmp_path / "users.acl").write_text(users)
    files = ["--tls-cert", tmp_path / "tls.crt", "--tls-key", tmp_path / "tls.key", "--users", tmp_path / "users.acl"]
    with serving(numbers, "--tls", "127.0.0.1:0", *map(str, files)) as server:
        yield Scene(server, tmp_path)


def get_blocking(address: str, key: int, **options: Any) -> Any:
    with zero_kv.Client(address, **options) as client:
        return client.get(key)


async def get_async(address: str, key: int, **options: Any) -> Any:
    async with zero_kv.AsyncClient(address, **options) as client:
        return await client.get(key)


def get_asyncio(address: str, key: int, **options: Any) -> Any:
    return asyncio.run(get_async(address, key, **options))


def get_uvloop(address: str, key: int, **options: Any) -> Any:
    return uvloop.run(get_async(address, key, **options))


@pytest.fixture(params=[get_blocking, get_asyncio, get_uvloop])
def get(request: pytest.FixtureRequest) -> Callable[..., Any]:
    function: Callable[..., Any] = request.param
    return function


def test_a_client_uses_tls_and_logs_in(
    scene: Scene, get: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZERO_KV_PASSWORD", raising=False)
    file = scene.folder / "password"
    file.write_text(PASSWORD + "\n")
    assert get(scene.address(), 6, user="a", password=PASSWORD, ca_file=scene.ca) == ROWS[6]
    assert get(scene.address("a@"), 6, password_file=file, ca_file=scene.ca) == ROWS[6]
    assert get(scene.address("a@"), 6, password_file=str(file), ca_file=str(scene.ca)) == ROWS[6]
    monkeypatch.setenv("ZERO_KV_PASSWORD_FILE", str(file))
    assert get(scene.address("a@"), 6, ca_file=scene.ca) == ROWS[6]
    monkeypatch.setenv("ZERO_KV_PASSWORD", PASSWORD)
    assert get(scene.address("a@"), 7, ca_file=scene.ca) is None


def test_errors_say_what_failed(scene: Scene, get: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZERO_KV_PASSWORD", raising=False)
    monkeypatch.delenv("ZERO_KV_PASSWORD_FILE", raising=False)
    login = {"user": "a", "password": PASSWORD}
    trusted = {"ca_file": scene.ca}
    address = scene.address()
    with pytest.raises(zero_kv.TlsFailed, match="ca_file"):
        get(address, 6, **login)
    with pytest.raises(zero_kv.TlsFailed, match="server_name"):
        get(address, 6, server_name="db.example", **login, **trusted)
    with pytest.raises(zero_kv.LoginFailed, match="password is wrong") as failed:
        get(address, 6, user="a", password="wrong-" + PASSWORD, **trusted)
    assert PASSWORD not in str(failed.value)
    with pytest.raises(zero_kv.LoginFailed, match="requires a login"):
        get(address, 6, **trusted)
    with pytest.raises(ValueError, match="there is no password for user"):
        get(scene.address("a@"), 6, **trusted)
    with pytest.raises(zero_kv.NotPermitted, match="no permission for key 6"):
        get(address, 6, user="b", password="any", **trusted)
    with pytest.raises(ValueError, match="contains a password") as failed_address:
        get(scene.address(f"a:{PASSWORD}@"), 6, **trusted)
    assert PASSWORD not in str(failed_address.value)
    with pytest.raises(ValueError, match="an address that starts with zkv"):
        get(scene.server.path, 6, **trusted)
    with pytest.raises(ValueError, match="without a user"):
        get(address, 6, password=PASSWORD, **trusted)
    with pytest.raises(ValueError, match="give one of them"):
        get(address, 6, user="a", password=PASSWORD, password_file="x", **trusted)
    with pytest.raises(TypeError, match="passwort"):
        get(address, 6, passwort=PASSWORD)
    with pytest.raises(ValueError, match="over TCP"):
        get(address, 6, server_user="root", **login, **trusted)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_cached_values_are_forgotten_when_permissions_change(kind: str, scene: Scene) -> None:
    users = scene.folder / "users.acl"

    def permit(digit: str) -> None:
        new = scene.folder / "new.acl"
        new.write_text(users.read_text().replace("~2* ", f"~{digit}* ").replace("~6* ", f"~{digit}* "))
        new.rename(users)

    def requests() -> int:
        with zero_kv.Client(scene.server.path) as client:
            return int(client.info()["requests_get"])

    loop = asyncio.new_event_loop()
    make: Any = zero_kv.Client if kind == "blocking" else zero_kv.AsyncClient
    client = make(scene.address("b@"), password="any", ca_file=scene.ca, cache=1 << 20)

    def get(key: int) -> bytes | None:
        found: bytes | None = client.get(key) if kind == "blocking" else loop.run_until_complete(client.get(key))
        return found

    def is_permitted(key: int) -> bool:
        try:
            return get(key) == ROWS[key]
        except zero_kv.NotPermitted:
            return False

    try:
        for permitted, refused in [(24, 6), (6, 24), (24, 6)]:
            permit(str(permitted)[0])
            wait_until(lambda: is_permitted(permitted))
            assert is_permitted(permitted)
            before = requests()
            assert all(is_permitted(permitted) for _ in range(3)) and requests() == before
            assert not any(is_permitted(refused) for _ in range(3))
    finally:
        if kind == "asyncio":
            loop.run_until_complete(client.close())
        else:
            client.close()
        loop.close()


def test_a_client_over_tls_can_be_pickled_and_reconnects(scene: Scene) -> None:
    with zero_kv.Client(scene.address(), user="a", password=PASSWORD, ca_file=scene.ca) as client:
        assert PASSWORD not in repr(client)
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.get(6) == ROWS[6]
        assert client.get_many(list(range(100))) == [ROWS.get(key) for key in range(100)]
        with pytest.raises(zero_kv.DirectRefused, match="Unix socket"):
            zero_kv.Direct(f"zkv://localhost:{scene.port}", timeout=5.0)
