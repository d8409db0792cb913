"""Clients of exactly-once links, for the simulated world: what they remember, and what they do at each step.

Their memory survives their connections. They share no code with the broker: the rows of the resume table that matter to
them are written out here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

Frame = tuple[str, bytes, int]
"""A verb, a delivery tag, and the serial number of a message (0: none)."""
TAGS = (b"0", b"1")
"""The tags that a producer uses again and again."""


@dataclass
class Wire:
    """Frames on their way in both directions. A new connection has new ones."""

    to_broker: deque[Frame] = field(default_factory=deque)
    to_client: deque[Frame] = field(default_factory=deque)


@dataclass
class Known:
    """An unsettled delivery as a client knows it. `accepted` is its state, once there is one."""

    serial: int
    accepted: bool = False


@dataclass
class ProducerClient:
    """Sends messages under two tags. It uses a tag again as soon as it has settled the delivery."""

    unsettled: dict[bytes, Known] = field(default_factory=dict)
    wire: Wire | None = None
    ready: bool = False  # the attach was answered

    def send(self, serial: int, which: int) -> bool:
        """Send a message, if a tag is free."""
        free = [tag for tag in TAGS if tag not in self.unsettled]
        if self.wire is None or not self.ready or not free:
            return False
        tag = free[which % len(free)]
        self.unsettled[tag] = Known(serial)
        self.wire.to_broker.append(("transfer", tag, serial))
        return True

    def settle(self, which: int) -> None:
        """Settle a delivery whose outcome is known."""
        known = [tag for tag, delivery in self.unsettled.items() if delivery.accepted]
        if known and self.wire is not None and self.ready:
            tag = known[which % len(known)]
            del self.unsettled[tag]
            self.wire.to_broker.append(("settle", tag, 0))

    def hear(self) -> None:
        """Receive a frame."""
        if self.wire is None or not self.wire.to_client:
            return
        verb, tag, _ = self.wire.to_client.popleft()
        assert verb == "accepted", verb
        if tag in self.unsettled:
            self.unsettled[tag].accepted = True

    def resume(self, found: dict[bytes, bool]) -> None:
        """Continue after the answer to an attach. `found` says of the broker's tags whether they have an outcome."""
        assert self.wire is not None
        self.ready = True
        for tag, delivery in list(self.unsettled.items()):
            if delivery.accepted or found.get(tag):  # rows 3, 10 and 12
                del self.unsettled[tag]
                if tag in found:
                    self.wire.to_broker.append(("settle", tag, 0))
            elif tag in found:  # row 4
                self.wire.to_broker.append(("resume", tag, delivery.serial))
            else:  # row 1
                self.wire.to_broker.append(("transfer", tag, delivery.serial))


@dataclass
class ConsumerClient:
    """Processes each delivery once, together with its entry in `unsettled`, as a client with a database does."""

    unsettled: dict[bytes, Known] = field(default_factory=dict)
    processed: list[int] = field(default_factory=list)
    wire: Wire | None = None

    def hear(self) -> None:
        """Receive a frame."""
        if self.wire is None or not self.wire.to_client:
            return
        verb, tag, serial = self.wire.to_client.popleft()
        if verb == "transfer":
            self.unsettled.setdefault(tag, Known(serial))
        else:
            assert verb == "settled", verb
            self.unsettled.pop(tag, None)

    def process(self, which: int) -> None:
        """Process a delivery, and tell the broker."""
        waiting = [tag for tag, delivery in self.unsettled.items() if not delivery.accepted]
        if waiting and self.wire is not None:
            tag = waiting[which % len(waiting)]
            delivery = self.unsettled[tag]
            delivery.accepted = True
            self.processed.append(delivery.serial)
            self.wire.to_broker.append(("accept", tag, 0))

    def resume(self, found: set[bytes]) -> None:
        """Continue after the answer to an attach, which names the broker's tags. All others are settled."""
        self.unsettled = {tag: delivery for tag, delivery in self.unsettled.items() if tag in found}
