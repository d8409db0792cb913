"""Channels for lists: their mode, their limits, and what waits on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.channel import Channel
    from escrowmq.wire.amqp091.connection import Connection


def channel_rows(connection: Connection) -> Iterator[dict[str, object]]:
    """Yield an entry for each channel that is open. Channels may be closed while the entries are made."""
    for channel in list(connection.channels.values()):
        if connection.channels.get(channel.number) is channel:
            yield channel_row(channel)


def channel_row(channel: Channel) -> dict[str, object]:
    """Return the entry of a channel. `age_ms` is that of the oldest unsettled delivery, to about a second, or None.
    `uncommitted` counts the publishes and settlements of the open transaction.
    """
    branch = channel.branch
    return {
        "number": channel.number,
        "state": "closing" if channel.closing else "running" if channel.flow else "flow",
        "confirms": channel.confirming,
        "transactional": branch is not None,
        "consumers": len(channel.consumers),
        "prefetch": channel.prefetch,
        "global_prefetch": channel.window.limit,
        "unsettled": channel.unsettled.count,
        "age_ms": channel.ages.age_ms(channel.broker.engine.now, channel.unsettled),
        "uncommitted": 0 if branch is None else branch.operations,
    }
