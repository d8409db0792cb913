"""Text for a terminal or a pipe: names are made harmless, columns are never folded."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


def printable(text: str) -> str:
    """Escape every character that a terminal would obey instead of showing: ESC becomes `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def columns(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """Format rows as lines, each column as wide as its widest cell, right-aligned where `right` says so.

    Lines are as long as necessary, so that names can be copied, and have no trailing blanks.
    """
    if not rows:
        return []
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cell_len(cell))
            padded.append(blanks + cell if number < len(right) and right[number] else cell + blanks)
        lines.append("  ".join(padded).rstrip())
    return lines


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: "1 message", "2,000 messages"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def size(count: int) -> str:
    """Return a number of bytes in a unit that leaves few digits: 1536 → "1.5 KiB"."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return counted(count, "byte") if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
