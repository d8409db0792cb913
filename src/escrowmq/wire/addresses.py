"""Percent-encoded addresses as RabbitMQ 4 writes them: `/queues/NAME` and `/exchanges/NAME/KEY`."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

_QUEUES: Final = "/queues/"
_EXCHANGES: Final = "/exchanges/"


def queue_address(name: str) -> str:
    """Return the address of the queue `name`."""
    return _QUEUES + _encoded(name)


def exchange_address(name: str, routing_key: str = "") -> str:
    """Return the address of the exchange `name`, with a routing key unless that is empty."""
    return "/".join(["/exchanges", _encoded(name), *([_encoded(routing_key)] if routing_key else [])])


def _encoded(name: str) -> str:
    return quote(name, safe="", errors="replace")


def queue_of(address: str) -> str:
    """Return the name of the queue that `address` names; an address of another kind is returned as it is."""
    return unquote(address[len(_QUEUES) :]) if address.startswith(_QUEUES) else address


def parts_of_address(address: str) -> tuple[str, str]:
    """Return the exchange and the routing key that `address` names. An address of another kind is the name of a queue,
    and a queue is reached through the default exchange.
    """
    if not address.startswith(_EXCHANGES):
        return "", queue_of(address)
    exchange, _, key = address[len(_EXCHANGES) :].partition("/")
    return unquote(exchange), unquote(key)
