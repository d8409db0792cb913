"""Blocks for `escrow.publish`, from messages."""

from __future__ import annotations

from array import array
from itertools import accumulate

from escrowmq.wire.amqp091.blocks import build
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack

Sent = tuple[str, bytes, bytes]
"""Routing key, property list and body."""


def block_of(*sent: Sent, keyed: bool = True, layouts: list[list[int]] | None = None) -> bytes:
    """Return a block of messages. `layouts` has the numbers of the messages of each layout; by default, messages with
    equal property lists and routing keys share one.
    """
    contents = [join(key.encode(), pack(props, body)) if keyed else pack(props, body) for key, props, body in sent]
    if layouts is None:
        found: dict[tuple[str, bytes], list[int]] = {}
        for i, (key, props, _) in enumerate(sent):
            found.setdefault((key if keyed else "", props), []).append(i)
        layouts = list(found.values())
    order = [row for rows in layouts for row in rows]
    return build(
        KEYED if keyed else PACKED,
        octets(accumulate(map(len, contents), initial=0)),
        octets(accumulate(map(len, layouts))),
        octets(order),
        b"".join(contents),
    )


def octets(numbers: object) -> bytes:
    """Return numbers as a column of a block."""
    return array("I", numbers).tobytes()  # type: ignore[call-overload, no-any-return]
