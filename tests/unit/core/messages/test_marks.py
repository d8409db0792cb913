"""Marks, and how a modification changes them."""

from __future__ import annotations

from escrowmq.core.messages.marks import Marks, Modification


def test_a_failed_delivery_is_counted() -> None:
    assert Modification(failed=True).applied(Marks(2)) == Marks(3)


def test_one_that_was_released_is_not() -> None:
    assert Modification().applied(Marks(2)) == Marks(2)


def test_annotations_are_merged_and_the_newer_one_counts() -> None:
    before = Marks(0, {"a": b"1", "b": b"2"})
    assert Modification(annotations={"b": b"3", "c": b"4"}).applied(before).annotations == {
        "a": b"1",
        "b": b"3",
        "c": b"4",
    }
    assert before.annotations == {"a": b"1", "b": b"2"}, "who holds the old marks keeps them"


def test_links_are_excluded_one_after_the_other() -> None:
    marks = Marks()
    for link in ("one", "two", "one", ""):
        marks = Modification(excluded=link).applied(marks)
    assert marks.excluded == {"one", "two"}
