"""What a node says about the settings of its log."""

from __future__ import annotations

import logging

import pytest

from escrowmq.replica.engines.settings import WrongSetting
from escrowmq.server.replica.leadership import told_of_settings

WRONG = WrongSetting("the topic orders", "retention.ms", "1000", "-1")


def test_a_changed_setting_of_the_log_is_an_error_in_the_brokers_log(caplog: pytest.LogCaptureFixture) -> None:
    told_of_settings((WRONG,))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the topic orders has retention.ms = 1000, and replication needs -1" in record.getMessage()


def test_the_operator_is_told_when_the_settings_are_right_again(caplog: pytest.LogCaptureFixture) -> None:
    told_of_settings(())
    assert [record.getMessage() for record in caplog.records] == ["the settings of the replicated log are right again"]
