"""The events that `Endpoint.receive` returns: changes that concern more than one delivery.

Changes of single deliveries are in the deliveries themselves, and the events of their links announce them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer has opened the connection."""

    container_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended, with an error unless the client closed it."""

    error: Exception | None


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """The peer has begun a session."""

    session: Any


@dataclass(frozen=True, slots=True)
class SessionGone:
    """A session has ended, with an error unless the client ended it."""

    session: Any
    error: Exception | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """A link is attached; `resumed` says whether the peer still had unsettled deliveries of it."""

    link: Any
    resumed: bool


@dataclass(frozen=True, slots=True)
class LinkGone:
    """A link is detached, with an error unless the client detached it."""

    link: Any
    error: Exception | None


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer has sent a flow for a link: more or less credit, or the answer to a drain."""

    link: Any


@dataclass(frozen=True, slots=True)
class Arrived:
    """Complete messages have arrived on a receiving link."""

    link: Any


@dataclass(frozen=True, slots=True)
class StatesChanged:
    """The peer has sent dispositions for deliveries of a session."""

    session: Any


Event = Opened | Ended | SessionBegun | SessionGone | LinkAttached | LinkGone | CreditChanged | Arrived | StatesChanged
