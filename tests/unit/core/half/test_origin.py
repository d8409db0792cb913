"""Facts that half messages share."""

from __future__ import annotations

import pytest

from escrowmq.core.half.origin import Origins
from escrowmq.core.records.half import OriginFields

KEY = OriginFields("t", "g", "u", "c", 3)


def test_equal_facts_have_one_origin() -> None:
    origins = Origins()
    assert origins.of(KEY) is origins.of(KEY)
    assert origins.of(KEY) is not origins.of(KEY._replace(label="d"))


def test_an_origin_is_forgotten_with_its_last_half_message() -> None:
    origins = Origins()
    origin = origins.of(KEY)
    origin.count = 2
    origins.let_go(origin)
    assert origins[origin.number] is origin
    origins.let_go(origin)
    assert origins.all() == []
    with pytest.raises(KeyError):
        origins[origin.number]


def test_a_new_origin_never_gets_the_number_of_a_restored_one() -> None:
    origins = Origins()
    origins.restore(KEY, 1)
    assert origins.of(KEY).number == 1
    assert origins.of(KEY._replace(topic="other")).number == 2
