"""The list of channels, in pieces."""

from __future__ import annotations

import asyncio

from escrowmq.admin.channels import ChannelAdmin
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def admin(count: int) -> tuple[ChannelAdmin, FakeProcess]:
    """Return the operations of a process with that many connections of two channels each."""
    process = FakeProcess(pair()[0])
    process.connections = dict.fromkeys(FakeConnection(f"10.0.0.1:{1000 + number}") for number in range(count))
    return ChannelAdmin(process, CountingPieces(10)), process


def test_the_channels_of_all_connections_or_of_one_are_listed_with_their_connection() -> None:
    operations = admin(3)[0].operations
    rows = perform(operations, "channel.list")
    assert [(row["peer"], row["number"]) for row in rows[:3]] == [
        ("10.0.0.1:1000", 1),
        ("10.0.0.1:1000", 2),
        ("10.0.0.1:1001", 1),
    ]
    assert (rows[0]["user"], rows[0]["vhost"], rows[0]["local"]) == ("guest", "/", "[::1]:5672")
    assert {row["peer"] for row in perform(operations, "channel.list", peer="10.0.0.1:1002")} == {"10.0.0.1:1002"}
    assert perform(operations, "channel.list", peer="10.0.0.1:1") == []


def test_channels_of_connections_that_close_meanwhile_are_left_out() -> None:
    channels, process = admin(20)

    async def pieces() -> list[int]:
        found = []
        async for piece in (await channels.list_channels()).pieces():
            found.append(len(piece))
            process.connections.clear()
        return found

    found = asyncio.run(pieces())
    assert found[0] == 6  # of four connections: each takes a step of its own, and one for each channel
    assert sum(found[1:]) <= 1
