"""The commands that a session remembers."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.sent import MOST_BYTES, Sent, SentCommands


def remembered(*numbers: int) -> SentCommands:
    sent = SentCommands()
    for number in numbers:
        sent.add(number, b"%d" % number, number * 10)
    return sent


def numbers(sent: SentCommands) -> list[int]:
    return [number for number, _ in sent.from_number(0, 100)]


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [(0, 10**9, []), (2, 4, [1, 7, 9]), (3, 3, [1, 2, 4, 7, 9]), (5, 6, [1, 2, 3, 4, 7, 9]), (-5, 1, [2, 3, 4, 7, 9])],
)
def test_commands_are_forgotten_by_ranges(first: int, last: int, left: list[int]) -> None:
    sent = remembered(1, 2, 3, 4, 7, 9)
    sent.drop(first, last)
    assert numbers(sent) == left
    assert sent.bytes == remembered(*left).bytes


def test_commands_are_found_from_a_number_on() -> None:
    sent = remembered(1, 2, 5, 8)
    assert sent.from_number(2, 2) == [(2, Sent(b"2", 20)), (5, Sent(b"5", 50))]
    assert sent.from_number(9, 2) == []


def test_memory_is_bounded() -> None:
    sent = SentCommands()
    filled = [sent.full]
    sent.add(0, bytes(MOST_BYTES), 0)
    filled.append(sent.full)
    sent.drop(0, 0)
    filled.append(sent.full)
    assert filled == [False, True, False]
