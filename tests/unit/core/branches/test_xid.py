"""Identifiers of branches: their binary and text forms."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition

PART = st.binary(max_size=64)
XIDS = st.builds(Xid, st.integers(0, 2**32 - 1), PART, PART)


def test_the_binary_form_is_that_of_the_dtx_classes() -> None:
    xid = Xid(0x01020304, b"gt", b"bq!")
    assert xid.encode() == b"\x01\x02\x03\x04\x02\x03gtbq!"
    assert Xid.decode(xid.encode()) == xid
    assert str(Xid(1, b"gti", b"bq")) == "1:677469:6271"


@pytest.mark.rule("DTX-13")
@given(XIDS, XIDS)
def test_both_forms_are_reversible_and_distinguish_all_parts(one: Xid, other: Xid) -> None:
    assert Xid.decode(one.encode()) == Xid.parse(str(one)) == one
    assert Xid.decode(memoryview(one.encode())) == one
    assert (one.encode() == other.encode()) == (one == other) == (str(one) == str(other))


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    found = []
    with contextlib.suppress(BrokerError):
        found.append(Xid.decode(data).encode())
    assert found in ([], [data])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\1\1",
        b"\0\0\0\1\1\1g",
        b"\0\0\0\1\1\1gbx",
        b"\0\0\0\1\x41\0" + b"g" * 65,
        b"\0\0\0\1\0\x41" + b"b" * 65,
    ],
)
def test_inconsistent_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(BrokerError, match="malformed"):
        Xid.decode(data)


@pytest.mark.parametrize("text", ["", "1:00", "x:00:00", "1:0:00", "1:00:zz", "-1:00:00", "1:00:00:00", "4294967296::"])
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        Xid.parse(text)
    assert refused.value.condition is Condition.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "xid", [Xid(-1, b"", b""), Xid(2**32, b"", b""), Xid(1, b"g" * 65, b""), Xid(1, b"", b"b" * 65)]
)
def test_parts_out_of_range_are_refused(xid: Xid) -> None:
    with pytest.raises(BrokerError):
        xid.encode()
