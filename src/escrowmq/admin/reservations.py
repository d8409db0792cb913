"""Operations on reservations of bulk readers: list them, and release those that no reader will settle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess


class ReservationAdmin:
    """The operations by name are in `operations`. Raises BrokerError for an unknown virtual host, queue or group."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {"hold.list": self.list_reservations, "hold.release": self.release}

    async def list_reservations(self) -> Listing:
        """Return every group that a queue remembers, also those that hold nothing at present. `age` is how long the
        first message has been held, in seconds; the broker's start counts if it was held before.
        """
        return Listing(self._pieces, self._rows())

    async def release(self, vhost: str, queue: str, group: str) -> int:
        """Requeue the messages that a group holds, and return their number."""
        found = self._broker.directory.vhost(vhost).queue(queue)
        return await self._process.durably(lambda: self._broker.reservations.release(found, group)[0])

    def _rows(self) -> Iterator[Row | None]:
        for queue in [queue for vhost in self._broker.directory.vhosts.values() for queue in vhost.queues.values()]:
            yield None
            now = self._broker.engine.now
            for reservation in list(queue.reservations.values()):
                yield {
                    "vhost": queue.vhost,
                    "queue": queue.name,
                    "group": reservation.group,
                    "held": len(reservation),
                    "first": reservation.first,
                    "end": reservation.end,
                    "settled": reservation.settled,
                    "in_doubt": len(reservation.pledged),
                    "age": None if reservation.since_ms is None else max(now - reservation.since_ms, 0) // 1000,
                }
