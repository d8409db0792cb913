"""Names of transactions and branches are unique, short enough for X/Open XA, and distinct from those of others."""

from __future__ import annotations

import psycopg
import pytest

from escrowmq.client import xid as client_xid
from escrowmq.xa import xids


def test_the_longest_names_fit() -> None:
    gtrid = xids.new_gtrid("m" * xids.LONGEST_MANAGER, xids.new_identity())
    assert len(gtrid) <= 64
    assert len(f"{'p' * xids.LONGEST_PARTICIPANT}.{99999}") <= 64
    with pytest.raises(ValueError, match="1 to 32 letters"):
        xids.check_name("manager", "m" * 33, xids.LONGEST_MANAGER)
    assert xids.new_gtrid("m", "i") != xids.new_gtrid("m", "i")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a/b", "a\n"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a manager's name must be"):
        xids.check_name("manager", name, 32)


def test_xids_of_all_drivers_are_understood() -> None:
    wanted = xids.BranchId("m.i.1", "bank.2")
    assert xids.parse(client_xid(xids.FORMAT_ID, *wanted)) == wanted
    assert xids.parse(psycopg.Xid.from_parts(xids.FORMAT_ID, *wanted)) == wanted
    assert xids.parse((xids.FORMAT_ID, *wanted)) == wanted
    assert wanted.participant == "bank"


def test_xids_of_other_managers_are_not_claimed() -> None:
    assert xids.parse(client_xid(1, "m.i.1", "bank.2")) is None
    assert xids.parse(psycopg.Xid.from_string("whatever somebody prepared")) is None


def test_the_manager_of_an_xid_is_recognized() -> None:
    assert xids.is_of("m.i.1", "m", "i")
    assert not xids.is_of("m.j.1", "m", "i")
    assert xids.is_of_namesake("m.j.1", "m", "i")
    assert not xids.is_of_namesake("m.i.1", "m", "i")
    assert not xids.is_of_namesake("mm.j.1", "m", "i")
