"""Branches of Narayana's are shown as Narayana's log writes them."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.xid import Xid
from escrowmq.xid_names.narayana import NarayanaXid, details, parsed, shown

TRANSACTION = "00000000000000000000ffff7f000001000096236b0abea400000000"
BRANCH = "00000000000000000000ffff7f000001000096236b0abea400000001"
XID = Xid(131077, bytes.fromhex(TRANSACTION) + b"order-transfer", bytes.fromhex(BRANCH) + bytes(8))
"""Narayana 7.3.4 has made it, and writes it as < tx_uid=0:ffff7f000001:9623:6b0abea4:0, node_name=order-transfer,
branch_uid=0:ffff7f000001:9623:6b0abea4:1, subordinatenodename=null, eis_name=0 >.
"""
NAME = "narayana:order-transfer@0:ffff7f000001:9623:6b0abea4:0,0:ffff7f000001:9623:6b0abea4:1"
NEGATIVE = bytes.fromhex("ffffffff80a80006ffffffffac18009500008a6ba0d0729100000013")
"""Narayana writes it as -7f57fffa:-53e7ff6b:8a6b:-5f2f8d6f:13."""


def test_a_branch_is_shown_by_node_transaction_and_branch() -> None:
    assert shown(XID) == NAME
    assert details(XID) == [
        ("node", "order-transfer"),
        ("transaction", "0:ffff7f000001:9623:6b0abea4:0"),
        ("branch", "0:ffff7f000001:9623:6b0abea4:1"),
    ]


def test_numbers_of_ids_are_signed() -> None:
    told = dict(details(Xid(131077, NEGATIVE, NEGATIVE + bytes(8))))
    assert told["transaction"] == told["branch"] == "-7f57fffa:-53e7ff6b:8a6b:-5f2f8d6f:13"


@pytest.mark.parametrize(
    ("tail", "written"),
    [
        (bytes(8), ""),
        (b"\0\0\0\7" + bytes(4), ",7"),
        (b"\xff" * 4 + bytes(4), ",-1"),
        (bytes(7) + b"\3sub", ",0,sub"),
        (b"\0\0\0\7" + b"\0\0\0\3sub", ",7,sub"),
    ],
)
def test_the_name_that_is_shown_is_read(tail: bytes, written: str) -> None:
    xid = Xid(131077, NEGATIVE + b"n-1", NEGATIVE + tail)
    name = shown(xid)
    assert name is not None
    assert name.endswith(f":13{written}")
    assert parsed(name) == xid


def test_a_branch_qualifier_that_an_old_version_filled_with_zeros_has_details_and_no_name() -> None:
    padded = XID._replace(bqual=XID.bqual.ljust(64, b"\0"))
    assert shown(padded) is None
    assert details(padded) == details(XID)


@pytest.mark.parametrize(
    "xid",
    [
        XID._replace(format_id=1),
        XID._replace(gtrid=XID.gtrid[:27]),
        XID._replace(bqual=XID.bqual[:35]),
        XID._replace(gtrid=XID.gtrid + b"\xff"),
        XID._replace(gtrid=XID.gtrid + b"\n"),
        XID._replace(gtrid=XID.gtrid + b"@"),
        XID._replace(bqual=XID.bqual[:35] + b"\1"),
        XID._replace(bqual=XID.bqual + b"\1"),
        XID._replace(bqual=XID.bqual[:32] + b"\xff" * 4),
    ],
)
def test_other_branches_have_no_such_name(xid: Xid) -> None:
    assert (shown(xid), details(xid)) == (None, [])


@pytest.mark.parametrize(
    "name", [NAME[1:], NAME[:-2], f"{NAME},x", f"{NAME},{1 << 31}", NAME.replace("0:ffff", "zz:ff")]
)
def test_other_texts_are_no_names(name: str) -> None:
    assert parsed(name) is None


def test_a_number_that_does_not_fit_is_no_name() -> None:
    assert NarayanaXid("n", "1:1:80000000:1:1", "0:0:0:0:0", 0, "", 0).encode() is None
