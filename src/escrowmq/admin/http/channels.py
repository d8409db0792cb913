"""Channels in RabbitMQ's management API. A session of AMQP 1.0 counts as a channel.

A user sees its own channels. With the tag monitoring or administrator, it sees all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.http import shapes
from escrowmq.admin.http.management import MONITORS, READ_ROUTES, Reading, ReadRoute


async def _shaped(reading: Reading, peer: str | None = None) -> list[dict[str, Any]]:
    rows, node = await reading.ask("channel.list", peer=peer), await reading.node()
    everything = bool(MONITORS & set(reading.operator.tags))
    return [shapes.channel(row, node) for row in rows if everything or row["user"] == reading.operator.user]


async def _channels(reading: Reading) -> Any:
    return reading.listed(await _shaped(reading))


async def _channel(reading: Reading) -> Any:
    """Answer with a channel and its consumers. The name ends with the channel's number in parentheses."""
    name = reading.names["name"]
    peer = name.rpartition(" (")[0]
    found = reading.one(await _shaped(reading, peer), name=name)
    rows, node = await reading.ask("consumer.list"), await reading.node()
    consumers = [shapes.consumer(row, node) for row in rows if row["peer"] == peer]
    return found | {"consumer_details": [each for each in consumers if each["channel_details"]["name"] == name]}


async def _connection_channels(reading: Reading) -> Any:
    await READ_ROUTES["connections/{name}"].answer(reading)  # which a user may not see who may not see its channels
    return reading.listed(await _shaped(reading, reading.names["name"]))


async def _vhost_channels(reading: Reading) -> Any:
    await reading.check_vhost(await reading.visible())
    return reading.listed([row for row in await _shaped(reading) if row["vhost"] == reading.vhost])


CHANNEL_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "channels": ReadRoute(_channels),
    "channels/{name}": ReadRoute(_channel),
    "connections/{name}/channels": ReadRoute(_connection_channels),
    "vhosts/{vhost}/channels": ReadRoute(_vhost_channels),
}
"""By path below `/api/`."""
