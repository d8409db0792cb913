"""The HTTP interface with the routes over files in `folder`, and an index that no process keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.admin.http.app import HttpInterface
from escrowmq.evidence.files import BrokerFiles
from escrowmq.evidence.indexing import Indexer
from escrowmq.evidence.routes import file_routes
from escrowmq.history.following import bring_up_to_date
from escrowmq.history.index import MessageIndex
from tests.harness.server import SimServer
from tests.unit.admin.http.sites import HttpSite


class FileSite(HttpSite):
    """A site with users `m` (monitoring), `u` (management) and `plain` (no tag)."""

    def __init__(self, folder: Path, made: SimServer | None = None, audits: Path | None = None) -> None:
        super().__init__(made)
        self.files = BrokerFiles(folder, audits)
        self.app = HttpInterface(self.broker, more=file_routes(self.files)).app()
        for name, tags in (("m", ("monitoring",)), ("u", ("management",)), ("plain", ())):
            self.server.broker.access.add_user(name, "hash", tags)


def index(folder: Path) -> None:
    """Bring the index of a journal up to date."""
    made = MessageIndex(folder)
    try:
        for _ in bring_up_to_date(folder, made):
            pass
    finally:
        made.close()


@pytest.fixture(autouse=True)
def no_indexer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process that keeps the index."""

    async def nothing(_: Indexer) -> None:
        pass

    monkeypatch.setattr(Indexer, "looked", nothing)
