"""Readable columns and untrusted names."""

from __future__ import annotations

import pytest

from escrowmq.text import columns, printable, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders [1] ü", "orders [1] ü"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("\u202eright to left", "\\u202eright to left"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_columns_are_never_folded_and_end_without_blanks() -> None:
    name = "a long name " * 30 + "."
    assert columns([["name", "n", "note"], [name, "7", ""]], [False, True, False]) == [
        f"name{' ' * (len(name) - 4)}  n  note",
        f"{name}  7",
    ]


def test_wide_characters_take_two_places() -> None:
    assert columns([["日本", "x"], ["abcd", "y"]]) == ["日本  x", "abcd  y"]


def test_control_characters_do_not_move_columns() -> None:
    assert columns([["\x1b", "x"], ["abcd", "y"]]) == ["\\x1b  x", "abcd  y"]


def test_no_rows_are_no_lines() -> None:
    assert columns([]) == []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2.0 TiB"),
    ],
)
def test_sizes_are_shown_in_suitable_units(count: int, text: str) -> None:
    assert size(count) == text
