"""Confirms have the same effect in any order and form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.confirms import Confirms


def confirms(published: int) -> Confirms:
    found = Confirms()
    found.published = published
    return found


@given(st.permutations(range(1, 13)), st.sets(st.integers(1, 12)))
def test_confirms_may_arrive_individually_in_any_order(order: list[int], refused: set[int]) -> None:
    found = confirms(12)
    for tag in order:
        assert not found.complete
        found.settle(tag, multiple=False, refused=tag in refused)
    assert found.complete
    assert sorted(found.take_nacked()) == sorted(refused)
    assert found.take_nacked() == []


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans(), st.booleans())))
def test_confirms_agree_with_a_set_of_numbers(answers: list[tuple[int, bool, bool]]) -> None:
    found = confirms(20)
    left, nacked = set(range(1, 21)), set()
    for tag, multiple, refused in answers:
        meant = {n for n in left if n <= tag} if multiple else {tag} & left
        if not meant:
            continue  # the broker confirms each publish only once
        found.settle(tag, multiple=multiple, refused=refused)
        nacked |= meant if refused else set()
        left -= meant
        assert found.complete is (not left)
    assert set(found.take_nacked()) == nacked


def test_zero_means_all() -> None:
    found = confirms(3)
    found.settle(0, multiple=True, refused=True)
    assert found.complete
    assert found.take_nacked() == [1, 2, 3]
