"""Messages are checked before they are sent."""

from __future__ import annotations

import pytest

from escrowmq.amqp10 import operations
from escrowmq.amqp10.errors import UsageError
from escrowmq.amqp10.message import Message
from tests.harness.amqp10_peer import connected, sending

WRONG = ["text", 1, None, {"body": "text"}, bytearray(b"text")]


def test_a_message_and_its_octets_are_the_same() -> None:
    message = Message("text")
    assert operations.encoded(message) == operations.encoded(message.encode()) == message.encode()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError, match=f"expected a Message, not {type(wrong).__name__}; "):
        operations.encoded(wrong)  # type: ignore[arg-type]


def test_nothing_is_sent_of_a_chunk_with_something_else() -> None:
    _, peer, session = connected()
    link = sending(peer, session)
    with pytest.raises(UsageError, match="expected a Message, not str"):
        next(operations.send_many(link, [Message(1), "text"], None, 100))  # type: ignore[list-item]
    link.pump()
    assert peer.payloads() == []
