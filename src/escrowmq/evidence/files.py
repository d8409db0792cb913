"""Where the files are, and what keeps their index up to date."""

from __future__ import annotations

from pathlib import Path

from escrowmq.evidence.indexing import Indexer


class BrokerFiles:
    """The files of the broker whose journal is in `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.indexer = Indexer(data_dir)
