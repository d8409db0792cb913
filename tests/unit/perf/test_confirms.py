"""Confirms in any order and any mixture of single and multiple settle each publish once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.perf.confirms import ConfirmTracker
from escrowmq.perf.errors import PerfError


@given(st.data())
def test_confirms_agree_with_a_set_of_tags(data: st.DataObject) -> None:
    published = data.draw(st.integers(1, 40))
    tracker = ConfirmTracker()
    open_tags = set(range(1, published + 1))
    while open_tags:
        tag = data.draw(st.sampled_from(sorted(open_tags)))
        multiple = data.draw(st.booleans())
        settled = {one for one in open_tags if one <= tag} if multiple else {tag}
        assert tracker.confirm(tag, multiple, published) == len(settled)
        open_tags -= settled
        assert tracker.confirmed == published - len(open_tags)
        assert tracker.floor == min(open_tags, default=published + 1) - 1


def test_multiple_of_tag_zero_means_all() -> None:
    tracker = ConfirmTracker()
    assert tracker.confirm(0, multiple=True, published=7) == 7


@pytest.mark.parametrize("tag", [0, 4])
def test_a_confirm_of_nothing_published_is_an_error(tag: int) -> None:
    with pytest.raises(PerfError, match=f"confirmed publish {tag}, but only 3"):
        ConfirmTracker().confirm(tag, multiple=False, published=3)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 3), (2, 2)])
def test_a_second_confirm_is_an_error(first: int, second: int) -> None:
    tracker = ConfirmTracker()
    tracker.confirm(first, multiple=False, published=5)
    with pytest.raises(PerfError, match="twice"):
        tracker.confirm(second, multiple=False, published=5)


def test_a_single_below_a_multiple_is_an_error() -> None:
    tracker = ConfirmTracker()
    tracker.confirm(3, multiple=True, published=5)
    with pytest.raises(PerfError, match="twice"):
        tracker.confirm(2, multiple=False, published=5)
