"""Where the files are that the HTTP process reads itself, and the commands that it can start for them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from escrowmq.evidence.audits import AuditFolder
from escrowmq.evidence.commands import OperatorCommand
from escrowmq.evidence.indexing import Indexer
from escrowmq.history.room import reserve_of


class BrokerFiles:
    """The files of the broker whose journal is in `data_dir`. `audits` and `backups` are the configured folders.
    `disk_limit` is the free space below which the broker raises its disk alarm, in bytes.
    """

    def __init__(
        self, data_dir: Path, audits: Path | None = None, backups: Path | None = None, disk_limit: int = 0
    ) -> None:
        self.data_dir = data_dir
        self.indexer = Indexer(data_dir, reserve_of(disk_limit))
        self.audits = None if audits is None else AuditFolder(audits)
        command, data = [sys.executable, "-m", "escrowmq"], str(data_dir)
        auditing = [*command, "audit", data, "--out", str(audits)]
        self.audit = OperatorCommand("audit", auditing, lambda: _no_audit(audits))
        copying = [*command, "backup", str(backups), "--data-dir", data]
        self.backup = OperatorCommand("backup", copying, lambda: _no_backup(backups))

    def stop(self) -> None:
        """End the commands that run."""
        for job in (self.audit, self.backup):
            job.stop()


def _no_audit(folder: Path | None) -> str:
    if folder is None:
        return "no folder for audits is configured; set http.audits"
    if not all(map(_installed, ("pyspark", "pyarrow", "numpy"))):
        return "the audit needs Spark: pip install 'escrowmq[spark]'"
    return ""


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module that is hidden from this process
        return False


def _no_backup(folder: Path | None) -> str:
    return "" if folder is not None else "no folder for backups is configured; set http.backups"
