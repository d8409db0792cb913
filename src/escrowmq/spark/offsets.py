"""Encode offsets for Spark's checkpoint: `{"group": "…", "queues": {"orders": 101}}`.

An offset is, for each queue, the number of the message to read next: its position in a stream, or its number in the
group's reservation of a classic queue. Keys are sorted, because Spark compares offsets as text.

A stream that is deleted and declared again starts from position 1, so `"streams": {"log": 7}` records which stream the
positions belong to. A group's numbers need no such mark, because they grow only with the group's own reservations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.spark.errors import OptionError

Offsets = dict[str, int]


def encode(group: str, offsets: Mapping[str, int], streams: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Encode offsets for the checkpoint.

    Args:
        group: the reading group.
        offsets: the number of the next message of each queue.
        streams: the unique ID of each queue that is a stream.
    """
    encoded: dict[str, Any] = {"group": group, "queues": _sorted(offsets)}
    if streams:
        encoded["streams"] = _sorted(streams)
    return encoded


def decode(group: str, given: Mapping[str, Any]) -> Offsets:
    """Decode offsets from the checkpoint.

    Raises:
        OptionError: they belong to another group, whose numbers refer to other messages.
    """
    if not given:
        return {}
    if given.get("group") != group:
        raise OptionError(
            f"the checkpoint belongs to group {given.get('group')!r}, but option group is {group!r}; "
            "use the checkpoint's group, or a new checkpoint"
        )
    return {str(queue): int(number) for queue, number in given["queues"].items()}


def streams(given: Mapping[str, Any]) -> dict[str, int]:
    """Return the IDs of streams in an encoded offset. Checkpoints of older versions contain none."""
    return {str(queue): int(ident) for queue, ident in given.get("streams", {}).items()}


def _sorted(numbers: Mapping[str, int]) -> dict[str, int]:
    return {queue: numbers[queue] for queue in sorted(numbers)}
