"""The address of a queue in messages that cross protocols: RabbitMQ 4's `/queues/NAME`, with NAME percent-encoded."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

_QUEUES: Final = "/queues/"


def queue_address(name: str) -> str:
    """Return the address of the queue `name`."""
    return _QUEUES + quote(name, safe="")


def queue_of(address: str) -> str:
    """Return the name of the queue that `address` names; an address of another kind is returned as it is."""
    return unquote(address[len(_QUEUES) :]) if address.startswith(_QUEUES) else address
