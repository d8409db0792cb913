"""The records of processed messages, which both faces keep. The faces' own tests cut connections at every frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.amqp10.exactly_once.processing import Processing


def test_nothing_can_be_processed_before_the_link_is_attached(tmp_path: Path) -> None:
    processing = Processing(tmp_path / "x.db", "in")
    assert processing.inbox.tags() == []
    with pytest.raises(AssertionError):
        processing.forget_settled()
    processing.database.close()
