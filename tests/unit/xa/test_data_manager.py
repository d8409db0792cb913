"""`with transaction.manager:` commits and aborts the joined transaction together with other data managers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import transaction

from escrowmq.xa import RolledBack, TransactionManager
from tests.xa.vault import Vault


class Other:
    """A data manager that votes as configured and records its calls."""

    def __init__(self, veto: bool = False) -> None:
        self.transaction_manager = transaction.manager
        self.veto = veto
        self.calls: list[str] = []

    def abort(self, txn: object) -> None:
        self.calls.append("abort")

    def tpc_begin(self, txn: object) -> None:
        self.calls.append("begin")

    def commit(self, txn: object) -> None:
        self.calls.append("commit")

    def tpc_vote(self, txn: object) -> None:
        if self.veto:
            raise ValueError("veto")

    def tpc_finish(self, txn: object) -> None:
        self.calls.append("finish")

    def tpc_abort(self, txn: object) -> None:
        self.calls.append("tpc_abort")

    def sortKey(self) -> str:  # noqa: N802 - the interface's name
        return "other"


@pytest.fixture
def vaults(tmp_path: Path) -> tuple[Vault, Vault]:
    return Vault(tmp_path / "left"), Vault(tmp_path / "right")


@pytest.fixture
def manager(tmp_path: Path, vaults: tuple[Vault, Vault]) -> Iterator[TransactionManager]:
    left, right = vaults
    with TransactionManager("zope", tmp_path / "log.db", {"left": left.connect, "right": right.connect}) as manager:
        yield manager
    transaction.abort()


def work(manager: TransactionManager, text: str) -> None:
    tx = manager.join("left", "right")
    tx["left"].work(text)
    tx["right"].work(text)


def contents(vaults: tuple[Vault, Vault]) -> list[str]:
    left, right = vaults
    assert left.contents() == right.contents()
    assert left.in_doubt() == right.in_doubt() == []
    return left.contents()


def test_the_end_of_the_block_commits(manager: TransactionManager, vaults: tuple[Vault, Vault]) -> None:
    other = Other()
    with transaction.manager:
        transaction.get().join(other)
        work(manager, "coffee")
    assert contents(vaults) == ["coffee"]
    assert other.calls == ["begin", "commit", "finish"]
    assert manager.unfinished() == []


def fail(manager: TransactionManager) -> None:
    with transaction.manager:
        work(manager, "tea")
        raise ZeroDivisionError


def test_an_error_in_the_block_aborts(manager: TransactionManager, vaults: tuple[Vault, Vault]) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(manager)
    assert contents(vaults) == []


def test_another_data_managers_veto_rolls_back_prepared_branches(
    manager: TransactionManager, vaults: tuple[Vault, Vault]
) -> None:
    work(manager, "tea")
    transaction.get().join(Other(veto=True))
    with pytest.raises(ValueError, match="veto"):
        transaction.commit()
    assert contents(vaults) == []


def test_a_participants_refusal_aborts_the_others(manager: TransactionManager, vaults: tuple[Vault, Vault]) -> None:
    def refuse(name: str) -> None:
        if name == "right prepare":
            raise ValueError("no")

    vaults[1].fault = refuse
    other = Other()
    work(manager, "tea")
    transaction.get().join(other)
    with pytest.raises(RolledBack, match="right did not prepare"):
        transaction.commit()
    assert "finish" not in other.calls
    assert "tpc_abort" in other.calls
    assert contents(vaults) == []


def test_a_private_transaction_manager_can_be_used(manager: TransactionManager, vaults: tuple[Vault, Vault]) -> None:
    own = transaction.TransactionManager()
    with own:
        tx = manager.join("left", connections={"right": vaults[1].connect()}, transaction_manager=own)
        tx["left"].work("x")
        tx["right"].work("x")
    assert contents(vaults) == ["x"]
