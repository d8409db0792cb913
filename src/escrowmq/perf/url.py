"""The address of the broker: `amqp://user:password@host:port/vhost`, or `rocketmq://host:port`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from escrowmq.perf.errors import WrongUsage
from escrowmq.urls import redacted, split

DEFAULT_PORTS = {"amqp": 5672, "rocketmq": 9876, "rocketmq+grpc": 8081}
"""By scheme. The port of RocketMQ is that of the name server."""


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address and the credentials for it."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    scheme: str = "amqp"

    @property
    def address(self) -> str:
        """Host and port for messages to the user; never the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Read a URL. Missing parts default to user guest, password guest, the port of the scheme and the virtual host `/`.

    Raises WrongUsage, which names the wrong part.
    """
    try:
        parts = split(url)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if parts.scheme not in DEFAULT_PORTS:
        schemes = ", ".join(DEFAULT_PORTS)
        raise WrongUsage(f"bad URL {redacted(url)}: the scheme must be one of {schemes}, not {parts.scheme!r}")
    if not parts.hostname:
        raise WrongUsage(f"bad URL {redacted(url)}: no host")
    if parts.query or parts.fragment:
        raise WrongUsage(f"bad URL {redacted(url)}: a query or fragment is not supported")
    vhost = unquote(parts.path[1:])
    if "/" in parts.path[1:]:
        raise WrongUsage(f"bad URL {redacted(url)}: write a slash in the virtual host as %2F")
    return Target(
        host=parts.hostname,
        port=DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=vhost or "/",
        scheme=parts.scheme,
    )
