"""What a leader waits for, and what a node says about the settings of its log."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from escrowmq.config.replication import ReplicationSection
from escrowmq.journal.storage import FileStorage
from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.replica.errors import Deposed
from escrowmq.server.replica import leadership as module
from escrowmq.server.replica.leadership import Leadership, told_of_settings
from escrowmq.server.supervisor import Supervisor
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import standby

WRONG = WrongSetting("the topic orders", "retention.ms", "1000", "-1")


def test_a_changed_setting_of_the_log_is_an_error_in_the_brokers_log(caplog: pytest.LogCaptureFixture) -> None:
    told_of_settings((WRONG,))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the topic orders has retention.ms = 1000, and replication needs -1" in record.getMessage()


def test_the_operator_is_told_when_the_settings_are_right_again(caplog: pytest.LogCaptureFixture) -> None:
    told_of_settings(())
    assert [record.getMessage() for record in caplog.records] == ["the settings of the replicated log are right again"]


def leading(folder: Path, section: ReplicationSection) -> Leadership:
    """A node that leads on a log of its own."""
    follower = standby(Log(), folder)
    assert follower.run()
    engine: Any = SimpleNamespace(approach=lambda: None)
    unused: Any = None
    return Leadership(follower, engine, unused, FileStorage(folder / "unused"), section, Supervisor("", 0))


@pytest.mark.parametrize(("acknowledge", "synced"), [("both", True), ("engine", False)])
def test_the_setting_chooses_what_an_answer_waits_for(acknowledge: str, synced: bool, tmp_path: Path) -> None:
    leadership = leading(tmp_path, ReplicationSection.model_validate({"acknowledge": acknowledge}))
    assert leadership.shipper.synced is synced
    leadership.shipper.stop(resign=False)


def test_by_default_an_answer_waits_for_both() -> None:
    assert ReplicationSection().acknowledge == "both"


@pytest.mark.parametrize(("ends", "done"), [(False, "restart"), (True, "die")])
def test_a_deposed_leader_begins_again_unless_it_was_told_to_end(
    ends: bool, done: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def end(how: str, text: str) -> NoReturn:
        found.append((how, text))
        raise SystemExit

    monkeypatch.setattr(module, "restart", lambda text, _: end("restart", text))
    monkeypatch.setattr(module, "die", lambda text: end("die", text))
    leadership = leading(tmp_path, ReplicationSection())
    leadership.shipper.stop(resign=False)
    leadership.ends = ends
    with pytest.raises(SystemExit):
        leadership._deposed(Deposed(2, "amqp://b"))
    ((how, text),) = found
    assert how == done
    assert "amqp://b leads now" in text
