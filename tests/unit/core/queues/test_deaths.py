"""Dead-lettering: the envelope of the dead letter, and the detection of cycles."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.queues.deaths import HISTORY, circular, dead_envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Site


def queue(name: str = "q", **arguments: str) -> Queue:
    dead_letter = {f"x-dead-letter-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return Site().queue(name, {"x-dead-letter-exchange": "dlx", **dead_letter})


def death(name: str, reason: str = "expired") -> Death:
    return Death(name, reason, 1, 0, "", (name,), None)


class TestEnvelope:
    def test_a_dead_letter_goes_to_the_exchange_with_its_history(self) -> None:
        before = Envelope("x", "k", b"header", protocol=91, durable=True, priority=3, ttl=50, extra_keys=("cc",))
        dead = dead_envelope(before, queue(), Outcome.EXPIRED, 1234)
        assert (dead.exchange, dead.routing_key, dead.extra_keys) == ("dlx", "k", ("cc",))
        assert (dead.header, dead.protocol, dead.durable, dead.priority) == (b"header", 91, True, 3)
        assert dead.ttl is None, "otherwise it would expire again immediately"
        assert dead.deaths == (Death("q", "expired", 1, 1234, "x", ("k", "cc"), 50),)

    def test_a_dead_letter_routing_key_replaces_all_keys(self) -> None:
        dead = dead_envelope(Envelope("x", "k", extra_keys=("cc",)), queue(routing_key="other"), Outcome.REJECTED, 1)
        assert (dead.routing_key, dead.extra_keys) == ("other", ())
        assert dead.deaths[0].routing_keys == ("k", "cc")

    def test_an_empty_dead_letter_routing_key_is_used(self) -> None:
        assert dead_envelope(Envelope("x", "k"), queue(routing_key=""), Outcome.REJECTED, 1).routing_key == ""

    def test_a_repeated_death_is_counted_and_listed_first(self) -> None:
        one, two = queue("one"), queue("two")
        envelope = Envelope("x", "k")
        for dying_in, now in ((one, 1), (two, 2), (one, 3)):
            envelope = dead_envelope(envelope, dying_in, Outcome.REJECTED, now)
        assert envelope.deaths == (
            Death("one", "rejected", 2, 1, "x", ("k",), None),
            Death("two", "rejected", 1, 2, "dlx", ("k",), None),
        )

    def test_another_reason_is_listed_separately(self) -> None:
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
def test_only_a_cycle_without_a_reject_is_stopped(history: list[tuple[str, str]], target: str, expected: bool) -> None:
    assert circular(tuple(death(*line) for line in history), target) is expected


def test_a_history_that_grows_without_end_is_stopped() -> None:
    history = tuple(death(f"q{i}", "rejected") for i in range(HISTORY + 1))
    assert not circular(history[:HISTORY], "other")
    assert circular(history, "other")
