"""Branches of Spark's are shown by application, epoch and partition."""

from __future__ import annotations

import pytest

from escrowmq.cli.spark_branches import described, parsed, shown
from escrowmq.client import Xid
from escrowmq.spark.identity import Epoch

EPOCH = Epoch("etl/left:2", 17, run="0123456789abcdef")
TASK = str(EPOCH.branch(b"3.0123456789abcdef.112.0"))
SETTLE = str(EPOCH.settle)


def test_a_task_is_shown_by_application_epoch_and_partition() -> None:
    assert shown(TASK) == "spark:etl/left:2#17:3.0123456789abcdef.112.0"
    assert described(TASK) == [("application", "etl/left:2"), ("epoch", "17"), ("work", "partition 3 writes")]


def test_a_settlement_is_shown_as_such() -> None:
    assert shown(SETTLE) == "spark:etl/left:2#17:settle0123456789abcdef"
    assert described(SETTLE)[2] == ("work", "the sources settle what they have read")


@pytest.mark.parametrize("xid", [TASK, SETTLE])
def test_commands_accept_the_name_that_is_shown(xid: str) -> None:
    assert parsed(shown(xid)) == parsed(xid) == xid


@pytest.mark.parametrize(
    "xid",
    [
        Xid(1, b"etl#17", b"3.0123456789abcdef.112.0"),
        EPOCH.branch(b"other"),
        Xid(EPOCH.settle.format_id, b"etl", b"settle"),
        Xid(EPOCH.settle.format_id, b"\xff#1", b"settle"),
        Xid(EPOCH.settle.format_id, b"\n#1", b"settle"),
    ],
)
def test_other_branches_are_shown_as_they_are(xid: Xid) -> None:
    assert (shown(str(xid)), parsed(str(xid)), described(str(xid))) == (str(xid), str(xid), [])
