"""What a message that leaves a queue unprocessed becomes, and when it goes in circles."""

from __future__ import annotations

import pytest

from escrowmq.core.dead_letter import circular, dead_envelope
from escrowmq.core.message import Death, Envelope
from escrowmq.core.outcome import Outcome
from escrowmq.core.queue import Queue
from tests.unit.core.site import Site


def queue(name: str = "q", **arguments: str) -> Queue:
    dead_letter = {f"x-dead-letter-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return Site().queue(name, {"x-dead-letter-exchange": "dlx", **dead_letter})


def death(name: str, reason: str = "expired") -> Death:
    return Death(name, reason, 1, 0, "", (name,), None)


class TestEnvelope:
    def test_it_goes_to_the_exchange_with_its_history(self) -> None:
        before = Envelope("x", "k", b"header", protocol=91, durable=True, priority=3, ttl=50, extra_keys=("cc",))
        dead = dead_envelope(before, queue(), Outcome.EXPIRED, 1234)
        assert (dead.exchange, dead.routing_key, dead.extra_keys) == ("dlx", "k", ("cc",))
        assert (dead.header, dead.protocol, dead.durable, dead.priority) == (b"header", 91, True, 3)
        assert dead.ttl is None, "else it would expire again at once"
        assert dead.deaths == (Death("q", "expired", 1, 1234, "x", ("k", "cc"), 50),)

    def test_another_routing_key_takes_the_place_of_all(self) -> None:
        dead = dead_envelope(Envelope("x", "k", extra_keys=("cc",)), queue(routing_key="other"), Outcome.REJECTED, 1)
        assert (dead.routing_key, dead.extra_keys) == ("other", ())
        assert dead.deaths[0].routing_keys == ("k", "cc")

    def test_an_empty_routing_key_is_one(self) -> None:
        assert dead_envelope(Envelope("x", "k"), queue(routing_key=""), Outcome.REJECTED, 1).routing_key == ""

    def test_the_same_death_again_is_counted_and_comes_first(self) -> None:
        one, two = queue("one"), queue("two")
        envelope = Envelope("x", "k")
        for dying_in, now in ((one, 1), (two, 2), (one, 3)):
            envelope = dead_envelope(envelope, dying_in, Outcome.REJECTED, now)
        assert envelope.deaths == (
            Death("one", "rejected", 2, 1, "x", ("k",), None),
            Death("two", "rejected", 1, 2, "dlx", ("k",), None),
        )

    def test_another_reason_is_another_death(self) -> None:
        envelope = dead_envelope(Envelope("x", "k"), queue(), Outcome.REJECTED, 1)
        envelope = dead_envelope(envelope, queue(), Outcome.EXPIRED, 2)
        assert [(d.queue, d.reason, d.times) for d in envelope.deaths] == [("q", "expired", 1), ("q", "rejected", 1)]


@pytest.mark.parametrize(
    ("history", "target", "expected"),
    [
        ([], "a", False),
        ([("a", "expired")], "b", False),
        ([("a", "expired")], "a", True),
        ([("a", "rejected")], "a", False),
        ([("b", "expired"), ("a", "expired")], "a", True),
        ([("b", "rejected"), ("a", "expired")], "a", False),
        ([("b", "expired"), ("a", "rejected")], "a", False),
        ([("b", "maxlen"), ("a", "expired"), ("c", "rejected")], "a", True),
        ([("a", "expired"), ("a", "rejected")], "a", True),
        ([("a", "delivery_limit")], "a", True),
    ],
)
def test_a_circle_is_one_in_which_nobody_rejected(history: list[tuple[str, str]], target: str, expected: bool) -> None:
    assert circular(tuple(death(*line) for line in history), target) is expected
