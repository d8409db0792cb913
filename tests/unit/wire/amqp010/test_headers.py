"""Application headers for routing, and the history of dead letters."""

from __future__ import annotations

from decimal import Decimal

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.values import canonical, is_time
from escrowmq.wire.amqp010.codec import types
from escrowmq.wire.amqp010.codec.spec import Xid
from escrowmq.wire.amqp010.headers import header_values, with_history

DEATHS = (
    Death("q2", "expired", 2, 9000, "e2", ("k2", "k3"), 50),
    Death("q1", "rejected", 1, 5000, "e1", ("k1",), None),
)


def test_values_are_those_that_a_publisher_of_amqp_091_would_have_sent() -> None:
    found = header_values({"n": types.UInt8(4), "t": types.Datetime(5), "s": "x", "m": {"l": [types.Datetime(6), 1]}})
    assert found == {"n": 4, "t": 5, "s": "x", "m": {"l": [6, 1]}}
    assert is_time(found["t"])
    assert is_time(found["m"]["l"][0])
    assert canonical(found["n"]) == canonical(4)


def test_values_that_amqp_091_does_not_have_are_left_out() -> None:
    xid = Xid(1, b"g", b"b")
    odd = [Decimal(1), xid, types.UnknownStruct(9, b"")]
    assert header_values({"d": Decimal(1), "x": xid, "l": odd, "m": {"u": odd[2]}}) == {"l": [], "m": {}}


def test_a_dead_letter_has_its_history() -> None:
    found = with_history(Envelope("e", "k", deaths=DEATHS), {"mine": 1, "x-death": [{"queue": "q0"}]})
    assert found["mine"] == 1
    assert found["x-death"] == [
        {
            "count": 2,
            "reason": "expired",
            "queue": "q2",
            "time": types.Datetime(9),
            "exchange": "e2",
            "routing-keys": ["k2", "k3"],
            "original-expiration": "50",
        },
        {
            "count": 1,
            "reason": "rejected",
            "queue": "q1",
            "time": types.Datetime(5),
            "exchange": "e1",
            "routing-keys": ["k1"],
        },
        {"queue": "q0"},
    ]
    first = [found[f"x-first-death-{what}"] for what in ("exchange", "queue", "reason")]
    assert first == ["e1", "q1", "rejected"]


def test_a_history_from_before_keeps_its_first_death() -> None:
    found = with_history(Envelope("e", "k", deaths=DEATHS), {"x-first-death-queue": "q0", "x-death": "no list"})
    assert found["x-first-death-queue"] == "q0"
    assert "x-first-death-reason" not in found
    assert len(found["x-death"]) == 2


def test_other_messages_have_no_history() -> None:
    headers = {"a": 1}
    assert with_history(Envelope("e", "k"), headers) is headers
