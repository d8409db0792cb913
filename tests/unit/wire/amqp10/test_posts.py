"""Posts of a session, compared with a dictionary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.posts import Posts

A, B = "a", "b"
CYCLE = 2**32
NUMBERS = st.integers(0, 30) | st.integers(CYCLE - 30, CYCLE - 1)


def settle(posts: Any, known: dict[int, tuple[str, bytes]], number: int, count: int) -> None:
    """Settle posts in both, and compare."""
    expected: dict[str, list[bytes]] = {}
    for each in [each for each in known if (each - number) % CYCLE < count]:
        link, tag = known.pop(each)
        expected.setdefault(link, []).append(tag)
    assert {link: sorted(tags) for link, tags in posts.settle(number, count)} == {
        link: sorted(tags) for link, tags in expected.items()
    }
    assert len(posts) == len(known)


@given(
    st.sampled_from([0, 1, 1000, CYCLE - 1, CYCLE - 20]),
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5), st.integers(0, 2)), max_size=30),
    st.lists(st.tuples(st.integers(-5, 150), st.integers(1, 40)), max_size=20),
)
def test_the_settled_posts_are_found(
    first: int, runs: list[tuple[str, int, int]], settlements: list[tuple[int, int]]
) -> None:
    posts: Any = Posts()
    known: dict[int, tuple[str, bytes]] = {}
    number = first
    for link, count, gap in runs:
        number += gap
        tags = [b"%d" % (number + i) for i in range(count)]
        posts.add(link, number % CYCLE, tags)
        known.update({(number + i) % CYCLE: (link, tag) for i, tag in enumerate(tags)})
        number += count
    for at, count in settlements:
        settle(posts, known, (first + at) % CYCLE, count)
    settle(posts, known, 0, CYCLE)


@given(st.lists(st.tuples(NUMBERS, st.booleans(), st.integers(1, 60)), max_size=60))
def test_numbers_in_any_order_do_no_harm(steps: list[tuple[int, bool, int]]) -> None:
    posts: Any = Posts()
    posted = found = 0
    for number, settles, count in steps:
        if settles:
            found += sum(len(tags) for _, tags in posts.settle(number, count))
        else:
            posts.add(A, number, [b"t"] * (count % 7 + 1))
            posted += count % 7 + 1
    found += sum(len(tags) for _, tags in posts.settle(0, CYCLE))
    assert (found, len(posts)) == (posted, 0)


@pytest.mark.parametrize("pieces", [1, 7, 999])
def test_a_long_run_is_settled_in_pieces(pieces: int) -> None:
    posts: Any = Posts()
    known: dict[int, tuple[str, bytes]] = {}
    for number in range(3000):
        posts.add(A, number, [b"%d" % number])
        known[number] = A, b"%d" % number
    for number in range(0, 3000, pieces):
        settle(posts, known, number, pieces)
    assert not known


def test_the_posts_of_a_link_that_is_closed_are_forgotten() -> None:
    posts: Any = Posts()
    posts.add(A, 0, [b"1", b"2"])
    posts.add(B, 2, [b"1"])
    posts.forget(A)
    assert posts.settle(0, 10) == [(B, [b"1"])]
    posts.add(A, 3, [b"1"])
    posts.clear()
    assert posts.settle(0, 10) == []
