"""A sweep ends with a piece in which all objects were visited."""

from __future__ import annotations

from escrowmq.core.recovery.sweep import Sweep


class Parts:
    """Objects that are visited part by part. A visit to a part that has not changed costs nothing."""

    def __init__(self, *sizes: int) -> None:
        self.changed = {number: set(range(size)) for number, size in enumerate(sizes)}

    def every(self) -> list[int]:
        return [*self.changed]

    def visit(self, number: int, at: int, most: int) -> tuple[int, int]:
        cost = 1
        for part in sorted(self.changed[number]):
            if part >= at:
                if cost >= most:
                    return cost, part
                self.changed[number].discard(part)
                cost += 1
        return cost, 0


def test_pieces_have_the_wanted_cost_and_the_last_one_visits_everything_again() -> None:
    parts = Parts(10, 0, 3)
    sweep = Sweep(parts.every, parts.visit)
    costs = [sweep.step(6) for _ in range(4)]
    assert costs == [6, 6, 6, 5]
    assert not any(parts.changed.values())
    assert sweep.passes == 3


def test_what_changes_after_its_visit_is_visited_again() -> None:
    parts = Parts(4, 4)
    sweep = Sweep(parts.every, parts.visit)
    assert sweep.step(6) == 6
    parts.changed[0] = {0, 1, 2}
    while sweep.step(6) >= 6:
        pass
    assert not any(parts.changed.values())


def test_a_sweep_without_objects_ends_at_once() -> None:
    sweep = Sweep(Parts().every, Parts().visit)
    assert (sweep.step(1), sweep.passes) == (0, 0)
