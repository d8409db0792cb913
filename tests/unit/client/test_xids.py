"""Everything that names a branch becomes an xid; anything else is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from escrowmq.client.errors import ProgrammingError
from escrowmq.client.xids import as_xid, make_xid
from escrowmq.core.branches.xid import Xid

XID = Xid(5, b"gt", b"bq")


def test_text_and_bytes_give_the_same_xid() -> None:
    assert make_xid(5, "gt", "bq") == make_xid(5, b"gt", bytearray(b"bq")) == XID == (5, b"gt", b"bq")  # type: ignore[arg-type]
    assert make_xid(0, "ü", "").gtrid == "ü".encode()


@pytest.mark.parametrize(
    "given",
    [XID, (5, "gt", "bq"), [5, b"gt", b"bq"], "5:6774:6271", SimpleNamespace(format_id=5, gtrid="gt", bqual="bq")],
)
def test_xids_of_other_drivers_are_converted(given: object) -> None:
    assert as_xid(given) == XID


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "5:zz:00",
        "gtrid",
        (5, "gt"),
        (5, "gt", "bq", "more"),
        (5, "", "bq"),
        (5, "x" * 65, "bq"),
        (5, "gt", "ü" * 33),
        (-1, "gt", "bq"),
        (2**32, "gt", "bq"),
        ("5", "gt", "bq"),
        (5, None, "bq"),
        (5, 1, 2),
        SimpleNamespace(format_id=5, gtrid="gt"),
    ],
)
def test_invalid_xids_are_refused(given: object) -> None:
    with pytest.raises(ProgrammingError):
        as_xid(given)
