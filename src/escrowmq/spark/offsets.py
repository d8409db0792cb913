"""Offsets as Spark keeps them in the checkpoint: `{"group": "…", "queues": {"orders": 101}}`.

For each queue the number of the message that is read next: of a stream its position, of a classic queue the number that
the group's hold gave it. Keys are sorted, since Spark compares offsets as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.spark.errors import OptionError

Offsets = dict[str, int]


def encode(group: str, offsets: Mapping[str, int]) -> dict[str, Any]:
    """For Spark."""
    return {"group": group, "queues": {queue: offsets[queue] for queue in sorted(offsets)}}


def decode(group: str, given: Mapping[str, Any]) -> Offsets:
    """From Spark. Raises OptionError if they belong to another group: its numbers name other messages."""
    if not given:
        return {}
    if given.get("group") != group:
        raise OptionError(
            f"the checkpoint belongs to group {given.get('group')!r}, the query has {group!r}; "
            "go on with the former, or begin with a new checkpoint"
        )
    return {str(queue): int(number) for queue, number in given["queues"].items()}
