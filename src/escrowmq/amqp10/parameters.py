"""Connection parameters, from an AMQP URL or from keyword arguments, and the back-off between attempts to connect."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from escrowmq.amqp10.errors import UsageError
from escrowmq.urls import TLS_PARAMETERS, flag, redacted, seconds, split, tls_context

PORT: Final = 5672
TLS_PORT: Final = 5671
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "ANONYMOUS", "EXTERNAL", "NONE")


@dataclass(frozen=True, slots=True)
class Parameters:
    """A broker's address and how to connect to it. Times are in seconds.

    `timeout` limits every call that waits for the broker; most calls can override it, and None waits without limit.
    `connection_timeout` limits TCP, TLS and login together.

    `mechanism` is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, ANONYMOUS, EXTERNAL (the certificate names the user), or NONE
    (no SASL layer at all). Empty means ANONYMOUS without a user; with one, it means SCRAM-SHA-256 if the broker offers
    that, and otherwise PLAIN. Only SCRAM never sends the password; name it to refuse brokers that do not offer it.

    `virtual_host` becomes the `hostname` of open, as `vhost:NAME`. If it is empty, the host's name is sent.

    `idle_timeout` is how long the peer may be silent before the connection counts as lost; 0 means without limit.
    `heartbeat_thread` has a thread of the blocking client send heartbeats while the application makes no calls.

    `max_frame_size` is the size (bytes, at least 512) of the largest frame that the client accepts.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    user: str = ""
    password: str = field(default="", repr=False)
    virtual_host: str = ""
    mechanism: str = ""
    ssl_context: ssl.SSLContext | None = None
    server_name: str = ""
    idle_timeout: float = 60.0
    heartbeat_thread: bool = True
    connection_timeout: float = 30.0
    timeout: float | None = 60.0
    max_frame_size: int = 256 * 1024
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def location(self) -> str:
        """Host, port and virtual host as in a URL."""
        return f"{self.address}/{quote(self.virtual_host, safe='')}" if self.virtual_host else self.address

    @property
    def hostname(self) -> str:
        """The `hostname` to send in open."""
        return f"vhost:{self.virtual_host}" if self.virtual_host else self.server_name or self.host

    @property
    def logins(self) -> tuple[str, ...]:
        """The SASL mechanisms to use, the preferred one first."""
        if self.mechanism:
            return (self.mechanism,)
        return ("SCRAM-SHA-256", "PLAIN") if self.user else ("ANONYMOUS",)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts to connect: `first` seconds, doubled each time, at most `longest`.

    `attempts` bounds the attempts in a row, over all URLs; None means without limit. Each delay is shortened by a
    random part of up to half, so that many clients do not return at once.
    """

    first: float = 0.05
    longest: float = 5.0
    attempts: int | None = None

    def delays(self, chance: Callable[[], float]) -> Iterator[float]:
        """Yield the delay (s) before each further attempt. `chance` returns a number from 0 to 1."""
        delay, made = self.first, 1
        while self.attempts is None or made < self.attempts:
            yield delay * (1 - chance() / 2)
            delay, made = min(delay * 2, self.longest), made + 1


def parameters(urls: str | Iterable[str] | None = None, **keywords: Any) -> list[Parameters]:
    """Return the parameters for each URL, or the defaults, with keyword arguments (fields of `Parameters`) overriding.

    Raises:
        UsageError: A URL or an argument is invalid.
    """
    unknown = keywords.keys() - {known.name for known in fields(Parameters)}
    if unknown:
        raise UsageError(f"unknown connection parameter: {', '.join(sorted(unknown))}")
    given = [] if urls is None else [urls] if isinstance(urls, str) else list(urls)
    if urls is not None and not given:
        raise UsageError("the list of URLs is empty")
    if not given and keywords.get("ssl_context") is not None:
        keywords.setdefault("port", TLS_PORT)
    found = [replace(each, **keywords) for each in ([parse_url(url) for url in given] or [Parameters()])]
    for each in found:
        _check(each)
    return found


def parse_url(url: str) -> Parameters:
    """Parse `amqp://user:password@host:port/vhost?timeout=30`. Everything but the scheme is optional.

    A slash within the virtual host's name is written %2F. `amqps` selects TLS with the system's certificate
    authorities. Query parameters: idle_timeout, heartbeat_thread, connection_timeout, timeout, max_frame_size,
    auth_mechanism, and for TLS cacertfile, certfile, keyfile, verify (`verify_peer`, `verify_none`),
    server_name_indication.

    Raises:
        UsageError: The URL is invalid. The text never contains the password.
    """
    try:
        parts = split(url)
    except ValueError as error:
        raise UsageError(str(error)) from None
    shown = redacted(url)
    if parts.scheme not in ("amqp", "amqps"):
        raise UsageError(f"bad URL {shown}: the scheme must be amqp or amqps, not {parts.scheme!r}")
    if "/" in parts.path[1:]:
        raise UsageError(f"bad URL {shown}: write a slash in the virtual host as %2F")
    given: dict[str, Any] = {"port": parts.port or (TLS_PORT if parts.scheme == "amqps" else PORT)}
    for name, value in (("host", parts.hostname), ("user", parts.username), ("password", parts.password)):
        if value:
            given[name] = unquote(value)
    given["virtual_host"] = unquote(parts.path[1:])
    tls: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in TLS_PARAMETERS:
            tls[name] = value
        elif name in _QUERY:
            target, read = _QUERY[name]
            try:
                given[target] = read(value)
            except ValueError:
                raise UsageError(f"bad URL {shown}: {name}={value!r} is not a valid value") from None
        else:
            raise UsageError(f"bad URL {shown}: unknown parameter {name!r}")
    if parts.scheme == "amqps":
        try:
            given["ssl_context"] = tls_context(tls)
        except ValueError as error:
            raise UsageError(f"bad URL {shown}: {error}") from None
        given["server_name"] = tls.get("server_name_indication", "")
    elif tls:
        raise UsageError(f"bad URL {shown}: {', '.join(sorted(tls))} requires amqps")
    return Parameters(**given)


_QUERY: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "idle_timeout": ("idle_timeout", float),
    "heartbeat_thread": ("heartbeat_thread", flag),
    "connection_timeout": ("connection_timeout", float),
    "timeout": ("timeout", seconds),
    "max_frame_size": ("max_frame_size", int),
    "auth_mechanism": ("mechanism", str.upper),
}


def _check(given: Parameters) -> None:
    if not 0 < given.port < 65536:
        raise UsageError(f"port must be 1 to 65535, not {given.port}")
    if given.mechanism and given.mechanism not in MECHANISMS:
        raise UsageError(f"unknown mechanism {given.mechanism!r}; the client supports {', '.join(MECHANISMS)}")
    if given.idle_timeout < 0:
        raise UsageError(f"idle_timeout must be 0 (none) or more seconds, not {given.idle_timeout:g}")
    if not given.connection_timeout > 0 or (given.timeout is not None and not given.timeout > 0):
        raise UsageError("timeout and connection_timeout must be greater than 0 s")
    if not 512 <= given.max_frame_size < 2**31:
        raise UsageError(f"max_frame_size must be 512 to 2147483647 bytes, not {given.max_frame_size}")
