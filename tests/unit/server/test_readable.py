"""Messages as operators read them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from escrowmq.server.readable import BEGINNING, readable
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.properties import render


def shown(body: bytes, *, whole: bool = False) -> dict[str, Any]:
    content = MessageContent(render({"KEYS": "order-7", "UNIQ_KEY": "u", "mine": "m"}), body).pack()
    return readable(envelope_of("orders", "new"), content, whole=whole)


def test_a_message_has_its_tag_keys_properties_and_body() -> None:
    assert shown("für\tdich\n".encode()) == {
        "message_id": "u",
        "correlation_id": None,
        "content_type": None,
        "tag": "new",
        "keys": "order-7",
        "message_group": None,
        "properties": {"mine": "m"},
        "deaths": [],
        "content_encoding": None,
        "bytes": 10,
        "body": "für\tdich\n",
        "body_base64": None,
        "body_is_whole": True,
    }


@pytest.mark.parametrize("body", [b"\xff", b"a\x00", b"\x1b[31m"])
def test_a_body_that_is_not_text_is_base64(body: bytes) -> None:
    found = shown(body)
    assert (found["body"], base64.b64decode(found["body_base64"])) == (None, body)


def test_a_long_body_is_cut_unless_all_of_it_is_asked_for() -> None:
    body = b"x" + "ü".encode() * BEGINNING
    found = shown(body)
    assert (found["body"], found["body_is_whole"], found["bytes"]) == (body[: BEGINNING - 1].decode(), False, len(body))
    found = shown(body, whole=True)
    assert (found["body"], found["body_is_whole"]) == (body.decode(), True)
