"""User-ids in runs of messages, compared with a look at each of them."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import Transfer, encode_performative
from escrowmq.wire.amqp10.codec.sections import DATA, MESSAGE_ANNOTATIONS, PROPERTIES, encode_section
from escrowmq.wire.amqp10.codec.types import Symbol, ULong, Uuid
from escrowmq.wire.amqp10.identity import unclaimed
from tests.unit.wire.amqp10.clients import connected

IDS = [None, ULong(0), ULong(7), ULong(2**40), Uuid(b"0123456789abcdef"), "id", b"id", "x" * 300]
BODY = encode_section(DATA, b"some content")


def content(message_id: Any, user_id: bytes | None, *, annotated: bool = False) -> bytes:
    annotations = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): 1}) if annotated else b""
    return annotations + encode_section(PROPERTIES, [message_id, user_id, "to"]) + BODY


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize("message_id", IDS, ids=repr)
def test_the_first_message_with_a_user_id_is_found(message_id: Any, annotated: bool) -> None:
    plain, claiming = (content(message_id, user, annotated=annotated) for user in (None, b"guest"))
    others = [BODY, content("other", None)]
    assert unclaimed([*others, claiming, *others]) == 2
    if len(plain) < 300:  # a longer list of properties is decoded
        assert unclaimed([*others, plain, *others]) == 5
        assert unclaimed([plain] * 3) == 3


@pytest.mark.parametrize("data", [b"", BODY, b"\x00\x53\x73\xc0\x02\x01\x40" + BODY, content("n", None)])
def test_other_messages_claim_nothing(data: bytes) -> None:
    assert unclaimed([data]) == 1


@pytest.mark.parametrize("data", [b"rubbish", b"\x00\x53\x73\xc0\x09\x03\xa1\x30", b"\x00\x53\x73\xd0"])
def test_malformed_messages_are_decoded(data: bytes) -> None:
    assert unclaimed([BODY, data]) == 1


@pytest.mark.parametrize("claimed", [b"guest", b"other"])
def test_a_run_is_read_up_to_the_first_user_id(claimed: bytes) -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, settled=True)
    payloads = [content("id", claimed if n == 5 else None) for n in range(8)]
    client.send_bytes(
        b"".join(
            frame(0, encode_performative(Transfer(0, 1000 + n, b"%d" % n, 0, True)), payload)
            for n, payload in enumerate(payloads)
        )
    )
    assert made.broker.directory.vhost("/").queue("q").ready == (9 if claimed == b"guest" else 6)
