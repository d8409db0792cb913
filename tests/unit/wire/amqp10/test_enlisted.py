"""The undo of deliveries that a client has settled in a transaction."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest

from escrowmq.core.queues.outcome import Disposition as Settlement
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Detach, Disposition
from escrowmq.wire.amqp10.codec.states import Accepted, Modified, Outcome, Rejected, Released, TransactionalState
from escrowmq.wire.amqp10.enlisted import Enlisted, Retirements, RetirementUndo
from escrowmq.wire.amqp10.outgoing import ConsumerLink
from tests.unit.wire.amqp10.controller import CONTROL, Controller, Q, consuming


@pytest.mark.rule("SET-7")
@pytest.mark.parametrize(
    ("default", "left", "failures"),
    [
        (None, [b"0"], []),
        (Accepted(), [], []),
        (Rejected(), [], []),
        (Released(), [b"0"], [0]),
        (Modified(True), [b"0"], []),
    ],
)
def test_a_rollback_applies_the_default(default: Outcome | None, left: list[bytes], failures: list[int]) -> None:
    site = Controller()
    consuming(site, 1, default_outcome=default)
    ident = site.declare()
    state = TransactionalState(ident, Accepted())
    site.client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    site.rollback(ident)
    queue = site.server.broker.directory.vhost("/").queue(Q)
    assert (site.unsettled(), site.contents()) == (0, left)
    assert [marks.failures for marks in queue.marks.values()] == failures


def undo() -> RetirementUndo:
    """Return the undo of a link that has no keeper."""
    broker = SimpleNamespace(engine=None)
    link = SimpleNamespace(session=SimpleNamespace(connection=SimpleNamespace(broker=broker)))
    return RetirementUndo(cast("ConsumerLink", SimpleNamespace(default=Settlement.MODIFIED, keeper=None, link=link)))


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_the_client_has_settled_count_each_number_once(seed: int) -> None:
    ranges = undo()
    choose, known = random.Random(seed), set[int]()
    for _ in range(200):
        first = choose.randrange(300)
        last = first + choose.randrange(-1, 12)
        new = set(range(first, last + 1)) - known
        assert ranges.settle(first, last) == len(new)
        known |= new
        assert all(ranges._has(number) is (number in known) for number in range(310))
    assert all(end < first for end, first in zip(ranges._ends, ranges._firsts[1:], strict=False))


@pytest.mark.rule("SET-7", "FAIR-1")
@pytest.mark.parametrize("how", ["detach", "lost"])
def test_many_retired_deliveries_return_in_pieces_when_their_transaction_is_lost(how: str) -> None:
    site = Controller()
    consuming(site, 100)
    engine = site.server.broker.engine
    engine.returns.piece = 7
    ident = site.declare()
    state = TransactionalState(ident, Accepted())
    site.client.send(0, Disposition(role=RECEIVER, first=0, last=99, settled=True, state=state))
    queue = site.server.broker.directory.vhost("/").queue(Q)
    backs: list[int] = []
    seen = [queue.unsettled]

    def count() -> None:
        backs.append(seen[0] - queue.unsettled)
        seen[0] = queue.unsettled

    engine.at_each_turn(count)
    if how == "detach":
        site.client.send(0, Detach(CONTROL, closed=True))
    else:
        site.server.lose(site.client.port)
    while queue.returning:
        site.server.end_turn()
    assert max(backs) <= 7
    assert site.contents() == [b"%d" % i for i in range(100)]


# -- finding retired deliveries


@pytest.mark.rule("FAIR-1")
def test_a_look_for_retired_deliveries_visits_only_groups_near_them(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Controller()
    consuming(site, 2000)
    visited: list[int] = []
    overlaps = Enlisted.overlaps

    def noted(self: Enlisted, link: ConsumerLink, first: int, last: int) -> bool:
        visited.append(self.first)
        return overlaps(self, link, first, last)

    monkeypatch.setattr(Enlisted, "overlaps", noted)
    ident = site.declare()
    for number in range(0, 2000, 2):
        visited.clear()
        site.retire(ident, number, number, Accepted())
        assert all(abs(each - number) < 256 for each in visited)
        assert len(visited) <= 256
    site.commit(ident)
    assert site.unsettled() == 1000


@pytest.mark.parametrize("seed", range(10))
def test_retired_deliveries_are_found_as_by_a_search_of_all(seed: int) -> None:
    choose = random.Random(seed)
    site = Controller()
    consuming(site, 3)
    session = site.client.port.endpoint.sessions[0]
    links = [link.end for link in session.links.values() if isinstance(link.end, ConsumerLink)]
    known: list[Enlisted] = []
    index = Retirements()
    for _ in range(200):
        first = choose.randrange(2000)
        last = first + choose.choice((0, 1, 3, 250, 700))
        if known and choose.random() < 0.3:
            index.remove(known.pop(choose.randrange(len(known))))
        else:
            known.append(Enlisted(session, links[0], first, last, first, 1, Accepted()))
            index.add(known[-1], first, last)
        expected = {id(some) for some in known if some.overlaps(links[0], first, last)}
        assert {id(some) for some in index.overlapping(links[0], first, last)} == expected
    for some in known:
        index.remove(some)
    assert not list(index.overlapping(links[0], 0, 4000))
    assert not index._by_block


@pytest.mark.rule("SET-7")
def test_deliveries_that_the_client_settles_one_by_one_later_are_found_after_their_groups_have_joined() -> None:
    site = Controller()
    consuming(site, 600)
    ident = site.declare()
    site.retire(ident, 0, 299, Accepted(), settled=False)
    site.retire(ident, 300, 599, Accepted(), settled=False)
    for number in (0, 255, 256, 511, 512, 599):
        site.retire(ident, number, number, Accepted())
    (group,) = site.client.port.endpoint.transactions.find(ident).enlisted
    assert (group.first, group.last, group.unsettled) == (0, 599, 594)
