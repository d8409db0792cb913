"""After a process dies at any point, recovery commits all or nothing, and ignores other branches of a participant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escrowmq.xa import TransactionManager, UsageError
from escrowmq.xa.log import read
from escrowmq.xa.xids import FORMAT_ID
from tests.broker import wait_until
from tests.unit.sources import ROOT
from tests.xa.vault import Vault, VaultXid

STEPS = [
    f"{vault} {call}{done}"
    for vault in ("left", "right")
    for call in ("begin", "work", "prepare", "commit")
    for done in ("", " done")
]

# Runs two transactions; the process dies at the given step of the second.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from escrowmq.xa import TransactionManager
from tests.xa.vault import Vault

folder, step, seen = Path(sys.argv[1]), sys.argv[2], 0

def fault(name):
    global seen
    seen += name == step
    if seen == 2:
        os.kill(os.getpid(), signal.SIGKILL)

left, right = Vault(folder / "left", fault), Vault(folder / "right", fault)
manager = TransactionManager("site", folder / "decisions.db", {"left": left.connect, "right": right.connect})
for text in ("one", "two"):
    with manager.transaction("left", "right") as tx:
        tx["left"].work(text)
        tx["right"].work(text)
"""


@pytest.mark.rule("DTX-15")
@pytest.mark.parametrize("step", STEPS)
def test_recovery_completes_after_a_kill_at_any_step(tmp_path: Path, step: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), step]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert done.returncode == -9, done.stderr
    left, right = Vault(tmp_path / "left"), Vault(tmp_path / "right")
    decided = bool(read(tmp_path / "decisions.db").decisions.keys() - {"x"}) and "commit" in step
    with TransactionManager(
        "site", tmp_path / "decisions.db", {"left": left.connect, "right": right.connect}
    ) as manager:
        assert manager.recover().complete
        assert manager.unfinished() == []
    assert left.in_doubt() == right.in_doubt() == []
    assert left.contents() == right.contents() == (["one", "two"] if decided else ["one"])
    assert left.open == right.open == 0


@pytest.fixture
def left(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "left")


def plant(vault: Vault, gtrid: str, bqual: str = "left.1", format_id: int = FORMAT_ID) -> None:
    """Prepare a branch under any name."""
    connection = vault.connect()
    connection.tpc_begin(VaultXid(format_id, gtrid, bqual))
    connection.work(gtrid)
    connection.tpc_prepare()
    connection.close()


def test_foreign_branches_are_not_touched(tmp_path: Path, left: Vault) -> None:
    log = tmp_path / "decisions.db"
    with TransactionManager("site", log) as manager:
        identity = manager.log.identity
    plant(left, f"site.{identity}.1")
    plant(left, f"site.{identity}.2", bqual="other.1")
    plant(left, f"site.{identity}.3", format_id=7)
    plant(left, "site.0123456789ab.4")
    plant(left, f"sites.{identity}.5")
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        report = manager.recover()
    assert report.foreign == ["site.0123456789ab.4 left.1"]
    assert "left alone site.0123456789ab.4 left.1: it belongs to another log" in str(report)
    assert len(left.in_doubt()) == 4
    assert not [name for name in left.in_doubt() if name.endswith(f"{FORMAT_ID},site.{identity}.1,left")]


def test_a_new_log_decides_no_branches_of_the_old_one(tmp_path: Path, left: Vault) -> None:
    """After the loss of a log, recovery must not presume that nothing was decided."""
    log = tmp_path / "decisions.db"
    with TransactionManager("site", log) as manager:
        plant(left, f"site.{manager.log.identity}.1")
    for path in tmp_path.glob("decisions.db*"):
        path.unlink()
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        assert len(manager.recover().foreign) == 1
    assert len(left.in_doubt()) == 1


def test_an_unreachable_participant_is_retried(tmp_path: Path, left: Vault) -> None:
    log = tmp_path / "decisions.db"
    with TransactionManager("site", log) as manager:
        plant(left, f"site.{manager.log.identity}.1")
    down = True

    def fault(name: str) -> None:
        if down and name == "left connect":
            raise ConnectionError("connection refused")

    left.fault = fault
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        assert manager.recover().unreachable == {"left": "connection refused"}
        assert "not reached left: connection refused" in str(manager.recover())
        assert len(left.in_doubt()) == 1
        down = False
        wait_until(lambda: not left.in_doubt(), what="the manager's own recovery")


def test_a_decision_waits_for_participants_that_are_not_registered(tmp_path: Path, left: Vault) -> None:
    right = Vault(tmp_path / "right")
    log = tmp_path / "decisions.db"
    manager = TransactionManager("site", log, {"left": left.connect, "right": right.connect})

    def lose(name: str) -> None:
        if name in ("right commit", "right connect"):
            raise ConnectionError("lost")

    with manager.transaction("left", "right") as tx:
        right.fault = lose
        tx["left"].work("x")
        tx["right"].work("x")
    manager.close()
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        report = manager.recover()
        assert report.unresolved == {f"{tx.id} right.2": "its participant is not registered"}
        assert not report.complete
    right.fault = len
    with TransactionManager("site", log, {"left": left.connect, "right": right.connect}) as manager:
        manager.recover()
        assert manager.unfinished() == []
    assert left.contents() == right.contents() == ["x"]


@pytest.mark.rule("DTX-11")
def test_a_branch_completed_by_hand_before_recovery_is_reported(tmp_path: Path, left: Vault) -> None:
    log = tmp_path / "decisions.db"
    with TransactionManager("site", log) as manager:
        gtrid = f"site.{manager.log.identity}.1"
        plant(left, gtrid)
    left.by_hand("left.1", "committed")
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        (kept,) = manager.unfinished()
        assert kept.gtrid == gtrid
        assert kept.outcome == "rollback"
        assert "committed by hand" in kept.branches["left.1"].value
    with TransactionManager("site", log, {"left": left.connect}) as manager:
        assert len(manager.unfinished()) == 1, "the outcome is kept until it is forgotten"
        with pytest.raises(UsageError, match="no transaction nothing"):
            manager.forget("nothing")
        manager.forget(gtrid)
        manager.recover()
        assert manager.unfinished() == []
    assert os.listdir(left.folder) == [f"{FORMAT_ID},{gtrid},left.1.committed"]


def test_an_incomplete_list_of_branches_finishes_no_decision(tmp_path: Path, left: Vault) -> None:
    right = Vault(tmp_path / "right")
    log = tmp_path / "decisions.db"
    participants = {"left": left.connect, "right": right.connect}
    manager = TransactionManager("site", log, participants)

    def lose(name: str) -> None:
        if name in ("right commit", "right connect"):
            raise ConnectionError("lost")

    with manager.transaction("left", "right") as tx:
        right.fault = lose
        tx["left"].work("x")
        tx["right"].work("x")
    manager.close()
    right.fault = len
    right.lists = 0
    with TransactionManager("site", log, participants) as manager:
        assert manager.unfinished() == []
    assert left.contents() == right.contents() == ["x"]


def test_recovery_without_branches_in_doubt_does_nothing(tmp_path: Path, left: Vault) -> None:
    with TransactionManager("site", tmp_path / "decisions.db", {"left": left.connect}) as manager:
        assert str(manager.recover()) == "nothing was in doubt"
