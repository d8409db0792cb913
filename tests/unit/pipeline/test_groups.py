"""The progress of consumer groups is judged only by records that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.records.groups import ProgressCause, encode_group_progress
from escrowmq.core.records.kinds import Kind
from tests.pipeline.direct import Audited, audited, export
from tests.unit.core.groups.consuming import INVISIBLE, Consuming
from tests.unit.core.site import Site
from tests.unit.pipeline.segments import fill_segments


@pytest.fixture
def consuming() -> Consuming:
    """A group that has settled two messages and leased another one, in a segment that stays because of the messages."""
    c = Consuming(Site(segment_bytes=1000))
    c.site.queue("other")
    c.publish("a", "b", "c")
    assert c.settle(*c.lease(2)) == [True, True]
    c.lease(1)
    c.site.after(INVISIBLE)
    fill_segments(c.site)
    return c


def found(c: Consuming, folder: Path) -> Audited:
    """Audit the journal after a snapshot, which deletes segments."""
    c.site.sync()
    c.site.snapshot()
    audit = audited(export(c.site.storage, folder))
    assert len(audit.plan.holes) == 1
    return audit


@pytest.mark.rule("PIPE-5")
def test_a_lease_in_a_deleted_part_of_the_log_is_not_missed(consuming: Consuming, tmp_path: Path) -> None:
    (again,) = consuming.lease(1)
    fill_segments(consuming.site)
    assert consuming.settle(again) == [True]
    assert found(consuming, tmp_path).wrong == []


@pytest.mark.rule("PIPE-5")
def test_a_reset_in_a_deleted_part_of_the_log_is_not_missed(consuming: Consuming, tmp_path: Path) -> None:
    consuming.group.reset(consuming.stream, 1)
    fill_segments(consuming.site)
    (again,) = consuming.lease(1)
    assert consuming.settle(again) == [True]
    assert found(consuming, tmp_path).wrong == []


@pytest.mark.rule("GRP-5")
def test_progress_that_goes_back_behind_a_deleted_part_of_the_log_is_found(
    consuming: Consuming, tmp_path: Path
) -> None:
    (again,) = consuming.lease(1)
    fill_segments(consuming.site)
    assert consuming.settle(again) == [True]
    record = encode_group_progress(consuming.group.number, consuming.stream.ident, ProgressCause.ADVANCED, 3)
    lsn = consuming.site.journal.append(Kind.GROUP_PROGRESS, record)
    consuming.group.reset(consuming.stream, 4)
    assert found(consuming, tmp_path).wrong == [("progress went back", "group 1 t-0 3", lsn)]
