"""A backup while another process has the data directory, and cannot say yet what is on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.socket.client import AdminError, NoBroker
from escrowmq.backup import operations
from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import BackupError
from escrowmq.backup.source import PinnedFiles
from escrowmq.journal.markers import REPLICATED
from escrowmq.journal.recovery import examine
from escrowmq.journal.storage import FileStorage
from tests.unit.backup.copies import quiet
from tests.unit.journal.journals import fill, flush, start

STARTING = "no broker answers there: it is starting or stopping"
READING = "this node still reads the replicated log"


class Broker:
    """A process with a journal. It fails once with each of `errors` when it is asked, then says what is synced."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.journal = start(FileStorage(data_dir))
        self.journal.append(1, b"record")
        flush(self.journal)
        self.errors: list[AdminError] = []
        self.asked: Callable[[], object] = lambda: None

    def ask(self, data_dir: Path, command: str) -> Any:
        assert (data_dir, command) == (self.data_dir, "journal.synced")
        self.asked()
        if self.errors:
            raise self.errors.pop(0)
        return self.journal.synced_lsn


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    broker = Broker(tmp_path / "data")
    monkeypatch.setattr(operations, "ask", broker.ask)
    yield broker
    broker.journal.close()


@pytest.fixture
def copy(broker: Broker, tmp_path: Path) -> Iterator[Copy]:
    with operations.copy_in(tmp_path / "backup", broker.data_dir, quiet) as copy:
        yield copy


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NoBroker("no broker runs"), f"process {os.getpid()} uses the data directory, but {STARTING}"),
        (AdminError(READING), f"the broker, process {os.getpid()}, cannot say what is on its disk: {READING}"),
    ],
    ids=["starting", "reading"],
)
def test_a_broker_that_cannot_answer_yet_is_waited_for(
    error: AdminError, reason: str, broker: Broker, copy: Copy
) -> None:
    broker.errors = [error, error]
    waits: list[str] = []
    assert operations.back_up(copy, broker.data_dir, waits.append).end_lsn == broker.journal.synced_lsn
    (said,) = waits
    assert said.startswith(reason)


def test_a_broker_that_stops_meanwhile_is_backed_up(broker: Broker, copy: Copy) -> None:
    end_lsn = broker.journal.synced_lsn
    broker.errors = [NoBroker("no broker runs")]
    broker.asked = broker.journal.close
    waits: list[str] = []
    assert operations.back_up(copy, broker.data_dir, waits.append).end_lsn == end_lsn
    assert len(waits) == 1


def test_a_broker_that_does_not_answer_in_time_is_an_error_with_its_reason(broker: Broker, copy: Copy) -> None:
    broker.errors = [AdminError(READING)] * 2
    with pytest.raises(BackupError, match=f"{READING}; try again$"):
        operations.back_up(copy, broker.data_dir, quiet_reason, patience=0.0)
    assert len(broker.errors) == 1


def quiet_reason(_: str) -> None:
    """Show nothing."""


def test_what_a_standby_copies_when_it_is_asked_is_in_the_backup(broker: Broker, copy: Copy) -> None:
    confirmed: list[int] = []

    def follow() -> None:
        """Copy what the leader has confirmed, which takes new segments."""
        if not confirmed:
            fill(broker.journal, 9)
            confirmed.append(broker.journal.synced_lsn)

    broker.asked = follow
    assert operations.back_up(copy, broker.data_dir, quiet_reason).end_lsn >= confirmed[0]


def test_a_stopped_node_of_several_has_what_was_confirmed_until_its_last_frame(broker: Broker, copy: Copy) -> None:
    broker.journal.close()
    (broker.data_dir / REPLICATED).touch()
    made = operations.back_up(copy, broker.data_dir, quiet_reason)
    with PinnedFiles(broker.data_dir) as files:
        assert made.as_of_us == examine(files).end_us
