"""The knowledge of a kill test's clients: sent, answered, in doubt. It uses none of the broker's code."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Transaction:
    """A transaction that publishes to several queues: the messages for each of them."""

    number: int
    parts: dict[str, list[bytes]]


@dataclass
class Ledger:
    """Filled by the clients of one round. The `check_*` methods raise AssertionError for a violated guarantee."""

    confirmed: set[int] = field(default_factory=set)
    sent: int = 0
    committed: dict[int, Transaction] = field(default_factory=dict)
    doubtful: dict[int, Transaction] = field(default_factory=dict)
    fed: set[bytes] = field(default_factory=set)
    moved: set[bytes] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    """Acknowledged messages of which the client knows that they are gone."""
    together: list[frozenset[bytes]] = field(default_factory=list)
    """Messages that one transaction moves."""

    def check_confirmed(self, found: list[int]) -> None:
        """DUR-1, ORD-1: every confirmed message is present once and in order, and no message that was never sent."""
        _check_order(found)
        missing = self.confirmed - set(found)
        assert not missing, f"{len(missing)} confirmed messages are lost; the first is {min(missing)}"
        assert not found or found[-1] < self.sent, f"message {found[-1]} was never sent"

    def check_transactions(self, found: dict[str, list[bytes]]) -> None:
        """TX-5, TX-8, ORD-4: committed transactions are complete, those in doubt complete or absent.

        There are no others, and the messages of a transaction are contiguous.
        """
        numbers: dict[str, list[int]] = {}
        for queue, bodies in found.items():
            at = 0
            numbers[queue] = []
            while at < len(bodies):
                number = int(bodies[at].split(b":")[0])
                transaction = self.committed.get(number) or self.doubtful.get(number)
                assert transaction is not None, (
                    f"{queue}: transaction {number} is there, but its commit was never requested"
                )
                wanted = transaction.parts.get(queue, [])
                got = bodies[at : at + len(wanted)]
                assert got == wanted, f"{queue}: transaction {number} is not contiguous: {got} instead of {wanted}"
                numbers[queue].append(number)
                at += len(wanted)
            _check_order(numbers[queue])
        for number, transaction in (self.committed | self.doubtful).items():
            where = {queue for queue in found if number in set(numbers[queue])}
            whole = {queue for queue, bodies in transaction.parts.items() if bodies}
            assert where in (whole, set()), f"transaction {number} is only in {where} of {whole}"
            if number in self.committed:
                assert where == whole, f"transaction {number} was committed, but is lost"

    def check_moves(self, work: list[bytes], done: list[bytes]) -> None:
        """TX-5, TX-8: every message that was moved in a transaction is in exactly one place."""
        assert len(set(work)) == len(work), "a message is twice in the source queue"
        assert len(set(done)) == len(done), "a message is twice in the target queue"
        both = set(work) & set(done)
        assert not both, f"{len(both)} messages are in both queues; one is {min(both)!r}"
        lost = self.fed - set(work) - set(done)
        assert not lost, f"{len(lost)} messages are in neither queue; one is {min(lost)!r}"
        assert not (set(work) | set(done)) - self.fed, "there is a message that was never published"
        back = self.moved & set(work)
        assert not back, f"{len(back)} messages came back although their consumption was committed"
        for bodies in self.together:
            assert bodies <= set(done) or not bodies & set(done), f"only some of {sorted(bodies)} were moved"

    def check_kept(self, found: list[int]) -> None:
        """DUR-1, ORD-5: every message that was confirmed and never acknowledged is present once and in order, and none
        that was removed.
        """
        _check_order(found)
        lost = self.kept - self.acked - set(found)
        assert not lost, f"{len(lost)} messages that were never acknowledged are lost"
        back = self.removed & set(found)
        assert not back, f"{len(back)} messages came back although their acceptance was complete; one is {min(back)}"


def _check_order(numbers: list[int]) -> None:
    for before, after in pairwise(numbers):
        assert before < after, f"{after} comes after {before}: {'twice' if before == after else 'out of order'}"


def make_transaction(number: int, queues: tuple[str, ...], rng: random.Random) -> Transaction:
    """Make a transaction that publishes a few messages to each of `queues`, at least one in total."""
    parts = {queue: [b"%d:%d" % (number, i) for i in range(rng.randrange(6))] for queue in queues}
    if not any(parts.values()):
        parts[queues[0]] = [b"%d:0" % number]
    return Transaction(number, parts)
