"""A limit on messages is distributed over queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.spark.source import share

queues = st.dictionaries(st.text(max_size=3), st.integers(0, 10_000), max_size=8)


@given(queues, st.none() | st.integers(1, 20_000))
def test_shares_never_exceed_the_available_messages_or_the_limit(available: dict[str, int], most: int | None) -> None:
    taken = share(available, most)
    assert taken.keys() == available.keys()
    assert all(0 <= taken[name] <= available[name] for name in available)
    total = sum(available.values())
    assert sum(taken.values()) == (total if most is None else min(total, most))


def test_shares_are_proportional_and_no_queue_starves() -> None:
    assert share({"long": 9_000, "short": 1_000}, 100) == {"long": 90, "short": 10}
    assert share({"long": 1_000_000, "short": 1}, 100)["short"] == 1
