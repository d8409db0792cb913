"""Operations on the progress of applications: list it, give it to another user, and reset it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.branches.progress import NOTHING_DECIDED, application_key


class ProgressAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._table = process.broker.coordinator.progress
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "progress.list": self.list_progress,
            "progress.assign": self.assign,
            "progress.reset": self.reset,
        }

    async def list_progress(self) -> Listing:
        """Return the progress of every application; `epoch` is None if nothing is decided yet."""
        return Listing(self._pieces, self._rows())

    async def assign(self, vhost: str, application: str, user: str) -> None:
        """Give an application's progress to another user. Raises BrokerError for an unknown virtual host or user."""
        self._broker.directory.vhost(vhost)
        self._broker.access.user(user)
        await self._process.durably(lambda: self._table.assign(application_key(vhost, application), user))

    async def reset(self, vhost: str, application: str) -> int | None:
        """Forget an application's progress; return its last epoch. Raises BrokerError for an unknown application."""
        found = await self._process.durably(lambda: self._table.reset(application_key(vhost, application)))
        return _epoch(found.epoch)

    def _rows(self) -> Iterator[Row | None]:
        for progress in self._table.all():
            yield {
                "vhost": progress.vhost,
                "application": progress.application,
                "epoch": _epoch(progress.epoch),
                "user": progress.user,
            }


def _epoch(epoch: int) -> int | None:
    return None if epoch == NOTHING_DECIDED else epoch
