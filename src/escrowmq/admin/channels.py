"""The operation that lists channels of AMQP 0-9-1 and sessions of AMQP 1.0, with what is unsettled on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess


class ChannelAdmin:
    """The operation is in `operations`."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {"channel.list": self.list_channels}

    async def list_channels(self, peer: str | None = None) -> Listing:
        """Return the channels of every connection, or of the one from `peer`, HOST:PORT."""
        return Listing(self._pieces, self._rows(peer))

    def _rows(self, peer: str | None) -> Iterator[Row | None]:
        still_open = self._process.connections
        for connection in list(still_open):
            yield None
            if connection not in still_open or (peer is not None and connection.address != peer):
                continue
            whose = {
                "peer": connection.address,
                "local": connection.local_address,
                "user": connection.user,
                "vhost": connection.vhost,
            }
            for row in connection.channel_rows():
                yield {**whose, **row}
                if connection not in still_open:
                    break
