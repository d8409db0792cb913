"""`escrowmq tx show` prints the parts of an xid as text where they are text."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.cli import main, transactions


@pytest.mark.parametrize(
    ("gtrid", "shown"),
    [
        ("zoé", "'zoé'"),
        ("order 7 ", "'order 7 '"),
        ("not printable", "'not printable'"),
        ("", "''"),
        (None, "not printable"),
    ],
)
def test_text_in_an_xid_is_shown_in_quotes(
    gtrid: str | None, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    branch: dict[str, Any] = {
        "xid": "1:7a6fc3a9:6d71",
        "gtrid": gtrid,
        "bqual": "mq",
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
    assert main(["tx", "show", "1:7a6fc3a9:6d71"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"gtrid     {shown}" in lines
    assert "bqual     'mq'" in lines
