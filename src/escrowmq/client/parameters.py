"""Connection parameters, from an AMQP URL or from keyword arguments."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from escrowmq.client.errors import ProgrammingError
from escrowmq.urls import TLS_PARAMETERS, flag, redacted, seconds, split, tls_context
from escrowmq.wire.amqp091.table import FieldValue

PORT: Final = 5672
TLS_PORT: Final = 5671


@dataclass(frozen=True, slots=True)
class Parameters:
    """The broker's address and how to connect to it. Times are in seconds.

    `timeout` limits every call that waits for the broker; most calls can override it, and None waits without limit.
    `connection_timeout` limits TCP, TLS and login together.

    `heartbeat` is the interval to propose: 0 for none, None for the broker's proposal. With `heartbeat_thread`, a
    thread sends heartbeats during long computations.

    `ssl_context` selects TLS. `server_name` is the name that the certificate must contain, if it is not `host`.
    `mechanism` is PLAIN, EXTERNAL (the certificate names the user) or ANONYMOUS.

    `frame_max` (bytes, at least 4096) and `channel_max` (up to 65535) are limits to propose; 0 takes the broker's.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    mechanism: str = "PLAIN"
    ssl_context: ssl.SSLContext | None = None
    server_name: str = ""
    heartbeat: int | None = None
    heartbeat_thread: bool = False
    connection_timeout: float = 30.0
    timeout: float | None = 60.0
    frame_max: int = 0
    channel_max: int = 0
    name: str = ""
    client_properties: Mapping[str, FieldValue] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def location(self) -> str:
        """Host, port and virtual host as in a URL."""
        return f"{self.address}/" + ("" if self.virtual_host == "/" else quote(self.virtual_host, safe=""))


def parameters(url: str | None = None, **keywords: Any) -> Parameters:
    """Return the parameters of a URL, or the defaults, with keyword arguments (fields of `Parameters`) overriding them.

    Raises:
        ProgrammingError: The URL or an argument is invalid.
    """
    unknown = keywords.keys() - {known.name for known in fields(Parameters)}
    if unknown:
        raise ProgrammingError(f"unknown connection parameter: {', '.join(sorted(unknown))}")
    if keywords.get("ssl_context") is not None and url is None:
        keywords.setdefault("port", TLS_PORT)
    found = replace(Parameters() if url is None else parse_url(url), **keywords)
    _check(found)
    return found


def parse_url(url: str) -> Parameters:
    """Parse `amqp://user:password@host:port/vhost?heartbeat=30`. Everything but the scheme is optional.

    The virtual host is `/` if the path is empty or `/`; a slash within its name is written %2F. `amqps` selects TLS
    with the system's certificate authorities. Query parameters: heartbeat, heartbeat_thread, connection_timeout,
    timeout, frame_max, channel_max, name, auth_mechanism, and for TLS cacertfile, certfile, keyfile, verify
    (`verify_peer`, `verify_none`), server_name_indication.

    Raises:
        ProgrammingError: The URL is invalid. The text never contains the password.
    """
    try:
        parts = split(url)
    except ValueError as error:
        raise ProgrammingError(str(error)) from None
    if parts.scheme not in ("amqp", "amqps"):
        raise ProgrammingError(f"bad URL {redacted(url)}: the scheme must be amqp or amqps, not {parts.scheme!r}")
    if "/" in parts.path[1:]:
        raise ProgrammingError(f"bad URL {redacted(url)}: write a slash in the virtual host as %2F")
    given: dict[str, Any] = {"port": TLS_PORT if parts.scheme == "amqps" else PORT}
    if parts.port is not None:
        given["port"] = parts.port
    if parts.hostname:
        given["host"] = unquote(parts.hostname)
    if parts.username is not None:
        given["user"] = unquote(parts.username)
    if parts.password is not None:
        given["password"] = unquote(parts.password)
    given["virtual_host"] = unquote(parts.path[1:]) or "/"
    tls: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        try:
            if name in TLS_PARAMETERS:
                tls[name] = value
            else:
                target, read = _QUERY[name]
                given[target] = read(value)
        except KeyError:
            raise ProgrammingError(f"bad URL {redacted(url)}: unknown parameter {name!r}") from None
        except ValueError:
            raise ProgrammingError(f"bad URL {redacted(url)}: {name}={value!r} is not a valid value") from None
    if parts.scheme == "amqps":
        try:
            given["ssl_context"] = tls_context(tls)
        except ValueError as error:
            raise ProgrammingError(f"bad URL {redacted(url)}: {error}") from None
        given["server_name"] = tls.get("server_name_indication", "")
    elif tls:
        raise ProgrammingError(f"bad URL {redacted(url)}: {', '.join(sorted(tls))} requires amqps")
    found = Parameters(**given)
    _check(found)
    return found


_QUERY: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "heartbeat": ("heartbeat", int),
    "heartbeat_thread": ("heartbeat_thread", flag),
    "connection_timeout": ("connection_timeout", float),
    "timeout": ("timeout", seconds),
    "frame_max": ("frame_max", int),
    "channel_max": ("channel_max", int),
    "name": ("name", str),
    "auth_mechanism": ("mechanism", str.upper),
}


def _check(given: Parameters) -> None:
    if not 0 < given.port < 65536:
        raise ProgrammingError(f"port must be 1 to 65535, not {given.port}")
    if given.heartbeat is not None and not 0 <= given.heartbeat < 65536:
        raise ProgrammingError(f"heartbeat must be 0 to 65535 s, not {given.heartbeat}")
    if not given.connection_timeout > 0 or (given.timeout is not None and not given.timeout > 0):
        raise ProgrammingError("timeout and connection_timeout must be greater than 0 s")
    if given.mechanism not in ("PLAIN", "EXTERNAL", "ANONYMOUS"):
        raise ProgrammingError(
            f"unknown mechanism {given.mechanism!r}; the client supports PLAIN, EXTERNAL and ANONYMOUS"
        )
    if given.frame_max and given.frame_max < 4096:
        raise ProgrammingError(f"frame_max must be 0 (the broker's limit) or at least 4096, not {given.frame_max}")
    if not 0 <= given.channel_max < 65536:
        raise ProgrammingError(f"channel_max must be 0 (the broker's limit) to 65535, not {given.channel_max}")
