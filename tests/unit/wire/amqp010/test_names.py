"""Names of sessions: each user has a name once."""

from __future__ import annotations

from typing import cast

from escrowmq.wire.amqp010.names import SessionNames
from escrowmq.wire.amqp010.session import Session


def test_a_name_belongs_to_a_user_until_its_session_frees_it() -> None:
    names = SessionNames()
    one = cast("Session", object())
    other = cast("Session", object())
    names.add("u", b"n", one)
    assert names.find("u", b"n") is one
    assert names.find("v", b"n") is None
    names.remove("u", b"n", other)
    assert names.find("u", b"n") is one
    names.remove("u", b"n", one)
    assert names.find("u", b"n") is None
