"""What the admin socket can do with holds: show what groups of bulk readers keep, and free what nobody will settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from escrowmq.admin.operation import Command
from escrowmq.core.broker import Broker


class ReservationAdmin:
    """The commands by name (`commands`). Raises BrokerError.

    `durably` makes a change in a turn, and waits until it is on disk.
    """

    def __init__(self, broker: Broker, durably: Callable[[Callable[[], int]], Awaitable[int]]) -> None:
        self._broker = broker
        self._durably = durably
        self.commands: Mapping[str, Command] = {"hold.list": self.list_reservations, "hold.release": self.release}

    async def list_reservations(self) -> list[dict[str, Any]]:
        """Every group that a queue remembers."""
        return [
            {
                "vhost": queue.vhost,
                "queue": queue.name,
                "group": reservation.group,
                "held": len(reservation),
                "first": reservation.first,
                "end": reservation.end,
                "settled": reservation.settled,
                "in_doubt": len(reservation.pledged),
            }
            for vhost in self._broker.vhosts.values()
            for queue in vhost.queues.values()
            for reservation in queue.reservations.values()
        ]

    async def release(self, vhost: str, queue: str, group: str) -> int:
        """What a group holds goes back to its queue; how many messages that were."""
        found = self._broker.vhost(vhost).queue(queue)
        return await self._durably(lambda: self._broker.reservations.release(found, group)[0])
