"""The preparation of a large branch writes what the preparation in one piece does."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.large_preparation import LargePreparation
from escrowmq.core.branches.preparation import Preparation
from escrowmq.core.records.branches import decode_prepare
from escrowmq.core.records.kinds import Kind
from tests.unit.core.xa_site import XaSite


@pytest.mark.rule("DTX-8")
def test_its_record_is_that_of_a_preparation_in_one_piece() -> None:
    found = []
    for large in (False, True):
        site = XaSite()
        branch = site.worked(settle=2, publish=(b"a", b"b" * 70_000))
        work = (LargePreparation if large else Preparation)(site.broker.engine, branch)
        if isinstance(work, LargePreparation):
            for _ in work.gather():
                pass
        work.check()
        assert (work.write() if isinstance(work, LargePreparation) else work.apply()) == site.journal.end_lsn
        site.sync()
        found.append([decode_prepare(payload) for payload in site.records(Kind.PREPARE)])
        assert [list(run.contents) for run in branch.runs] == [[b"a", b"b" * 70_000]]
    assert found[0] == found[1]
