"""The name and the address of a node. A node is refused if another one has its name: operators could not tell the two.

Only the node that came later is refused, and only while it starts. A node that has moved to another address finds its
own old reports in the log, but no more are added to them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final

from escrowmq.config.replication import ReplicationSection
from escrowmq.replica.errors import NameTaken
from escrowmq.replica.fold import Fold, SeenReport
from escrowmq.server.listener import Bound
from escrowmq.server.replica.shipper import REPORT_SECONDS

WINDOW_SECONDS: Final = 3 * REPORT_SECONDS
"""How long a node that starts looks for others. Each reports once in `REPORT_SECONDS`."""


def node_names(section: ReplicationSection, bound: Sequence[Bound]) -> tuple[str, str]:
    """Return the name of this node, and the address that it tells others."""
    return section.node or socket.gethostname(), section.advertised_url or next(iter(bound)).url


class NameCheck:
    """The check of the node `node` at the address `url`."""

    def __init__(self, node: str, url: str) -> None:
        self._own = node, url
        self._until = 0.0
        self._known: dict[str, SeenReport] = {}
        """By address: reports of other nodes of this name. With a further one of such a node, this node is refused."""

    def check(self, fold: Fold) -> None:
        """Look at the end of the log, again and again. Raises NameTaken."""
        now = time.monotonic()
        if not self._until:
            self._until = now + WINDOW_SECONDS
            self._known = self._namesakes(fold.reports)
        elif now < self._until:
            for url, seen in self._namesakes(fold.reports).items():
                before = self._known.get(url)
                if before is not None and seen is not before:
                    raise NameTaken(self._own[0], url)
                if before is None and url < self._own[1]:  # both have started at the same time, and one of them stays
                    self._known[url] = seen

    def _namesakes(self, reports: Mapping[tuple[str, str], SeenReport]) -> dict[str, SeenReport]:
        node, own = self._own
        return {url: seen for (name, url), seen in reports.items() if name == node and url != own}
