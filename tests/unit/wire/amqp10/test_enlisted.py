"""The undo of deliveries that a client has settled in a transaction."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Disposition
from escrowmq.wire.amqp10.codec.states import Accepted, Modified, Outcome, Rejected, Released, TransactionalState
from tests.unit.wire.amqp10.controller import Controller, Q, consuming


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
