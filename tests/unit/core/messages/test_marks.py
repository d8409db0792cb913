"""Marks, and their changes by a modification."""

from __future__ import annotations

from escrowmq.core.messages.marks import Marks, MarkTable, Modification


def test_a_failed_delivery_is_counted() -> None:
    assert Modification(failed=True).applied(Marks(2)) == Marks(3)


def test_a_released_delivery_is_not_counted_as_failed() -> None:
    assert Modification().applied(Marks(2)) == Marks(2)


def test_annotations_are_merged_and_newer_ones_replace_older_ones() -> None:
    before = Marks(0, {"a": b"1", "b": b"2"})
    assert Modification(annotations={"b": b"3", "c": b"4"}).applied(before).annotations == {
        "a": b"1",
        "b": b"3",
        "c": b"4",
    }
    assert before.annotations == {"a": b"1", "b": b"2"}, "the old marks do not change"


def test_excluded_links_accumulate() -> None:
    marks = Marks()
    for link in ("one", "two", "one", ""):
        marks = Modification(excluded=link).applied(marks)
    assert marks.excluded == {"one", "two"}


def test_a_table_tells_whether_any_link_is_excluded() -> None:
    table = MarkTable({1: Marks(2)})
    before = table.excluding
    table[5] = Modification(excluded="link").applied(Marks())
    assert (before, table.excluding) == (False, True)
    assert MarkTable(table).excluding
    assert table.excludes(5, "link")
    assert not table.excludes(5, "other")
    assert not table.excludes(1, "link")
    assert not table.excludes(7, "link")


def test_a_table_without_marks_excludes_nobody() -> None:
    table = MarkTable({1: Marks(2), 5: Marks(0, excluded=frozenset({"link"}))})
    table.discard([5, 7])
    table.discard([1])
    assert not table
    assert not table.excluding
