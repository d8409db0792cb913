"""Delivery numbers of a session, compared with a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10 import sent as module
from escrowmq.wire.amqp10.sent import Part, SentDeliveries

A, B = "a", "b"


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 4)
        yield


def filled(*links: str) -> tuple[SentDeliveries, dict[int, tuple[str, int]]]:
    """Send one delivery for each of `links`. The result has link and link's number by the session's number."""
    sent: Any = SentDeliveries()
    known: dict[int, tuple[str, int]] = {}
    counts = {A: 1, B: 1}
    for number, link in enumerate(links):
        sent.add(number, 1, link, counts[link])
        known[number] = link, counts[link]
        counts[link] += 1
    return sent, known


def flat(parts: list[Part]) -> dict[int, tuple[Any, int]]:
    return {
        number: (part.link, part.number + number - part.first)
        for part in parts
        for number in range(part.first, part.last + 1)
    }


def test_consecutive_deliveries_of_a_link_are_one_part() -> None:
    sent, _ = filled(A, A, A)
    assert list(sent.find(1, 2)) == [Part(A, 1, 2, 2)]  # type: ignore[arg-type]
    assert list(sent.find(3, 9)) == []


@given(st.lists(st.sampled_from([A, B]), max_size=100), st.integers(0, 99), st.integers(0, 99), st.data())
def test_every_delivery_is_found(links: list[str], first: int, last: int, data: st.DataObject) -> None:
    sent, known = filled(*links)
    for number in data.draw(st.sets(st.sampled_from(sorted(known))) if known else st.just(set())):
        del known[number]
        sent.settled(number, 1)
    found = flat(list(sent.find(first, last)))
    expected = {number: value for number, value in known.items() if first <= number <= last}
    assert expected.items() <= found.items()


def test_what_is_settled_is_forgotten_in_the_end() -> None:
    sent, _ = filled(*[A, B] * 1000)
    for number in range(1999):
        sent.settled(number, 1)
    sent.add(2000, 1, A, 1001)  # type: ignore[arg-type]
    assert len(sent) <= 2


@pytest.mark.parametrize("gone", [A, B])
def test_a_link_that_is_gone_is_forgotten(gone: Any) -> None:
    sent, known = filled(A, B, B, A)
    sent.forget(gone)
    assert flat(list(sent.find(0, 9))) == {number: value for number, value in known.items() if value[0] != gone}
    sent.clear()
    assert not list(sent.find(0, 9))


def test_a_stretch_begins_anew_when_all_of_it_is_settled() -> None:
    sent, _ = filled(A, A)
    sent.settled(0, 2)
    sent.add(2, 1, A, 3)  # type: ignore[arg-type]
    assert list(sent.find(0, 9)) == [Part(A, 2, 2, 3)]  # type: ignore[arg-type]


@pytest.mark.rule("FAIR-1")
def test_no_step_looks_at_all_stretches() -> None:
    """Two links of a session that send in turn have a stretch for each delivery."""
    sent, _ = filled(*[A, B] * 500)
    for number in (7, 3, 500, 998):
        sent.settled(number, 1)
    assert len(sent) == 996
    assert all(0 < len(block.stretches) <= 4 for block in sent._blocks)
    parts = sent.find(2, 10**9)
    assert [next(parts).first for _ in range(3)] == [2, 4, 5]
    sent.settled(6, 1)
    assert next(parts).first == 8
