"""The settings of half messages."""

from __future__ import annotations

import pytest

from escrowmq.core.half.options import CheckOptions, HalfOptions


@pytest.mark.rule("HALF-4")
def test_a_topic_may_have_options_of_its_own() -> None:
    options = HalfOptions()
    assert options.of("/", "t") == CheckOptions(6_000, 30_000, 15)
    options.topics["/", "t"] = CheckOptions(1, 2, 3)
    assert options.of("/", "t") == CheckOptions(1, 2, 3)
    assert options.of("other", "t") == CheckOptions()
