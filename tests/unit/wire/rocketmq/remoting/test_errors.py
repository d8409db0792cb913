"""Faults as results."""

from __future__ import annotations

from escrowmq.core.conditions import Condition
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RESULTS, RequestFault


def test_every_condition_has_a_result() -> None:
    assert set(RESULTS) == set(Condition)
    assert ResultCode.SUCCESS not in RESULTS.values()


def test_a_fault_has_a_result_and_a_text() -> None:
    fault = RequestFault(ResultCode.SYSTEM_BUSY, "later")
    assert (fault.result, fault.text, str(fault)) == (ResultCode.SYSTEM_BUSY, "later", "later")
