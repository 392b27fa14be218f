"""Connections of the asyncio client.

In: an address, and requests of the compiled class `Request`. Out: their results. `Pipeline` encodes the requests and
decodes the responses; this module connects, sends the bytes, and receives them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

from zero_kv._native import Pipeline, Request, ValueCache, check_server_user, endpoint
from zero_kv.errors import Closed, NotRunning, Refused, TimedOut, TlsFailed, UntrustedServer

_P = ParamSpec("_P")

# The fields of SO_PEERCRED: process, user, and group.
_UCRED = struct.Struct("iII")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the caller."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "no event loop of asyncio is running, where the client needs one: call the client from asyncio.run, "
            "uvloop.run, or anyio.run with the backend asyncio, or use Client in threads"
        ) from None


_Callback = Callable[Concatenate["Connection", _P], None]


def _callback(method: _Callback[_P]) -> _Callback[_P]:
    """Decorate a method that an event loop calls. If it raises an exception, all calls that wait for a response raise this
    exception: the loop would only log it, and the calls would wait until they time out.
    """

    @functools.wraps(method)
    def call(self: Connection, /, *arguments: _P.args, **named: _P.kwargs) -> None:
        try:
            method(self, *arguments, **named)
        except BaseException as error:
            self.abort(error)
            if not isinstance(error, Exception):
                raise

    return call


class Connection(asyncio.Protocol):
    """A connection that many tasks send requests on: see `Endpoint.connect`."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, cache: ValueCache | None = None) -> None:
        self.loop = loop
        self.process_id = os.getpid()
        self.is_open = True
        self._address = address
        self._pipeline = Pipeline(address, cache)
        self._has_cache = cache is not None
        # Another descriptor of the socket, to find out whether bytes have arrived.
        self._peeked: socket.socket | None = None
        self._is_flushing = False
        self._transport: asyncio.Transport | None = None

    def send(self, request: Request) -> asyncio.Future[Any]:
        if not self.is_open:
            raise self._pipeline.closed()
        future: asyncio.Future[Any] = self.loop.create_future()
        if self._has_cache and (cached := self._pipeline.cached(request)) is not None and not self._has_unread():
            future.set_result(cached)
            return future
        self._pipeline.add(request, future)
        if not self._is_flushing:
            # The callback sends the requests of all tasks that ran before it.
            self._is_flushing = True
            self.loop.call_soon(self._flush)
        return future

    def _has_unread(self) -> bool:
        """Return whether bytes have arrived that the event loop has not read yet: perhaps a notice about a new table."""
        if self._peeked is None:
            return True
        try:
            self._peeked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def _stop_peeking(self) -> None:
        if self._peeked is not None:
            self._peeked.close()
            self._peeked = None

    @_callback
    def _flush(self) -> None:
        self._is_flushing = False
        unsent = self._pipeline.take_unsent()
        if self._transport is not None and self.is_open and unsent:
            self._transport.write(unsent)

    def close(self) -> None:
        self.is_open = False
        self._stop_peeking()
        if self.loop.is_closed():
            return  # The loop has closed the socket and canceled all waiting tasks.
        self._pipeline.fail(Closed(f"{self._address}: the client is closed"))
        if self._transport is not None:
            self._transport.close()

    def abort(self, error: BaseException) -> None:
        """Disconnect. All calls that wait for a response raise the exception."""
        self.is_open = False
        try:
            self._pipeline.fail(error)
        finally:
            if self._transport is not None:
                self._transport.abort()

    @_callback
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of some event loops have the methods of asyncio.Transport, but are not instances of it.
        self._transport = cast(asyncio.Transport, transport)
        held = transport.get_extra_info("socket") if self._has_cache else None
        if held is not None:
            self._peeked = socket.socket(fileno=os.dup(held.fileno()))
            # With the program's default time-out (`socket.setdefaulttimeout`), reading would wait for bytes.
            self._peeked.settimeout(0)

    @_callback
    def data_received(self, data: bytes) -> None:
        # After an exception, the start of the next response is unknown, so the connection cannot be used again.
        self._pipeline.received(bytes(data))

    @_callback
    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._stop_peeking()
        # With TLS 1.3, a server rejects a client's certificate only after the client's handshake.
        is_tls = isinstance(error, ssl.SSLError)
        self._pipeline.fail(_tls_failed(self._address, error) if is_tls else self._pipeline.closed())


class Endpoint:
    """An address, and how to connect to it."""

    def __init__(self, address: str, options: dict[str, Any], cache: ValueCache | None) -> None:
        self._address = address
        self._options = options
        self._cache = cache

    async def connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Connect, and log in if a user is named."""
        try:
            async with asyncio.timeout(self._options["connect_timeout"]):
                return await self._open(loop)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            kind = "port" if "://" in self._address else "socket"
            message = f"{self._address}: cannot connect: {error.strerror}: is kv_store running, and on this {kind}?"
            raise NotRunning(message) from error
        except TimeoutError as error:
            timeout = self._options["connect_timeout"]
            raise TimedOut(f"{self._address}: timed out after {timeout} s connecting") from error
        except ssl.SSLError as error:
            raise _tls_failed(self._address, error) from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            raise Pipeline(self._address).closed() from error
        except socket.gaierror as error:
            message = f"{self._address}: connecting: {error.strerror}: correct the name of the host"
            raise OSError(error.errno, message) from error

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Connection:
        host, port, uses_tls, login = endpoint(self._address, **self._options)
        factory = functools.partial(Connection, self._address, loop, self._cache)
        if host is None:
            transport, connection = await self._open_unix(loop, factory)
        else:
            context = self._ssl_context() if uses_tls else None
            server_name = (self._options["server_name"] or host) if uses_tls else None
            transport, connection = await loop.create_connection(
                factory, host, port, ssl=context, server_hostname=server_name
            )
        try:
            if login is not None:
                await connection.send(login)
        except BaseException:
            transport.abort()
            raise
        return connection

    async def _open_unix(
        self, loop: asyncio.AbstractEventLoop, factory: Callable[[], Connection]
    ) -> tuple[asyncio.Transport, Connection]:
        """Connect to the Unix socket, and check the user that the server runs as."""
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            transport, connection = await loop.create_unix_connection(factory, path)
        except PermissionError as error:
            reason = f"{error.strerror}: ask for access to the socket and its directory"
            raise Refused(f"{self._address}: cannot connect: {reason}") from error
        try:
            check_server_user(self._address, _peer_uid(self._address, transport), self._options["server_user"])
        except BaseException:
            transport.abort()
            raise
        return transport, connection

    def _ssl_context(self) -> ssl.SSLContext:
        """Return a new TLS context. The certificate files are read for each connection, because they can change."""
        context = ssl.create_default_context(cafile=self._options["ca_file"])
        if (certificate := self._options["certificate_file"]) is not None:
            context.load_cert_chain(certificate, self._options["key_file"])
        return context


def _tls_failed(address: str, error: Exception | None) -> TlsFailed:
    """Return the exception for an error of the module ssl."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the server's certificate is not trusted: {error.verify_message}: see ca_file and server_name"
    else:
        reason = f"{error}: the port may not use TLS, or the server may require a certificate (certificate_file, key_file)"
    return TlsFailed(f"{address}: no connection with TLS: {reason}")


def _peer_uid(address: str, transport: asyncio.Transport) -> int:
    """Return the ID of the user that the server runs as."""
    held = transport.get_extra_info("socket")
    if held is None:
        raise UntrustedServer(
            f"{address}: the event loop has no socket of the connection, so that the server's user is unknown: use an "
            "event loop whose transports have a socket, such as those of asyncio and uvloop"
        )
    # Uses a second socket object, because the socket objects of some event loops lack getsockopt.
    with socket.socket(fileno=os.dup(held.fileno())) as peer:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(credentials)[1]
    return uid
