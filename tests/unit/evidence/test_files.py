"""What can be started, and what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.evidence import files
from escrowmq.evidence.files import BrokerFiles


def test_without_folders_nothing_can_be_started(tmp_path: Path) -> None:
    found = BrokerFiles(tmp_path)
    assert "http.audits" in found.audit.lack()
    assert "http.backups" in found.backup.lack()
    assert found.audits is None


def test_an_audit_without_its_extra_is_refused_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = BrokerFiles(tmp_path, tmp_path / "audits", tmp_path / "backups")
    assert (found.audit.lack(), found.backup.lack()) == ("", "")
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    assert found.audit.lack() == "the audit needs Spark: pip install 'escrowmq[spark]'"
