"""Links for tests of termini: they borrow a terminus, and receive its deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.core.branches.branch import TransactionBranch
from escrowmq.core.broker import Broker
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Credit, Replenishment
from escrowmq.core.queues.queue import Queue
from escrowmq.core.termini.loan import Loan
from escrowmq.core.termini.terminus import (
    Durability,
    ExpiryPolicy,
    LinkRole,
    Terminus,
    TerminusInput,
    TerminusKey,
    TerminusSettings,
)
from tests.unit.core.site import Site


class Account:
    """A transaction of a client, with its branch."""

    accepted = b"accepted"

    def __init__(self, branch: TransactionBranch) -> None:
        self.branch = branch
        self.reasons: list[str] = []

    def give_up(self, text: str) -> None:
        self.reasons.append(text)


KEPT = TerminusSettings(Durability.UNSETTLED_STATE, ExpiryPolicy.NEVER, second=True)
"""Settings with which the unsettled deliveries survive a restart."""
BRIEF = TerminusSettings(policy=ExpiryPolicy.NEVER, second=True)
"""Settings with which they survive until a restart."""


def outgoing(link: str = "l", container: str = "c", vhost: str = "/") -> TerminusKey:
    return TerminusKey(vhost, container, link, LinkRole.OUTGOING)


def incoming(link: str = "l", container: str = "c", vhost: str = "/") -> TerminusKey:
    return TerminusKey(vhost, container, link, LinkRole.INCOMING)


class TestedLink:
    """A link with a loan. It receives deliveries like a session that keeps their numbers."""

    __test__ = False

    def __init__(
        self,
        site: Site | Broker,
        key: TerminusKey,
        settings: TerminusSettings = KEPT,
        how: TerminusInput = TerminusInput.ESTABLISH,
        *,
        user: str = "u",
    ) -> None:
        broker = site if isinstance(site, Broker) else site.broker
        self._site = site
        self.writable = True
        self.events: list[str] = []
        self.got: list[tuple[int, Entry, int]] = []
        """Number, entry, LSN for which the transfer waits."""
        self.loan: Loan = broker.termini.attach(key, settings, self, how, user=user)

    @property
    def site(self) -> Site:
        assert isinstance(self._site, Site)
        return self._site

    @property
    def terminus(self) -> Terminus:
        return self.loan.terminus

    # -- as a borrower

    def stolen(self) -> None:
        self.events.append("stolen")

    def relieved(self, text: str, *, closed: bool) -> None:
        if closed:
            self.loan.close()
        else:
            self.loan.detach()

    def deleted(self) -> None:
        self.events.append("deleted")

    # -- as a receiver

    def consume(self, queue: Queue, credit: int = UNLIMITED) -> Consumer:
        return self.loan.subscribe(queue, self, credit=Credit(credit, Replenishment.RECEIVER))

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        first, lsn = self.loan.acquire(consumer, entries)
        self.got += [(number, entry, lsn) for number, entry in enumerate(entries, first)]

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        for consumer, entries in deliveries:
            self.deliver(consumer, entries)

    @property
    def origin(self) -> ReceiverOrigin:
        return ReceiverOrigin("127.0.0.1:1", 1, "guest")

    def stalled(self, consumer: Consumer) -> None: ...

    def drained(self, consumer: Consumer, unused: int) -> None: ...

    def cancelled(self, consumer: Consumer) -> None:
        self.events.append("cancelled")

    @property
    def contents(self) -> list[bytes]:
        return [entry.content for _, entry, _ in self.got]

    # -- as a producer's link

    def post(
        self, tags: Sequence[bytes], contents: Sequence[bytes], key: str = "q", *, durable: bool = True
    ) -> Receipt:
        envelope = Envelope("", key, durable=durable)
        queues = self.site.broker.engine.route(self.site.vhost, envelope)
        return self.loan.post(envelope, list(contents), queues, tags)

    def resumed(self, tag: bytes, content: bytes, key: str = "q") -> object:
        envelope = Envelope("", key, durable=True)
        return self.loan.resumed(tag, envelope, content, self.site.broker.engine.route(self.site.vhost, envelope))


def consuming(site: Site, *contents: bytes, settings: TerminusSettings = KEPT, credit: int = UNLIMITED) -> TestedLink:
    """Publish messages to queue `q`, and deliver them over a link."""
    queue = site.vhost.queues.get("q") or site.queue()
    if contents:
        site.publish("q", *contents)
    link = TestedLink(site, outgoing(), settings)
    link.consume(queue, credit)
    site.turn()
    return link


def attached_again(site: Site, link: TestedLink | TerminusKey, how: TerminusInput = TerminusInput.RESUME) -> TestedLink:
    """Attach a link of the same name, with settings that keep its deliveries."""
    return TestedLink(site, link if isinstance(link, TerminusKey) else link.terminus.key, KEPT, how)
