"""The properties of a load's messages, as RocketMQ's clients write them, and the ids that make each send different."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from escrowmq.perf.amqp091.encoding import messages_of
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.workload import Workload

TAG: Final = "perf"
DIGITS: Final = 10
"""The decimal digits at the end of a message's id. They are written when the message is sent."""
FIRST_NUMBER: Final = 1_000_000_000
"""The number of a connection's first send. It has as many digits as the later ones, up to 32 bits."""


def load_messages(workload: Workload, publisher: int) -> list[LoadMessage]:
    """Return the distinct messages of a publisher. Each has a key of its own."""
    count = max(workload.batch, 1)
    made = messages_of(replace(workload, ids=True), 1, publisher)
    return made[: len(made) - len(made) % count] or (made * count)[:count]


def id_prefix(length: int) -> str:
    """Return the hexadecimal digits with which all ids of one connection begin: `length` with the decimal ones."""
    return secrets.token_hex(length)[: length - DIGITS].upper()


def numbered(prefix: str, number: int) -> str:
    """Return the id of a send."""
    return f"{prefix}{number:0{DIGITS}d}"


def user_properties(message: LoadMessage) -> dict[str, str]:
    """Return the properties of the application."""
    found = {name: str(value) for name, value in (message.headers or {}).items()}
    if message.correlation_id:
        found["correlation-id"] = message.correlation_id
    return found


def rendered(pairs: Iterable[tuple[str, str]]) -> str:
    """Return properties in the text form of classic remoting."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def parsed(text: str) -> dict[str, str]:
    """Return the properties in such a text."""
    pairs = (each.partition("\x01") for each in text.split("\x02") if each)
    return {name: value for name, _, value in pairs}
