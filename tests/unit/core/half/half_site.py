"""A site with a transactional topic, and producers that record the checks which they get."""

from __future__ import annotations

from typing import Any

from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.registry import HalfMessages
from escrowmq.core.half.state import HalfState
from escrowmq.core.half.storing import Stored
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Site

TOPIC, GROUP, USER = "orders", "shop", "ann"
TIMEOUT_MS, INTERVAL_MS, CHECKS = 6_000, 30_000, 15


class AskedProducer:
    """A producer that takes checks while it is writable."""

    def __init__(self, label: str = "", user: str = USER) -> None:
        self.label = label
        self.user = user
        self.writable = True
        self.asked: list[tuple[str, int, bytes]] = []
        """The checks: message id, number of the check, content."""

    def check(self, half: HalfMessage) -> bool:
        if self.writable:
            self.asked.append((half.message_id, half.checks, half.content))
        return self.writable


class HalfSite(Site):
    """A broker with the queue `q`, to which all half messages go."""

    @property
    def half(self) -> HalfMessages:
        return self.broker.half

    @property
    def target(self) -> Queue:
        return self.vhost.queues.get("q") or self.queue("q")

    def store(self, ident: str, content: bytes = b"", **options: Any) -> Stored:
        queue = options.pop("queue", None) or self.target
        options = {"group": GROUP, "user": USER, **options}
        return self.half.store("/", TOPIC, ident, Envelope("", "q", durable=True), content, queue, **options)

    def commit(self, ident: str) -> int:
        return self.half.commit("/", self.named(ident).number)

    def roll_back(self, ident: str) -> int:
        return self.half.roll_back("/", self.named(ident).number)

    def named(self, ident: str) -> HalfMessage:
        found = self.half.named("/", TOPIC, ident)
        assert found is not None
        return found

    def state(self, ident: str) -> HalfState:
        return self.named(ident).state

    def join(self, producer: AskedProducer | None = None) -> AskedProducer:
        producer = producer or AskedProducer()
        self.half.producers.join("/", GROUP, producer)
        return producer

    def after(self, ms: int) -> None:
        """End a turn `ms` milliseconds later. Everything before is on disk by then."""
        self.sync()
        super().after(ms)

    def again(self) -> HalfSite:
        """Return the site that is restored from the synced data."""
        return HalfSite(self.storage, now=self.now)
