"""What a snapshot would contain about names, for tests."""

from __future__ import annotations

from typing import Any

from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site


def topology(site: Site) -> list[tuple[Kind, dict[str, Any]]]:
    """Return all durable names and their attributes."""
    directory = site.broker.directory
    return sorted(directory.topology_records(directory.durable_queues()), key=repr)
