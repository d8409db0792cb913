"""Several brokers with one journal are tried in turn, until one of them accepts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import escrowmq.client as mq
from escrowmq.client import connection
from escrowmq.client.parameters import Parameters


def _refused(_wanted: Parameters) -> None:
    raise mq.ConnectionClosed(0, "refused")


def test_several_brokers_are_tried_often_at_first_and_more_rarely_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = 0.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(connection, "Connection", _refused)
    with pytest.raises(mq.ConnectionClosed):
        mq.connect(["amqp://a", "amqp://b"], connection_timeout=3)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.02, 0.1)
    assert sum(each < 0.1 for each in pauses) > 10
