"""Branches of Spark's are shown by application, epoch and partition."""

from __future__ import annotations

import pytest

from escrowmq.client import Xid
from escrowmq.spark.identity import Epoch
from escrowmq.xid_names.spark import details, parsed, shown

EPOCH = Epoch("etl/left:2", 17, run="0123456789abcdef")
TASK = EPOCH.branch(b"3.0123456789abcdef.112.0")


def test_a_task_is_shown_by_application_epoch_and_partition() -> None:
    assert shown(TASK) == "spark:etl/left:2#17:3.0123456789abcdef.112.0"
    assert details(TASK) == [("application", "etl/left:2"), ("epoch", "17"), ("work", "partition 3 writes")]


def test_a_settlement_is_shown_as_such() -> None:
    assert shown(EPOCH.settle) == "spark:etl/left:2#17:settle0123456789abcdef"
    assert details(EPOCH.settle)[2] == ("work", "the sources settle what they have read")


@pytest.mark.parametrize("xid", [TASK, EPOCH.settle])
def test_the_name_that_is_shown_is_read(xid: Xid) -> None:
    name = shown(xid)
    assert name is not None
    assert parsed(name) == xid


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
def test_other_branches_have_no_such_name(xid: Xid) -> None:
    assert (shown(xid), parsed(str(xid)), details(xid)) == (None, None, [])
