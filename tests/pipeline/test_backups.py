"""The audit of a restored backup agrees with every branch, wherever that was prepared, decided and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import Manifest
from escrowmq.backup.restore import restore
from escrowmq.backup.source import PinnedFiles
from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xid import Xid
from escrowmq.core.records.branches import Prepared, encode_heuristic, encode_number, encode_prepare
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.format import segment_name, snapshot_name
from escrowmq.journal.storage import FileStorage
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe

DELETED, BEFORE, BETWEEN, AFTER, NEVER = range(5)
"""Places in the log: a segment that is deleted later, before the older snapshot, between the two, after the newer one;
and none at all.
"""
FORCED: Final = (State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK)
SEGMENT_BYTES: Final = 1 << 16


class Life(NamedTuple):
    """The places at which a branch is prepared, decided and forgotten, and its outcome."""

    prepared: int
    decided: int
    forgotten: int
    outcome: State

    def state_at(self, place: int) -> State | None:
        """Return the state in which a snapshot at the end of a place has the branch; None if it does not have it."""
        if not self.prepared <= place < self.forgotten:
            return None
        if place < self.decided:
            return State.PREPARED
        return self.outcome if self.outcome in FORCED else None


def _lives() -> Iterator[Life]:
    for prepared, decided, forgotten in combinations_with_replacement(range(NEVER + 1), 3):
        if prepared < NEVER:
            yield from (Life(prepared, decided, forgotten, outcome) for outcome in FORCED)
            if forgotten == NEVER:
                yield from (Life(prepared, decided, NEVER, each) for each in (State.COMMITTED, State.ROLLED_BACK))


LIVES: Final = dict(enumerate(_lives(), 1))
"""All lives of branches that do not break a rule, by number."""


def _prepare(number: int, state: State) -> bytes:
    xid = Xid(1, b"global", number.to_bytes(4, "big")).encode()
    return b"".join(encode_prepare(Prepared(number, state, 1, 1, 0, xid, "a client", [], []), [])[0])


def _write(scribe: Scribe, place: int) -> None:
    """Write what the branches do at a place."""
    for number, life in LIVES.items():
        if life.prepared == place:
            scribe.append(Kind.PREPARE, _prepare(number, State.PREPARED))
    scribe.frame()
    for number, life in LIVES.items():
        if life.decided != place:
            continue
        if life.outcome is State.COMMITTED:
            scribe.commit(branch=number)
        elif life.outcome is State.ROLLED_BACK:
            scribe.append(Kind.ROLLBACK, encode_number(number))
        else:
            parts, _ = encode_heuristic(number, [], commit=life.outcome is State.HEURISTIC_COMMITTED)
            scribe.append(Kind.HEURISTIC, *parts)
    scribe.frame()
    for number, life in LIVES.items():
        if life.forgotten == place:
            scribe.append(Kind.FORGET, encode_number(number))
    scribe.frame()


def _snapshot(scribe: Scribe, place: int) -> int:
    states = ((number, life.state_at(place)) for number, life in LIVES.items())
    return scribe.snapshot({}, *((Kind.PREPARE, _prepare(number, state)) for number, state in states if state))


def _back_up(scribe: Scribe, copy: Copy) -> Manifest:
    with PinnedFiles(scribe.folder, copy.sealed) as files:
        return copy.update(files, scribe.journal.synced_lsn, 1, {})


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("both", [False, True], ids=["the newer snapshot", "both snapshots"])
def test_no_branch_breaks_a_rule(both: bool, tmp_path: Path) -> None:
    """A copy that follows a broker has both snapshots if it is updated after the newer one came, but before the older
    one is deleted.
    """
    copied, data = FileStorage(tmp_path / "backup"), FileStorage(tmp_path / "restored")
    copy = Copy(copied)
    with Scribe(tmp_path / "journal", segment_bytes=SEGMENT_BYTES) as scribe:
        _write(scribe, DELETED)
        scribe.append(Kind.PAGE, bytes(SEGMENT_BYTES))
        scribe.frame()
        _write(scribe, BEFORE)
        older = scribe.folder / snapshot_name(_snapshot(scribe, BEFORE))
        _back_up(scribe, copy)
        content = older.read_bytes()
        _write(scribe, BETWEEN)
        _snapshot(scribe, BETWEEN)
        if both:
            older.write_bytes(content)
        _write(scribe, AFTER)
    manifest = _back_up(scribe, copy)
    restore(copied, manifest, data, lambda _: None)
    for storage in (copied, data):
        storage.close()
    assert segment_name(0) not in manifest.files
    found = audited(tmp_path / "restored")
    assert len(found.plan.snapshots) == 1 + both
    assert found.wrong == []
