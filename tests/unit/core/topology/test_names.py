"""Names in order."""

from __future__ import annotations

import random

import pytest

from escrowmq.core.topology import names
from escrowmq.core.topology.names import SortedNames


def read(known: SortedNames, most: int) -> list[str]:
    """Return all names, read in pieces."""
    found: list[str] = []
    while some := known.behind(found[-1] if found else "", most):
        assert len(some) <= most
        found += some
    return found


@pytest.mark.parametrize("seed", range(20))
def test_names_are_in_order_after_each_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "BLOCK", 4)
    choose = random.Random(seed)
    known, model = SortedNames(), set[str]()
    for _ in range(300):
        name = "".join(choose.choices("abc", k=choose.randrange(1, 5)))
        if name in model:
            known.remove(name)
            model.remove(name)
        else:
            known.add(name)
            model.add(name)
        assert read(known, choose.randrange(1, 9)) == sorted(model)
        behind = "".join(choose.choices("abc", k=2))
        assert known.behind(behind, 1000) == sorted(each for each in model if each > behind)
    for name in list(model):
        known.remove(name)
    assert known.behind("", 1) == []


def test_a_name_that_is_not_there_cannot_be_removed() -> None:
    known = SortedNames()
    for name in ("", "a"):
        with pytest.raises(KeyError):
            known.remove(name)
    known.add("b")
    for name in ("a", "c"):
        with pytest.raises(KeyError):
            known.remove(name)


@pytest.mark.rule("FAIR-1")
def test_a_new_name_moves_only_the_names_of_its_block() -> None:
    known = SortedNames()
    for number in range(20_000):
        known.add(f"{number:05}")
    before = [list(block) for block in known._blocks]
    known.add("10000a")
    changed = [block for block in known._blocks if block not in before]
    assert sum(map(len, changed)) <= names.BLOCK + 1
    assert max(map(len, known._blocks)) <= names.BLOCK
