"""The neutral form, and the table of conversions as a matrix: each fact, published by each protocol, to the other."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.values import canonical_table
from escrowmq.wire.amqp091 import keyed
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Float32, Int8, Int32, Moment, Neutral, UInt64, UniqueId, id_text

COMMON: dict[str, Any] = {
    "annotations": {"x-note": "n", "x-list": ["a", Int32(1)]},
    "message_id": "m-1",
    "user_id": b"guest",
    "reply_to": "/queues/replies%2F1",
    "correlation_id": "c-1",
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "created": 1_700_000_000_000,
    "group_id": "app",
    "kind": "order",
    "properties": {"n": Int32(5), "l": 2**40, "b": Int8(-1), "f": Float32(1.5), "d": 2.5, "t": True, "o": b"o"},
    "body": b"body",
}
"""Facts that both protocols can express."""


def message(**facts: Any) -> Neutral:
    return Neutral("e", "k", **{"subject": "k", "durable": True, "priority": 7, "ttl": 60000, **facts})


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("protocol", [PLAIN, SECTIONS])
@pytest.mark.parametrize("through", [PLAIN, SECTIONS])
@pytest.mark.parametrize("fact", [None, *COMMON])
def test_a_fact_that_both_protocols_express_survives_any_way(protocol: int, through: int, fact: str | None) -> None:
    sent = message(**(COMMON if fact is None else {fact: COMMON[fact]}))
    envelope, content = FORMATS[protocol].encode(sent)
    envelope, content = FORMATS[through].encode(FORMATS[protocol].neutral(envelope, content))
    assert FORMATS[through].neutral(envelope, content) == sent
    assert (envelope.durable, envelope.priority, envelope.ttl) == (True, 7, 60000)


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("protocol", [PLAIN, SECTIONS])
@pytest.mark.parametrize(
    "value", [UniqueId(bytes(range(16))), b"octets", "long" * 100], ids=["uuid", "binary", "long text"]
)
def test_an_id_of_another_type_survives(protocol: int, value: Any) -> None:
    sent = message(message_id=value, correlation_id=value)
    assert FORMATS[protocol].neutral(*FORMATS[protocol].encode(sent)) == sent


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("body", [b"", b"x" * 300])
@pytest.mark.parametrize("protocol", [PACKED, KEYED])
def test_every_form_of_amqp_091_is_translated_alike(protocol: int, body: bytes) -> None:
    props = Properties(message_id="m", headers={"k": "v"}, delivery_mode=2, priority=1).encode()
    facts: dict[str, Any] = {"durable": True, "priority": 1}
    plain = FORMATS[PLAIN].neutral(Envelope("e", "k", props, protocol=PLAIN, **facts), body)
    content = pack(props, body)
    if protocol == KEYED:
        envelope = Envelope("e", "", protocol=KEYED, **facts)
        content = keyed.join(b"k", content)
    else:
        envelope = Envelope("e", "k", protocol=PACKED, **facts)
    assert FORMATS[protocol].neutral(envelope, content) == plain
    assert FORMATS[protocol].encode(plain)[0].encode() == FORMATS[PLAIN].encode(plain)[0].encode()


@pytest.mark.rule("MSG-3")
def test_headers_are_the_same_in_every_form() -> None:
    facts = {"properties": {**COMMON["properties"], "when": Moment(1_700_000_000_000)}, "annotations": {"x-a": "b"}}
    found = [FORMATS[form].headers(*FORMATS[form].encode(message(**facts))) for form in (PLAIN, SECTIONS)]
    added = ("x-exchange", "x-routing-key")
    assert canonical_table(found[0]) == canonical_table(
        {name: value for name, value in found[1].items() if name not in added}
    )


def test_facts_that_only_one_protocol_has_are_dropped() -> None:
    sent = message(
        to="/queues/q", expires=5, group_sequence=1, reply_to_group_id="r", properties={"u": UInt64(2**64 - 1)}
    )
    found = FORMATS[PLAIN].neutral(*FORMATS[PLAIN].encode(sent))
    assert (found.to, found.expires, found.group_sequence, found.reply_to_group_id) == (None, None, None, None)
    assert found.properties == {"u": str(2**64 - 1)}


@pytest.mark.parametrize("protocol", [PLAIN, SECTIONS])
def test_the_dead_letter_history_and_further_keys_stay(protocol: int) -> None:
    deaths = (Death("q", "rejected", 1, 5, "e", ("k",), None),)
    envelope, _ = FORMATS[protocol].encode(message(deaths=deaths, extra_keys=("a",)))
    assert (envelope.deaths, envelope.extra_keys) == (deaths, ("a",))


@pytest.mark.rule("MSG-1")
def test_a_body_that_is_no_octets_crosses_as_encoded_sections_and_comes_back() -> None:
    body = sections.encode_section(sections.VALUE, {"k": [1]})
    envelope, content = FORMATS[PLAIN].encode(FORMATS[SECTIONS].neutral(Envelope("e", "k", protocol=SECTIONS), body))
    assert Properties.decode(envelope.header).type == "amqp-1.0"
    assert content == body
    _, back = FORMATS[SECTIONS].encode(FORMATS[PLAIN].neutral(envelope, content))
    assert back.endswith(body)
    assert sections.layout(back).body == (len(back) - len(body), len(back))


def test_annotations_say_where_a_message_of_another_protocol_was_published() -> None:
    _, content = FORMATS[SECTIONS].encode(message())
    assert sections.message_annotations(content) == {Symbol("x-exchange"): "e", Symbol("x-routing-key"): "k"}


DIGITS = "8c24e7b720023bc0bb4ba8af3631019d"
USUAL = "8c24e7b7-2002-3bc0-bb4b-a8af3631019d"


@pytest.mark.parametrize(
    ("value", "text"),
    [("m-1", "m-1"), (UInt64(7), "7"), (b"\x01\xff", "01ff"), (UniqueId(bytes.fromhex(DIGITS)), USUAL)],
)
def test_an_id_is_shown_as_a_text(value: Any, text: str) -> None:
    assert id_text(value) == text
