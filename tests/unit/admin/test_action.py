"""The record of the operation that is being carried out."""

from __future__ import annotations

from escrowmq.admin.action import OperatorAction, acting, record_action
from tests.unit.wire.amqp091.clients import server


def test_the_current_operation_is_recorded_once() -> None:
    broker, action = server().broker, OperatorAction("queue.purge", {"name": "q"}, "alice", "")
    before = broker.log.end_lsn
    record_action(broker)
    assert broker.log.end_lsn == before, "there is none"
    with acting(action):
        record_action(broker)
        recorded = broker.log.end_lsn
        record_action(broker)
    record_action(broker)
    assert before < recorded == broker.log.end_lsn
    assert action.recorded
