"""The index leaves room on the disk to the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.history.room import LEAST, is_short, reserve_of


def test_more_is_left_than_the_broker_needs() -> None:
    assert (reserve_of(256 << 20), reserve_of(0)) == (512 << 20, LEAST)


def test_a_disk_is_short_of_room_or_not(tmp_path: Path) -> None:
    assert not is_short(tmp_path, 1)
    assert is_short(tmp_path, 1 << 60)
    with pytest.raises(OSError, match="No such file"):
        is_short(tmp_path / "none", 1)
