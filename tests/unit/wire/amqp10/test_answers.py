"""Ranges of dispositions."""

from __future__ import annotations

from escrowmq.wire.amqp10.answers import MASK, Answers
from escrowmq.wire.amqp10.codec import states
from escrowmq.wire.amqp10.codec.frames import FrameReader
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SENDER, Disposition, decode_performative
from escrowmq.wire.amqp10.codec.states import Accepted, Released


def sent(answers: Answers) -> list[tuple[bool, int, int, bool, object]]:
    reader = FrameReader(1000)
    reader.feed(answers.take())
    found: list[tuple[bool, int, int, bool, object]] = []
    while (item := reader.next()) is not None:
        _, channel, data, at, end = item
        assert channel == 3
        each, _ = decode_performative(data, at, end)
        assert isinstance(each, Disposition)
        found.append((each.role, each.first, each.first if each.last is None else each.last, each.settled, each.state))
    return found


def test_equal_answers_to_consecutive_deliveries_become_one_range() -> None:
    answers = Answers(3)
    assert not answers
    for number in (5, 6, 7, 9):
        answers.add(RECEIVER, number, number, settled=True, state=states.ACCEPTED)
    answers.add(RECEIVER, 10, 11, settled=True, state=states.RELEASED)
    answers.add(RECEIVER, 12, 12, settled=False, state=states.RELEASED)
    answers.add(SENDER, 13, 13, settled=False, state=states.RELEASED)
    assert answers
    assert sent(answers) == [
        (RECEIVER, 5, 7, True, Accepted()),
        (RECEIVER, 9, 9, True, Accepted()),
        (RECEIVER, 10, 11, True, Released()),
        (RECEIVER, 12, 12, False, Released()),
        (SENDER, 13, 13, False, Released()),
    ]
    assert not answers


def test_all_answers_wait_for_the_last_of_their_syncs() -> None:
    answers = Answers(3)
    answers.add(RECEIVER, 1, 1, settled=True, state=states.ACCEPTED, after=70)
    answers.add(RECEIVER, 2, 2, settled=True, state=states.ACCEPTED, after=50)
    assert answers.after == 70
    answers.take()
    assert answers.after == 0


def test_numbers_have_32_bits_on_the_wire() -> None:
    answers = Answers(3)
    answers.add(SENDER, MASK + 1, MASK + 2, settled=True, state=states.ACCEPTED)
    assert sent(answers) == [(SENDER, 0, 1, True, Accepted())]
