"""The commit of prepared branches with much work, in one record."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.large_outcome import LargeOutcome
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from tests.unit.core.xa_site import XaSite


@pytest.mark.rule("TX-5", "DTX-9")
def test_gathering_changes_nothing_and_the_record_has_everything() -> None:
    site = XaSite()
    branch = site.prepared(settle=2)
    before = site.waiting()
    work = LargeOutcome(site.broker.engine, [branch], 0)
    for _ in work.gather():
        assert site.waiting() == before
    assert site.waiting() == before
    assert work.write(Kind.COMMIT, b"") == site.journal.end_lsn
    site.sync()
    (payload,) = site.records(Kind.COMMIT)
    number, operations = decode_commit(payload)
    assert number == branch.number
    assert [kind for kind, _, _ in operations] == [Kind.PLACED, Kind.SETTLE]
    for _ in work.complete():
        assert site.contents("to") == []
    assert site.contents("to") == [b"new"]
