"""Operations on the journal: snapshots and compaction, and how far it is on disk."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.ports import BrokerProcess


class JournalAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self.operations: Mapping[str, Operation] = {
            "journal.snapshot": self.snapshot,
            "journal.compact": self.compact,
            "journal.synced": self.synced,
        }

    async def synced(self) -> int:
        """Return the LSN below which everything is on disk. Everything confirmed before the request lies below it."""
        return self._process.synced_lsn

    async def snapshot(self) -> None:
        """Take a snapshot, which bounds the next recovery; dead segments are deleted after it."""
        await self._run(compact=False)

    async def compact(self) -> None:
        """Copy the live messages out of every segment that is partly dead, then take a snapshot."""
        await self._run(compact=True)

    async def _run(self, *, compact: bool) -> None:
        if failure := await self._process.snapshot(compact=compact):
            raise OperationRefused(failure)
