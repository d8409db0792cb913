"""Rows of a list are created while the list is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from escrowmq.admin.operation import Listing, Row
from escrowmq.admin.pieces import Pieces


def steps(made: list[int]) -> Iterator[Row | None]:
    for number in range(6):
        made.append(number)
        yield {"number": number} if number % 2 else None


def test_steps_without_a_row_are_left_out() -> None:
    assert asyncio.run(Listing(Pieces(), steps([])).rows()) == [{"number": 1}, {"number": 3}, {"number": 5}]


def test_a_row_is_not_made_before_it_is_read() -> None:
    made: list[int] = []

    async def first() -> list[Row]:
        async for piece in Listing(Pieces(2), steps(made)).pieces():
            return piece
        return []

    assert asyncio.run(first()) == [{"number": 1}]
    assert made == [0, 1]
