"""What records name by number is found with its first and last record, alone and in commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.mentions import STEP as NAMED
from escrowmq.pipeline.mentions import Mention, mention
from escrowmq.pipeline.names import ExistingNames
from escrowmq.pipeline.planning import plan
from escrowmq.pipeline.tasks import Branches
from tests.pipeline.direct import _pieces
from tests.pipeline.journals import Scribe
from tests.pipeline.planted_journals import acquire, arrive, terminus

SET = (-1, 10, int(Kind.TERMINUS_SET), encode_change(vhost="/", number=3))
DELETED = (-1, 50, int(Kind.TERMINUS_DELETED), encode_change(number=3))


def mentions_in(folder: Path) -> set[Mention]:
    rows = [row for batch in Branches(str(folder))(_pieces(plan(folder))) for row in batch.to_pylist()]
    return {mention(row) for row in rows if row["step"] == NAMED}


def test_numbers_have_their_first_and_last_record(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
        terminus(scribe, 7)
        first = arrive(scribe, 7, 1, b"a")
        scribe.frame()
        last = arrive(scribe, 7, 2, b"b")
        only = acquire(scribe, 8, 1, 1)
    assert mentions_in(tmp_path) == {
        Mention("link terminus", 7, first, last),
        Mention("link terminus", 8, only, only),
        Mention("queue", 1, only, only),
    }


@pytest.mark.parametrize(
    ("number", "first", "last", "text"),
    [
        (3, 11, 49, ""),
        (3, 9, 49, "does not exist"),
        (3, 11, 51, "was removed"),
        (4, 11, 12, "does not exist"),
    ],
)
def test_what_is_named_exists(number: int, first: int, last: int, text: str) -> None:
    follow = ExistingNames({}, certain=True)
    found = follow.check([SET, DELETED], [], [Mention("link terminus", number, first, last)])
    assert [each.text for each in found] == (
        [f": a record names the link terminus number {number}, which {text}"] if text else []
    )


def test_nothing_is_known_before_the_first_snapshot_of_an_incomplete_log() -> None:
    in_snapshot = (20, 20, *SET[2:])
    follow = ExistingNames({}, certain=False)
    assert follow.check([in_snapshot, DELETED], [20], [Mention("link terminus", 5, 3, 15)]) == []
    follow = ExistingNames({}, certain=False)
    (wrong,) = follow.check([in_snapshot, DELETED], [20], [Mention("link terminus", 5, 3, 30)])
    assert wrong.lsn == 30


def test_the_next_run_knows_the_numbers_of_the_last_one() -> None:
    known: dict[str, int] = {}
    assert ExistingNames(known, certain=True).check([SET], []) == []
    follow = ExistingNames(known, certain=True)
    assert follow.check([DELETED], [], [Mention("link terminus", 3, 40, 45)]) == []
    follow = ExistingNames(known, certain=True)
    (wrong,) = follow.check([], [], [Mention("link terminus", 3, 60, 60)])
    assert wrong.rule.name == "names do not match"
