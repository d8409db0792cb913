"""The operation that both faces run to send an outbox. The faces' own tests cut connections at every frame."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from escrowmq.amqp10 import Message, UsageError
from escrowmq.amqp10.exactly_once.shipping import Shipping


def test_messages_are_put_in_a_transaction_of_their_own_or_of_the_caller(tmp_path: Path) -> None:
    shipping = Shipping(tmp_path / "x.db", "out", 10)
    first = shipping.put(Message(1), None)
    mine = sqlite3.connect(tmp_path / "x.db")
    shipping.put(Message(2), mine)
    mine.rollback()
    mine.close()
    with shipping.database.transaction():
        assert [row.tag for row in shipping.outbox.claim(10)] == [first]
    shipping.database.close()


def test_only_messages_can_be_put(tmp_path: Path) -> None:
    shipping = Shipping(tmp_path / "x.db", "out", 10)
    with pytest.raises(UsageError, match="expected a Message, not str"):
        shipping.put("text", None)  # type: ignore[arg-type]
    with shipping.database.transaction():
        assert shipping.outbox.claim(10) == []
    shipping.database.close()
