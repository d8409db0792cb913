"""The branches of the rounds may time out, but not before their time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from escrowmq.wire.amqp010.codec.spec import DtxPrepare, XaStatus
from escrowmq.wire.amqp010.codec.structs import Command
from tests.kill.raw_session import RawSession
from tests.replica_kill.branches import LEAST_TIMEOUT, BranchWorker
from tests.replicas import ReplicaBrokers


class TimedOut:
    """A session whose broker answers, some seconds after a branch began, that it has timed out."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds

    def call(self, command: Command) -> object:
        """Answer a command."""
        if isinstance(command, DtxPrepare):
            self.now += self._seconds
            return SimpleNamespace(status=XaStatus.XA_RBTIMEOUT)
        return SimpleNamespace(status=XaStatus.XA_OK)

    def transfer(self, queue: str, body: bytes) -> None:
        """Take a message."""


def transact(folder: Path, seconds: float) -> dict[int, bool]:
    """Return the outcomes after one branch."""
    session = TimedOut(seconds)
    worker = BranchWorker(ReplicaBrokers(folder, "nats://127.0.0.1:1/none", count=0), 1, lambda: session.now)
    worker._transact(cast("RawSession", session))
    return worker.outcomes


def test_a_branch_that_a_fault_holds_up_for_its_timeout_is_rolled_back(tmp_path: Path) -> None:
    assert transact(tmp_path, LEAST_TIMEOUT) == {1: False}


def test_a_branch_that_times_out_too_early_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"branch 1 was not prepared after 50\.0 s"):
        transact(tmp_path, 50.0)
