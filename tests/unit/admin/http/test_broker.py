"""The connection of the HTTP process to the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from escrowmq.admin.http.broker import BrokerRefused, BrokerUnavailable, RemoteBroker
from escrowmq.admin.socket.path import LONGEST_REQUEST


def test_a_request_that_the_broker_would_not_take_is_refused(tmp_path: Path) -> None:
    broker = RemoteBroker(tmp_path)
    with pytest.raises(BrokerRefused, match="more than the 1,048,576 bytes"):
        asyncio.run(broker.ask("user.login", password="x" * LONGEST_REQUEST))
    with pytest.raises(BrokerUnavailable):
        asyncio.run(broker.ask("user.login", password="é" * (LONGEST_REQUEST // 2 - 100)))
