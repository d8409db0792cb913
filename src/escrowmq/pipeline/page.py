"""The parts of the report's page: its style, its tables, and the lives of messages to which violations link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem } a { color: #0b57d0 }
.verdict { padding: .8rem 1.2rem; border-radius: .5rem; font-size: 1.3rem; font-weight: 600; color: #fff }
.clean { background: #1a7f4b } .broken { background: #b3261e } .wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #dde3ea; vertical-align: top }
th, td:first-child { white-space: nowrap } th { background: #f3f6f9 }
td.n, th.n { text-align: right } img { max-width: 100% } p.note { color: #5a6675 }
@media (max-width: 40rem) {
  body { margin: 1rem auto; font-size: 14px } th, td { padding: .25rem .4rem } td:first-child { white-space: normal }
}
@media (prefers-color-scheme: dark) {
  body { color: #dfe6ee; background: #12171d } th { background: #1d252e } th, td { border-color: #34404d }
  a { color: #8ab4f8 } p.note { color: #9aa7b5 } img { background: #fff; border-radius: .3rem }
}
@media print {
  body { max-width: none; margin: 0; color: #000; background: #fff } .wide { overflow: visible } a { color: inherit }
  td { overflow-wrap: anywhere }
  .verdict { color: #000; background: none; border: 2px solid } tr { break-inside: avoid }
}
"""

Place = tuple[str, str, int]
"""The virtual host and the name of a queue, and a position."""


class PageLink(NamedTuple):
    """A link to another part of the page."""

    text: str
    anchor: str


class ReportedLife(NamedTuple):
    """The life of a message in the report: its anchor, its title, the texts of its identity, and its records."""

    anchor: str
    title: str
    who: list[str]
    steps: list[tuple[str, str, str]]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """Return a table in HTML. The columns `numbers` are aligned to the right."""

    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in numbers else ''}>{_text(cell)}</{tag}>" for i, cell in enumerate(row)
        )

    head = f"<tr>{cells(heads, 'th')}</tr>" if any(heads) else ""
    lines = [f"<tr>{cells(row, 'td')}</tr>" for row in rows]
    return f'<div class="wide"><table>{head}{"".join(lines)}</table></div>'


def _text(cell: object) -> str:
    if isinstance(cell, PageLink):
        return f'<a href="#{cell.anchor}">{escape(cell.text)}</a>'
    return escape(str(cell))


def violation(row: Mapping[str, Any], lives: Mapping[Place, ReportedLife]) -> tuple[object, ...]:
    """Return the cells of a violation. It links to the life of its message, if that is known."""
    where: object = f"branch {row['branch']}" if row["branch"] else ""
    if row["queue"]:
        where = row["queue"] if row["position"] is None else f"{row['queue']} {row['position']}"
    life = lives.get((row["vhost"], row["queue"], row["position"]))
    if life is not None:
        where = PageLink(str(where), life.anchor)
    who = ("", "", "") if life is None else life.who
    lsns = " ".join(f"{lsn:#x}" for lsn in row["lsns"])
    return row["rule"], row["name"], where, *who, lsns, row["explanation"]


def lives_of(rows: Sequence[Mapping[str, Any]]) -> dict[Place, ReportedLife]:
    """Return the lives of messages from rows of `gold.lives`, by virtual host, queue and position."""
    found: dict[Place, ReportedLife] = {}
    for row in rows:
        place = row["vhost"], row["queue"], row["position"]
        life = found.get(place)
        if life is None:
            title = f"{row['queue']} {row['position']}"
            life = found[place] = ReportedLife(f"message-{len(found) + 1}", title, ["", "", ""], [])
        if not any(life.who):
            life.who[:] = [row[name] or "" for name in ("message_id", "correlation_id", "publisher")]
        life.steps.append((f"{row['at']:%Y-%m-%d %H:%M:%S.%f}", f"{row['lsn']:#x}", row["what"]))
    return found


def life_of(life: ReportedLife) -> str:
    """Return the section of the page that tells a life."""
    return f"<h3 id={life.anchor}>{escape(life.title)}</h3>" + table(("Time (UTC)", "LSN", "What"), life.steps)
