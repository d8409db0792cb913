"""Offsets as Spark keeps them in the checkpoint: `{"group": "…", "queues": {"orders": 101}}`.

For each queue the number of the message that is read next: of a stream its position, of a classic queue the number that
the group's hold gave it. Keys are sorted, since Spark compares offsets as text.

Positions begin again in a stream that is deleted and made anew, so `"streams": {"log": 7}` says which one they are of.
A group's numbers need no such thing: they only grow as far as the group itself has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.spark.errors import OptionError

Offsets = dict[str, int]


def encode(group: str, offsets: Mapping[str, int], streams: Mapping[str, int] | None = None) -> dict[str, Any]:
    """For Spark. `streams`: of those among the queues that are streams, the number of each that is only its own."""
    encoded: dict[str, Any] = {"group": group, "queues": _sorted(offsets)}
    if streams:
        encoded["streams"] = _sorted(streams)
    return encoded


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


def streams(given: Mapping[str, Any]) -> dict[str, int]:
    """What `encode` was told of streams; those of a checkpoint that is older than that are not among them."""
    return {str(queue): int(ident) for queue, ident in given.get("streams", {}).items()}


def _sorted(numbers: Mapping[str, int]) -> dict[str, int]:
    return {queue: numbers[queue] for queue in sorted(numbers)}
