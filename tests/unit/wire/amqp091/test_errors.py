"""Reply texts, errors, and the translation of the core's conditions."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import Condition
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import REPLIES, SyntaxFault, reply_text


@pytest.mark.parametrize(
    ("condition", "code", "name", "hard"),
    [
        (Condition.NOT_FOUND, 404, "NOT_FOUND", False),
        (Condition.ACCESS_REFUSED, 403, "ACCESS_REFUSED", False),
        (Condition.RESOURCE_LOCKED, 405, "RESOURCE_LOCKED", False),
        (Condition.PRECONDITION_FAILED, 406, "PRECONDITION_FAILED", False),
        (Condition.INVALID_ARGUMENT, 406, "PRECONDITION_FAILED", False),
        (Condition.NOT_ALLOWED, 530, "NOT_ALLOWED", True),
        (Condition.NOT_IMPLEMENTED, 540, "NOT_IMPLEMENTED", True),
        (Condition.ILLEGAL_STATE, 503, "COMMAND_INVALID", False),
        (Condition.COMMAND_INVALID, 503, "COMMAND_INVALID", False),
        (Condition.LIMIT_EXCEEDED, 506, "RESOURCE_ERROR", False),
        (Condition.INTERNAL, 541, "INTERNAL_ERROR", True),
    ],
)
def test_each_condition_has_its_reply(condition: Condition, code: int, name: str, hard: bool) -> None:
    assert REPLIES[condition] == (code, name, hard)


def test_every_condition_is_translated() -> None:
    assert set(REPLIES) == set(Condition)


def test_errors_that_close_the_connection_are_hard_in_the_specification() -> None:
    assert all(reply.code in codes.HARD_ERRORS for reply in REPLIES.values() if reply.hard)


def test_reply_text_begins_with_the_name_of_the_code() -> None:
    assert reply_text(404, "no queue 'q' in vhost '/'") == "NOT_FOUND - no queue 'q' in vhost '/'"
    assert reply_text(999, "odd") == "999 - odd"


@pytest.mark.parametrize(
    ("text", "size"),
    [("a" * 243, 255), ("a" * 244, 255), ("a" * 242 + "é", 254), ("a" * 241 + "é", 255), ("a" * 240 + "🎉" * 9, 252)],
)
def test_reply_text_is_cut_between_characters(text: str, size: int) -> None:
    cut = reply_text(404, text)
    assert len(cut.encode()) == size
    assert f"NOT_FOUND - {text}".startswith(cut)


def test_reply_text_replaces_characters_that_utf8_cannot_encode() -> None:
    assert reply_text(404, "queue \udcff") == "NOT_FOUND - queue ?"


def test_a_fault_reads_like_its_reply_text() -> None:
    fault = SyntaxFault(501, "frame ends with 0x00")
    assert (fault.code, fault.text) == (501, "frame ends with 0x00")
    assert str(fault) == "FRAME_ERROR - frame ends with 0x00"
