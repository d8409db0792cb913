"""The disk space that the index leaves to the broker, on whose disk it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LEAST: Final = 64 << 20
"""Bytes that are left free whatever the limit of the broker's disk alarm is."""


def reserve_of(alarm_bytes: int) -> int:
    """Return the free bytes below which the index does not grow, for a disk alarm below `alarm_bytes`. It is twice as
    much, so that an index never raises the alarm.
    """
    return max(2 * alarm_bytes, LEAST)


def is_short(folder: Path, reserve: int) -> bool:
    """Return whether the disk of a folder has less than `reserve` free bytes. Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize < reserve
