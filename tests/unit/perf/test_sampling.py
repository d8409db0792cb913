"""Sampled checks of deliveries: published messages pass, all others are errors."""

from __future__ import annotations

import pytest

from escrowmq.perf.errors import PerfError
from escrowmq.perf.sampling import SAMPLED_BYTES, PublishedContents

BODY = bytes(8) + b"a" * 200


def published() -> PublishedContents:
    contents = PublishedContents()
    contents.add("id", "correlation", BODY)
    return contents


def test_a_published_message_is_accepted_with_any_time_in_its_body() -> None:
    contents = published()
    contents.check("id", "correlation", 208, (b"\x01" * 8 + BODY[8:])[:SAMPLED_BYTES])
    assert contents.checked == 1


@pytest.mark.parametrize(
    ("message_id", "correlation_id", "size", "begin"),
    [
        ("other", "correlation", 208, BODY[:SAMPLED_BYTES]),
        ("id", None, 208, BODY[:SAMPLED_BYTES]),
        ("id", "correlation", 207, BODY[:SAMPLED_BYTES]),
        ("id", "correlation", 208, BODY[: SAMPLED_BYTES - 1] + b"b"),
    ],
)
def test_anything_else_is_an_error(message_id: str, correlation_id: str | None, size: int, begin: bytes) -> None:
    with pytest.raises(PerfError, match="was not published"):
        published().check(message_id, correlation_id, size, begin)


def test_messages_of_other_publishers_are_ignored() -> None:
    contents = published()
    contents.enabled = False
    contents.check("other", None, 1, b"x")
    assert contents.checked == 0
