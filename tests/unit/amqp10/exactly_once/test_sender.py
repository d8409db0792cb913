"""Table to queue: every committed row is sent once, wherever the connection or the process ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.amqp10 import Backoff, ConnectionLost, ExactlyOnceSender, LinkStolen, Message
from escrowmq.amqp10.exactly_once import Database
from escrowmq.amqp10.exactly_once.outbox import OutboxTable
from tests.harness.amqp10_broker import Cut, ResumingBroker

FAST = Backoff(0.001, 0.01)


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    yield broker
    broker.close()


def bodies(broker: ResumingBroker) -> list[Any]:
    return [Message.decode(message).body for message in broker.queue("q")]


def test_what_was_committed_is_sent_and_what_was_rolled_back_is_not(broker: ResumingBroker, tmp_path: Path) -> None:
    user = sqlite3.connect(tmp_path / "x.db")
    user.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with ExactlyOnceSender(broker.url, "q", name="out", database=tmp_path / "x.db") as sender:
        for number in range(6):
            user.execute("INSERT INTO orders VALUES (?)", (number,))
            sender.put(Message(str(number)), user)
            if number % 2:
                user.rollback()
            else:
                user.commit()
        assert sender.flush() == 3
        assert sender.flush() == 0
    assert bodies(broker) == ["0", "2", "4"]
    assert user.execute("SELECT count(*) FROM escrowmq_outbox").fetchone() == (0,)
    user.close()


@pytest.mark.rule("SET-3")
@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("reconnects", [True, False], ids=["same process", "next process"])
@pytest.mark.parametrize("place", range(40))
def test_a_cut_at_any_frame_neither_loses_nor_doubles(
    broker: ResumingBroker, tmp_path: Path, place: int, reconnects: bool
) -> None:
    frames = 0

    def on_frame(direction: str, performative: object) -> None:
        nonlocal frames
        frames += 1
        if frames == place + 4:  # the first ones are those of the login
            raise Cut

    broker.on_frame = on_frame
    wanted = [str(number) for number in range(10)]
    database = Database(tmp_path / "x.db")
    outbox = OutboxTable(database, "out")
    with database.transaction():
        for body in wanted:
            outbox.put(Message(body).encode())
    database.close()

    def attempt() -> bool:
        try:
            again = FAST if reconnects else False
            path = tmp_path / "x.db"
            with ExactlyOnceSender(broker.url, "q", name="out", database=path, window=4, reconnect=again) as sender:
                sender.flush()
        except ConnectionLost:
            assert not reconnects, "the sender must reconnect by itself"
            return False
        return True

    while not attempt():
        pass
    broker.on_frame = lambda *_: None
    assert bodies(broker) == wanted
    sender = ExactlyOnceSender(broker.url, "q", name="out", database=tmp_path / "x.db")
    assert sender.flush() == 0
    sender.close()
    assert not any(kept.taken for kept in broker.kept.values())


def test_an_earlier_run_cannot_commit_any_more(broker: ResumingBroker, tmp_path: Path) -> None:
    first = ExactlyOnceSender(broker.url, "q", name="out", database=tmp_path / "x.db")
    second = ExactlyOnceSender(broker.url, "q", name="out", database=tmp_path / "x.db")
    second.put(Message("1"))
    with pytest.raises(LinkStolen, match="another process runs it now"):
        first.flush()
    assert second.flush() == 1
    first.close()
    second.close()
    assert bodies(broker) == ["1"]
