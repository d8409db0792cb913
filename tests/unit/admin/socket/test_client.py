"""How long a question to a broker waits for its answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.admin.socket import client, path


@pytest.mark.parametrize(("command", "limit"), [("replica.status", "0.01 s"), ("ping", "0.01 s"), ("queues", "0.02 s")])
def test_a_suspended_broker_keeps_a_question_about_its_standing_waiting_for_a_short_time_only(
    command: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "QUICK_TIMEOUT", 0.01)
    monkeypatch.setattr(client, "TIMEOUT", 0.02)
    with path.bind(tmp_path), pytest.raises(client.AdminError, match=f"did not answer within {limit}"):
        client.ask(tmp_path, command)


def test_a_question_about_the_standing_of_a_node_waits_for_seconds_at_most() -> None:
    assert client.QUICK_TIMEOUT <= 5
