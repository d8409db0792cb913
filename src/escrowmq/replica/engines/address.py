"""The URL of a replicated log: `kafka://host:9092,host:9092/topic`, `nats://host:4222,host:4222/stream`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote

from escrowmq.urls import redacted

KAFKA, NATS, NATS_TLS = "kafka", "nats", "nats+tls"
DEFAULT_PORTS: Final[Mapping[str, int]] = MappingProxyType({KAFKA: 9092, NATS: 4222, NATS_TLS: 4222})
OPTIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        KAFKA: frozenset({"replicas", "flush"}),
        NATS: frozenset({"replicas", "credentials"}),
        NATS_TLS: frozenset({"replicas", "credentials", "cacertfile", "certfile", "keyfile", "verify"}),
    }
)
"""The parameters of each kind of URL. Those of Kafka's client are permitted as well, see `CLIENT_OPTIONS`."""
CLIENT_OPTIONS: Final = ("security.", "sasl.", "ssl.")
"""The starts of the names of parameters that Kafka's client gets as they are."""
REPLICAS: Final = 3
_PARTS: Final = re.compile(r"([a-z+]+)://(?:([^/?#]*)@)?([^/?#@]+)/([^/?#]+)(?:\?([^#]*))?")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")
_FLUSH: Final = re.compile(r"[1-9][0-9]{0,17}")
_NAMES: Final = MappingProxyType(
    {
        KAFKA: re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}"),
        NATS: re.compile(r"[A-Za-z0-9_-]{1,200}"),
        NATS_TLS: re.compile(r"[A-Za-z0-9_-]{1,200}"),
    }
)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where a log is, and what it must be like."""

    scheme: str
    hosts: tuple[str, ...]
    """Each with its port."""
    name: str
    """Of the topic or stream."""
    user: str | None
    password: str | None
    options: Mapping[str, str]
    replicas: int
    """The engine's nodes that must have a copy each."""

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(self.hosts)}/{self.name}"

    def __repr__(self) -> str:
        return f"<EngineAddress {self}>"

    @property
    def subject(self) -> str:
        """The subject of a stream of NATS."""
        return f"escrowmq.{self.name}"

    @property
    def too_few(self) -> str:
        """What to add to the engine's word that it has too few nodes."""
        return f"; an engine of fewer than {self.replicas} nodes needs another number in the URL, such as ?replicas=1"

    @property
    def quorum(self) -> int:
        """The copies that an acknowledged entry has."""
        return self.replicas // 2 + 1

    @classmethod
    def parse(cls, url: str) -> EngineAddress:
        """Read a URL. Raises ValueError with one line that does not contain a password."""
        shown = redacted(url)
        parts = _PARTS.fullmatch(url)
        if parts is None:
            raise ValueError(f"bad URL {shown}: expected kafka://HOST:PORT,…/TOPIC or nats://HOST:PORT,…/STREAM")
        scheme, login, hosts, name, query = parts.groups()
        if scheme not in DEFAULT_PORTS:
            raise ValueError(f"bad URL {shown}: no engine is called {scheme!r}; there are {', '.join(DEFAULT_PORTS)}")
        if not _NAMES[scheme].fullmatch(name):
            raise ValueError(f"bad URL {shown}: {name!r} is no name of a topic or stream: use letters, digits, - and _")
        options = dict(parse_qsl(query or "", keep_blank_values=True))
        for option in options:
            if option not in OPTIONS[scheme] and not (scheme == KAFKA and option.startswith(CLIENT_OPTIONS)):
                known = ", ".join(sorted(OPTIONS[scheme]))
                raise ValueError(f"bad URL {shown}: there is no parameter {option!r}; there are {known}")
        if not _FLUSH.fullmatch(options.get("flush", "1")):
            raise ValueError(f"bad URL {shown}: flush must be a number of entries from 1 on, not {options['flush']!r}")
        user, _, password = (login or "").partition(":")
        return cls(
            scheme,
            tuple(_with_port(host, DEFAULT_PORTS[scheme], shown) for host in hosts.split(",")),
            name,
            unquote(user) or None,
            unquote(password) or None,
            MappingProxyType(options),
            _replicas(options.get("replicas", str(REPLICAS)), shown),
        )


def _with_port(host: str, default: int, shown: str) -> str:
    found = _HOST.fullmatch(host)
    if found is None or int(found[2] or default) > 65535:
        raise ValueError(f"bad URL {shown}: {host!r} is not a host with a port")
    return f"{found[1]}:{found[2] or default}"


def _replicas(text: str, shown: str) -> int:
    if text not in ("1", "3", "5"):
        raise ValueError(f"bad URL {shown}: replicas must be 1, 3 or 5, not {text!r}")
    return int(text)
