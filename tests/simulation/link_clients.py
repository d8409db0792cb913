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
    """An unsettled delivery as a client knows it. `accepted` is its state, once there is one. `posted` says that it
    belongs to the open transaction; `accepted` is then its outcome in that transaction.
    """

    serial: int
    accepted: bool = False
    posted: bool = False


@dataclass
class Control:
    """The frames of a connection's control link, which outlives the other links of the connection."""

    to_broker: deque[str] = field(default_factory=deque)
    to_client: deque[str] = field(default_factory=deque)


@dataclass
class ProducerClient:
    """Sends messages under two tags, some of them in transactions. It uses a tag again as soon as it has settled the
    delivery. `rejected` are messages of transactions that were rolled back: they are sent again.
    """

    unsettled: dict[bytes, Known] = field(default_factory=dict)
    wire: Wire | None = None
    ready: bool = False  # the attach was answered
    control: Control | None = None  # of the connection
    transaction: str = ""  # open, or discharged and not answered yet
    rejected: deque[int] = field(default_factory=deque)

    def send(self, serial: int, which: int) -> bool:
        """Send a message, if a tag is free. Return whether it is a new one."""
        free = [tag for tag in TAGS if tag not in self.unsettled]
        if self.wire is None or not self.ready or not free or self.transaction == "discharged":
            return False
        again = bool(self.rejected)
        tag, serial = free[which % len(free)], self.rejected.popleft() if again else serial
        self.unsettled[tag] = Known(serial, posted=bool(self.transaction))
        self.wire.to_broker.append(("post" if self.transaction else "transfer", tag, serial))
        return not again

    # -- transactions

    def declare(self) -> None:
        """Begin a transaction."""
        if self.control is not None and not self.transaction:
            self.transaction = "open"

    def discharge(self, *, commit: bool) -> None:
        """End the transaction. It is committed only if the outcome of each post is known."""
        posts = [delivery for delivery in self.unsettled.values() if delivery.posted]
        if self.control is None or self.transaction != "open" or (commit and not all(each.accepted for each in posts)):
            return
        self.transaction = "discharged"
        self.control.to_broker.append("commit" if commit else "rollback")

    def hear_control(self) -> None:
        """Receive the answer to a discharge."""
        if self.control is None or not self.control.to_client:
            return
        committed = self.control.to_client.popleft() == "committed"
        for tag, delivery in list(self.unsettled.items()):
            if delivery.posted and committed:
                delivery.posted = False
            elif delivery.posted:
                del self.unsettled[tag]
                self.rejected.append(delivery.serial)
                if self.wire is not None and self.ready:
                    self.wire.to_broker.append(("settle", tag, 0))
        self.transaction = ""

    def connection_lost(self) -> None:
        """Note that the connection is over, and its transaction with it. A commit may have been carried out, so the
        posts have no state until the link has resumed.
        """
        self.control = None
        self.transaction = ""
        for delivery in self.unsettled.values():
            if delivery.posted:
                delivery.posted = delivery.accepted = False

    # -- the link

    def settle(self, which: int) -> None:
        """Settle a delivery whose outcome is known."""
        known = [tag for tag, delivery in self.unsettled.items() if delivery.accepted and not delivery.posted]
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
        for tag in found:
            if tag not in self.unsettled:  # settled while the attach was on its way
                self.wire.to_broker.append(("settle", tag, 0))
        for tag, delivery in list(self.unsettled.items()):
            if delivery.posted:
                if self.transaction == "discharged":
                    continue  # the answer decides
                if tag not in found:
                    self.wire.to_broker.append(("post", tag, delivery.serial))
                elif not found[tag]:
                    self.wire.to_broker.append(("post again", tag, delivery.serial))
            elif delivery.accepted or found.get(tag):  # rows 3, 10 and 12
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
