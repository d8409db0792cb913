"""Names of sessions: each user has a name once."""

from __future__ import annotations

from typing import cast

from escrowmq.wire.amqp010.names import MOST_DETACHED, SessionNames
from escrowmq.wire.amqp010.session import Session


def test_a_name_belongs_to_a_user_until_its_session_frees_it() -> None:
    names = SessionNames()
    one = cast("Session", object())
    other = cast("Session", object())
    names.add("u", "/", b"n", one)
    assert names.find("u", "/", b"n") is one
    assert names.find("v", "/", b"n") is None
    assert names.find("u", "other", b"n") is None
    names.remove("u", "/", b"n", other)
    assert names.find("u", "/", b"n") is one
    names.remove("u", "/", b"n", one)
    assert names.find("u", "/", b"n") is None


def test_a_user_has_a_limit_on_sessions_that_are_kept() -> None:
    names = SessionNames()
    for _ in range(MOST_DETACHED):
        assert names.may_keep("u")
        names.kept("u")
    assert not names.may_keep("u")
    assert names.may_keep("v")
    names.kept_no_more("u")
    assert names.may_keep("u")
