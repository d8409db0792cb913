"""A branch is found by each of its names."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.spark.identity import Epoch
from escrowmq.xid_names.names import details, in_postgresql, parsed, quoted, shown
from tests.unit.xid_names import test_narayana

SPARK = Epoch("etl", 17, run="0123456789abcdef").settle
NARAYANA = test_narayana.XID
OTHER = Xid(1, b"order-7", b"mq")


@pytest.mark.parametrize("xid", [SPARK, NARAYANA, OTHER, Xid(4294967295, b"\xff", b"")])
def test_every_name_is_read(xid: Xid) -> None:
    assert parsed(shown(xid)) == parsed(str(xid)) == xid


def test_known_programs_have_readable_names() -> None:
    assert [shown(xid).partition(":")[0] for xid in (SPARK, NARAYANA, OTHER)] == ["spark", "narayana", "1"]
    assert [name for name, _ in details(SPARK)] == ["application", "epoch", "work"]
    assert [name for name, _ in details(NARAYANA)] == ["node", "transaction", "branch"]
    assert details(OTHER) == []


@pytest.mark.parametrize(
    ("name", "xid"),
    [
        ("1_b3JkZXItNw==_bXE=", OTHER),
        ("131077_AAAAAAAAAAAAAP//fwAAAQAAliNrCr6kAAAAAG9yZGVyLXRyYW5zZmVy_", NARAYANA._replace(bqual=b"")),
        ("-1_/w==_", Xid(4294967295, b"\xff", b"")),
    ],
)
def test_the_name_in_postgresql_is_read(name: str, xid: Xid) -> None:
    assert parsed(name) == xid


@pytest.mark.parametrize("xid", [OTHER, NARAYANA, Xid(4294967295, b"\xff", b"")])
def test_the_beginning_of_the_names_in_postgresql_is_shown(xid: Xid) -> None:
    assert parsed(in_postgresql(xid)) == xid._replace(bqual=b"")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "order-7",
        "1_b3JkZXItNw_bXE=",
        "-9999999999_/w==_",
        "4294967296_/w==_",
        f"spark:{'x' * 65}:y",
        f"narayana:{'n' * 40}@0:0:0:0:0,0:0:0:0:0",
    ],
)
def test_other_texts_are_refused(name: str) -> None:
    with pytest.raises(BrokerError, match="xid is malformed"):
        parsed(name)


@pytest.mark.parametrize("name", ["spark:\ud800:x", "narayana:\ud800@0:0:0:0:0,0:0:0:0:0"])
def test_a_name_with_half_of_a_surrogate_pair_is_of_no_known_branch(name: str) -> None:
    assert shown(parsed(name)) == str(parsed(name))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("zoé".encode(), "'zoé'"),
        (b"order 7 ", "'order 7 '"),
        (b"0xff", "'0xff'"),
        (b"", "''"),
        ("zoé".encode("latin-1"), "0x7a6fe9"),
        (b"zo\n", "0x7a6f0a"),
    ],
)
def test_text_in_an_xid_is_shown_in_quotes_and_other_bytes_in_hexadecimal(part: bytes, text: str) -> None:
    assert quoted(part) == text
