"""Publishers within credit, window and outcomes, and in transactions."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.perf.amqp10.encoding import Counters, TransferBlock
from escrowmq.perf.amqp10.publishers import DischargingPublisher, LinkPublisher, Permits, SettlingPublisher, declaration
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Disposition, Flow, decode_performative
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, Rejected, TransactionalState

A = Accepted()


def block(counters: Counters, **changes: Any) -> TransferBlock:
    fields: dict[str, Any] = {"handle": 0, "durable": True, "settled": False, "frame_max": 65536}
    return TransferBlock(list(messages(Variety(), 100, 10)), counters, **{**fields, **changes})


def permits(counters: Counters, credit: int, window: int = 1000) -> Permits:
    found = Permits(counters)
    found.on_flow(flow(credit, window), own=True)
    return found


def flow(credit: int, window: int = 1000) -> Flow:
    return Flow(
        next_incoming_id=0,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=0,
        delivery_count=0,
        link_credit=credit,
    )


@pytest.mark.parametrize(("credit", "window", "sent"), [(3, 9, 3), (9, 4, 4), (0, 9, 0)])
def test_credit_and_window_limit_what_is_sent(credit: int, window: int, sent: int) -> None:
    counters = Counters()
    publisher = LinkPublisher(0, block(counters), Totals(), None, False)
    publisher.permits = permits(counters, credit, window)
    assert (publisher.take(0) is not None) == bool(sent)
    assert publisher.published == counters.deliveries == sent
    assert publisher.take(0) is None


def test_outcomes_in_any_order_make_room() -> None:
    counters, totals = Counters(), Totals()
    publisher = SettlingPublisher(0, block(counters), totals, 6, False, 4)
    publisher.permits = permits(counters, 100)
    publisher.take(0)
    assert publisher.published == 4
    assert publisher.on_disposition(Disposition(RECEIVER, 2, 3, True, A), 1) == b""
    assert publisher.on_disposition(Disposition(RECEIVER, 0, None, True, Rejected()), 1) == b""
    assert (totals.confirmed, totals.rejected) == (3, 1)
    publisher.take(2)
    assert publisher.published == 6
    publisher.on_disposition(Disposition(RECEIVER, 1, None, True, A), 3)
    assert not publisher.finished
    publisher.on_disposition(Disposition(RECEIVER, 4, 5, True, A), 3)
    assert publisher.finished


def test_in_mode_second_outcomes_are_settled() -> None:
    counters = Counters()
    publisher = SettlingPublisher(0, block(counters), Totals(), 4, False, 4)
    publisher.permits = permits(counters, 100)
    publisher.take(0)
    answer, _ = decode_performative(publisher.on_disposition(Disposition(RECEIVER, 0, 3, False, A), 1)[8:])
    assert answer == Disposition(False, 0, 3, True, A)


def test_a_transaction_waits_for_its_discharge() -> None:
    counters, totals = Counters(), Totals()
    control = permits(counters, 100)
    declaration(counters, control)
    publisher = DischargingPublisher(0, block(counters, transaction=b"1"), totals, 10, False, 5, b"")
    publisher.permits, publisher.control, publisher.counters = permits(counters, 100), control, counters
    publisher.begin(b"1")
    assert publisher.take(0) is not None
    assert (publisher.published, counters.deliveries) == (5, 8)  # declare, five posts, discharge, declare
    assert publisher.take(0) is None
    publisher.on_disposition(Disposition(RECEIVER, 1, 5, True, TransactionalState(b"1", A)), 1)
    publisher.on_disposition(Disposition(RECEIVER, 6, None, True, A), 1)
    assert totals.confirmed == 5
    assert publisher.take(1) is None
    publisher.on_disposition(Disposition(RECEIVER, 7, None, True, Declared(b"2")), 1)
    assert publisher.take(2) is not None
    with pytest.raises(PerfError, match="did not commit"):
        publisher.on_disposition(Disposition(RECEIVER, 13, None, True, Rejected()), 3)


def test_a_transaction_whose_id_is_known_is_encoded_before_the_last_one_is_answered() -> None:
    counters, totals = Counters(), Totals()
    control = permits(counters, 100)
    declaration(counters, control)
    publisher = DischargingPublisher(0, block(counters, transaction=b"1"), totals, 15, False, 5, b"")
    publisher.permits, publisher.control, publisher.counters = permits(counters, 100), control, counters
    publisher.begin(b"1")
    assert publisher.take(0) is not None
    publisher.on_disposition(Disposition(RECEIVER, 7, None, True, Declared(b"2")), 1)
    assert (publisher.published, counters.deliveries) == (5, 15), "posts, discharge, declare"
    assert publisher.take(1) is None, "the first transaction is not answered"
    publisher.on_disposition(Disposition(RECEIVER, 6, None, True, A), 2)
    data = publisher.take(2)
    assert data is not None
    assert bytes(data).count(b"\xa0\x012") == 6, "the id is in the posts and in the discharge"
    assert (publisher.published, totals.published, totals.confirmed) == (10, 10, 5)
    publisher.on_disposition(Disposition(RECEIVER, 14, None, True, Declared(b"3")), 3)
    publisher.stop()
    publisher.on_disposition(Disposition(RECEIVER, 13, None, True, A), 4)
    assert (publisher.take(4), publisher.finished, totals.confirmed) == (None, True, 10)


def test_a_transaction_is_declared_later_without_credit_for_it() -> None:
    counters = Counters()
    control = permits(counters, 2)
    declaration(counters, control)
    publisher = DischargingPublisher(0, block(counters, transaction=b"1"), Totals(), 10, False, 5, b"")
    publisher.permits, publisher.control, publisher.counters = permits(counters, 100), control, counters
    publisher.begin(b"1")
    assert publisher.take(0) is not None
    assert counters.deliveries == 7, "declare, five posts, discharge"
    publisher.on_disposition(Disposition(RECEIVER, 6, None, True, A), 1)
    assert publisher.take(1) is None
    control.on_flow(flow(3), own=True)
    assert publisher.take(1) is not None
    assert (counters.deliveries, publisher.published) == (8, 5)
    publisher.on_disposition(Disposition(RECEIVER, 7, None, True, Declared(b"2")), 2)
    control.on_flow(flow(4), own=True)
    assert publisher.take(2) is not None
    assert publisher.published == 10


def test_a_disposition_for_presettled_messages_is_an_error() -> None:
    publisher = LinkPublisher(0, block(Counters()), Totals(), None, False)
    with pytest.raises(PerfError, match="presettled"):
        publisher.on_disposition(Disposition(RECEIVER, 0, None, True, A), 0)
