"""The options of clients, whose defaults are those of the Rust library."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar

from zero_kv._native import default_options

_C = TypeVar("_C", bound=type)
_DEFAULTS = default_options()


class _CommonOptions(TypedDict, total=False):
    connect_timeout: float
    timeout: float | None
    server_user: str | int | None
    strict: bool


class DirectOptions(_CommonOptions, total=False):
    """The options of `Direct`."""

    memory: Literal["map", "copy"]


class _SecureOptions(_CommonOptions, total=False):
    user: str | None
    password: str | None
    password_file: str | os.PathLike[str] | None
    ca_file: str | os.PathLike[str] | None
    certificate_file: str | os.PathLike[str] | None
    key_file: str | os.PathLike[str] | None
    server_name: str | None
    cache: int


class ClientOptions(_SecureOptions, total=False):
    """The options of `Client` and `AsyncClient`."""

    retries: int
    reconnect_timeout: float


class ClusterOptions(_SecureOptions, total=False):
    """The options of `ClusterClient` and `AsyncClusterClient`."""

    read_from_replicas: bool
    zone: str | None
    attempts: int


def with_defaults(given: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Return the values of all options. Raises `TypeError` for an unknown option."""
    for name in given:
        if name not in options.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    return {name: given.get(name, _DEFAULTS.get(name)) for name in options.__annotations__}


def describe(cls: _C, options: type) -> _C:
    """Make the signature of a class show the options and their defaults."""
    first = next(iter(inspect.signature(cls).parameters.values())).replace(annotation=inspect.Parameter.empty)
    keywords = with_defaults({}, options).items()
    shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in keywords]
    cls.__signature__ = inspect.Signature([first, *shown])  # type: ignore[attr-defined]
    return cls


def asynchronous(blocking: type, options: type) -> Callable[[_C], _C]:
    """Decorate a client for asyncio. Its methods have the docstrings of a blocking client."""

    def decorate(cls: _C) -> _C:
        for name, member in vars(cls).items():
            if not name.startswith("_"):
                member.__doc__ = getattr(blocking, name).__doc__
        return describe(cls, options)

    return decorate
