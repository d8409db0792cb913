"""The fields of requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import LARGEST_DOCUMENT, document, flag, member, number, objects, text

FIELDS = {"n": "-5", "t": "x", "yes": "True", "no": "false", "huge": "9" * 19}


def test_fields_are_read_with_their_types() -> None:
    assert (text(FIELDS, "t"), number(FIELDS, "n"), number(FIELDS, "missing", 7)) == ("x", -5, 7)
    assert (flag(FIELDS, "yes"), flag(FIELDS, "no"), flag(FIELDS, "missing")) == (True, False, False)


@pytest.mark.parametrize(
    "read", [lambda: text(FIELDS, "missing"), lambda: number(FIELDS, "t"), lambda: number(FIELDS, "huge")]
)
def test_other_fields_are_refused(read: Callable[[], object]) -> None:
    with pytest.raises(RequestFault):
        read()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"1", b"\xff", b"[" * 100_000, b" " * (LARGEST_DOCUMENT + 1)])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestFault):
        document(body)


@given(st.binary(max_size=40))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        assert isinstance(document(body), dict)
    except RequestFault:
        return


def test_members_of_objects_are_read_leniently() -> None:
    assert objects([{"a": 1}, 2, None], 3) == [{"a": 1}]
    assert objects(None, 3) == []
    assert (member({"a": "b"}, "a"), member({"a": 1}, "a"), member({}, "a")) == ("b", "", "")
    with pytest.raises(RequestFault):
        objects([{}, {}], 1)
