"""The states of the rows in the outbox."""

from __future__ import annotations

from pathlib import Path

from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.outbox import OutboxTable, RefusedRow, Row


def test_rows_go_from_waiting_to_in_flight_to_gone(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    outbox, other = OutboxTable(database, "a"), OutboxTable(database, "b")
    with database.transaction():
        tags = [outbox.put(bytes((number,))) for number in range(5)]
        other.put(b"x")
    assert tags == sorted(tags)
    assert outbox.in_flight() == []
    with database.transaction():
        assert outbox.claim(3) == [Row(tag, bytes((number,))) for number, tag in enumerate(tags[:3])]
    assert [row.tag for row in outbox.in_flight()] == tags[:3]
    with database.transaction():
        outbox.delete(tags[:2])
        assert [row.tag for row in outbox.claim(9)] == tags[3:]
    assert [row.tag for row in outbox.in_flight()] == tags[2:]
    database.close()


def test_refused_rows_keep_their_reason_until_they_are_retried_or_discarded(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    outbox = OutboxTable(database, "a")
    with database.transaction():
        first, second = outbox.put(b"1"), outbox.put(b"2")
        outbox.claim(9)
        outbox.refuse([(first, "full"), (second, "full")])
    assert outbox.refused() == [RefusedRow(first, b"1", "full"), RefusedRow(second, b"2", "full")]
    with database.transaction():
        outbox.retry([first])
        outbox.discard([second])
        assert outbox.claim(9) == [Row(first, b"1")]
    assert outbox.refused() == []
    database.close()


def test_a_row_is_part_of_the_users_transaction(tmp_path: Path) -> None:
    database, user = Database(tmp_path / "x.db"), Database(tmp_path / "x.db")
    outbox = OutboxTable(database, "a")
    outbox.put(b"1", user.connection)
    user.connection.rollback()
    outbox.put(b"2", user.connection)
    user.connection.commit()
    with database.transaction():
        assert [row.message for row in outbox.claim(9)] == [b"2"]
    database.close()
    user.close()
