"""The messages of a load: a protocol-neutral description that a seed determines. The protocols encode them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

STAMP_SIZE = 8
_SEED = 1
_FIRST_TIMESTAMP = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Variety:
    """The ways in which the messages of a load differ from each other, besides the content of their bodies."""

    spread: int = 0
    """Body sizes are spread evenly over this many bytes on either side of the load's body size."""
    message_ids: bool = False
    """Each message has a unique message-id of 36 characters."""
    correlation_ids: bool = False
    """Each message has a unique correlation-id of 36 characters."""
    timestamps: bool = False
    """Each message has a timestamp; it advances by one second every 1,000 messages."""
    headers: bool = False
    """Each message has a header table of three entries, of which two differ from message to message."""
    priorities: int = 0
    """Each message has a random priority below this; 0: none has one."""

    @property
    def uniform(self) -> bool:
        """Whether all messages are alike except for the content of their bodies, the best case of many brokers."""
        return self == Variety()


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """One message of a load. A property that is None is left out."""

    body: bytes
    message_id: str | None = None
    correlation_id: str | None = None
    timestamp: int | None = None
    headers: dict[str, int | str] | None = None
    priority: int | None = None


def messages(variety: Variety, body_size: int, count: int, seed: int = _SEED) -> Iterator[LoadMessage]:
    """`count` messages with bodies of about `body_size` bytes. The same arguments give the same messages.

    The first eight bytes of each body (or all, if there are fewer) are zero: they may be set to a time.
    """
    random = Random(seed)  # noqa: S311 (not for secrets)
    for number in range(count):
        size = random.randint(body_size - variety.spread, body_size + variety.spread) if variety.spread else body_size
        yield LoadMessage(
            body=bytes(min(STAMP_SIZE, size)) + random.randbytes(max(size - STAMP_SIZE, 0)),
            message_id=_uuid(random) if variety.message_ids else None,
            correlation_id=_uuid(random) if variety.correlation_ids else None,
            timestamp=_FIRST_TIMESTAMP + number // 1000 if variety.timestamps else None,
            headers=_headers(random, number) if variety.headers else None,
            priority=random.randrange(variety.priorities) if variety.priorities else None,
        )


def _uuid(random: Random) -> str:
    digits = random.randbytes(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _headers(random: Random, number: int) -> dict[str, int | str]:
    """Return a trace context as W3C defines it, a sequence number, and the name of the sending service."""
    trace = random.randbytes(24).hex()
    return {"traceparent": f"00-{trace[:32]}-{trace[32:]}-01", "sequence": number, "service": "orders"}
