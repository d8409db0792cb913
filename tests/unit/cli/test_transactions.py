"""`escrowmq tx show` prints an xid so that a person can read it."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.cli import main, transactions
from escrowmq.core.branches.xid import Xid
from escrowmq.xid_names.names import shown
from tests.unit.xid_names.test_narayana import NAME, XID


def printed(xid: Xid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that `escrowmq tx show` prints about a branch with this xid."""
    branch: dict[str, Any] = {
        "xid": str(xid),
        "name": shown(xid),
        "state": "prepared",
        "seconds": 5,
        "timeout": 60,
        "vhost": "/",
        "owner": "guest",
        "workers": 0,
        "published": [],
        "settled": [],
    }
    monkeypatch.setattr(transactions, "ask", lambda *_, **__: branch)
    assert main(["tx", "show", str(xid)]) == 0
    return capsys.readouterr().out.splitlines()


def test_text_in_an_xid_is_shown_in_quotes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(Xid(1, b"order 7 ", b"mq"), monkeypatch, capsys)[:4] == [
        "xid            1:6f72646572203720:6d71",
        "gtrid          'order 7 '",
        "bqual          'mq'",
        "in PostgreSQL  1_b3JkZXIgNyA=_",
    ]


def test_a_branch_of_narayana_is_shown_as_in_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(XID, monkeypatch, capsys)[:8] == [
        f"name           {NAME}",
        f"xid            {XID}",
        "node           order-transfer",
        "transaction    0:ffff7f000001:9623:6b0abea4:0",
        "branch         0:ffff7f000001:9623:6b0abea4:1",
        f"gtrid          0x{XID.gtrid.hex()}",
        f"bqual          0x{XID.bqual.hex()}",
        "in PostgreSQL  131077_AAAAAAAAAAAAAP//fwAAAQAAliNrCr6kAAAAAG9yZGVyLXRyYW5zZmVy_",
    ]
