"""The address of the broker: `amqp://user:password@host:port/vhost`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from escrowmq.perf.errors import WrongUsage
from escrowmq.urls import redacted, split

DEFAULT_PORT = 5672


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address and the credentials for it."""

    host: str
    port: int
    user: str
    password: str
    vhost: str

    @property
    def address(self) -> str:
        """Host and port for messages to the user; never the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Read an AMQP URL. Missing parts default to user guest, password guest, port 5672 and the virtual host `/`.

    Raises WrongUsage, which names the wrong part.
    """
    try:
        parts = split(url)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if parts.scheme != "amqp":
        raise WrongUsage(f"bad URL {redacted(url)}: the scheme must be amqp, not {parts.scheme!r}")
    if not parts.hostname:
        raise WrongUsage(f"bad URL {redacted(url)}: no host")
    if parts.query or parts.fragment:
        raise WrongUsage(f"bad URL {redacted(url)}: a query or fragment is not supported")
    vhost = unquote(parts.path[1:])
    if "/" in parts.path[1:]:
        raise WrongUsage(f"bad URL {redacted(url)}: write a slash in the virtual host as %2F")
    return Target(
        host=parts.hostname,
        port=DEFAULT_PORT if parts.port is None else parts.port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=vhost or "/",
    )
