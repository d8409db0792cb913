"""Write `report.html`: a one-page summary of the audit in a single file, with embedded plots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from escrowmq.human import duration, size
from escrowmq.pipeline import plots
from escrowmq.pipeline.coverage import RecordedMoves
from escrowmq.pipeline.digests import Compared
from escrowmq.pipeline.page import STYLE, life_of, lives_of, table, violation

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.rule_counts import RuleCount
    from escrowmq.pipeline.verdict import Verdict

SHOWN: Final = 100
QUEUES: Final = 12


def write_report(audit: Audit, verdict: Verdict, counts: Sequence[RuleCount], moves: RecordedMoves) -> Path:
    """Write the report into the folder of the tables, and return its path."""

    def rows(table: str, query: str) -> list[dict[str, Any]]:
        """Return the result of a query over `{table}`. Queries limit their results to the size of a page."""
        frame = audit.store.written[table]
        return [row.asDict() for row in audit.spark.sql(query, table=frame).collect()]

    wrong = rows("gold.violations", f"select * from {{table}} order by rule limit {SHOWN}")
    doubt = rows("gold.undecided", f"select * from {{table}} order by prepared_at limit {SHOWN}")
    minutes = rows("gold.throughput", _MINUTES)
    queues = rows("gold.throughput", _QUEUES)
    late = {(row["vhost"], row["queue"]): row["best"] for row in rows("gold.latency", _BUSIEST)}
    count = verdict.violations
    headline = "CLEAN: no rule was broken" if verdict.clean else f"{count} violation{'s' * (count > 1)}"
    parts = [
        f"<h1>Audit of the journal {escape(Path(audit.journal).name)}</h1>",
        f'<p class="verdict {"clean" if verdict.clean else "broken"}">{headline}</p>',
        table(("", ""), _facts(audit, verdict)),
    ]
    told = lives_of(rows("gold.lives", "select * from {table} order by vhost, queue, position, lsn"))
    if wrong:
        parts.append("<h2>Violations</h2>")
        heads = ("Rule", "Violation", "Where", "Message id", "Correlation id", "Publisher", "LSNs", "Explanation")
        parts.append(table(heads, [violation(row, told) for row in wrong]))
        if count > len(wrong):
            note = f"The first {len(wrong)} of {count} violations; gold/violations contains all of them."
            parts.append(f'<p class="note">{note}</p>')
    if told:
        parts.append("<h2>Messages of violations</h2>" + "".join(map(life_of, told.values())))
    parts.append("<h2>Rules</h2>" + _rules(verdict, counts, moves))
    if doubt:
        parts.append("<h2>In doubt</h2>")
        lines = [(row["branch"], row["xid"] or "", row["owner"] or "", _time(row["prepared_at"])) for row in doubt]
        parts.append(table(("Branch", "xid", "Owner", "Prepared"), lines))
    if minutes:
        values = {row["minute"]: (row["published"], row["settled"]) for row in minutes}
        parts.append("<h2>Messages over time (UTC)</h2>" + plots.flow(values))
    if queues:
        parts.append("<h2>Queues</h2>" + _queues(queues, late))
    known = [(row["queue"], late[row["vhost"], row["queue"]]) for row in queues if (row["vhost"], row["queue"]) in late]
    if known:
        chosen = [(name, best["p50_ms"], best["p99_ms"]) for name, best in known[:QUEUES]]
        parts.append("<h2>From publish to settlement</h2>" + plots.latency(chosen))
    page = "<!doctype html><html lang=en><meta charset=utf-8>"
    page += '<meta name=viewport content="width=device-width, initial-scale=1">'
    page += f"<title>{headline}</title><style>{STYLE}</style>"
    path = audit.store.folder / "report.html"
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(page + "\n".join(parts) + "</html>\n", encoding="utf-8")
    fresh.replace(path)
    return path


_MINUTES: Final = """
    select minute, sum(published) published, sum(settled) settled from {table}
    where minute is not null group by minute"""
_QUEUES: Final = f"""
    select *, count(*) over () whole from (
        select vhost, queue, sum(published) published, sum(settled) settled, sum(accepted) accepted,
            sum(published_bytes) bytes
        from {{table}} group by vhost, queue
    ) order by published desc, vhost, queue limit {SHOWN}"""
_BUSIEST: Final = """
    select vhost, queue, max(struct(messages, p50_ms, p99_ms)) best from {table}
    where stage = 'published to settled' group by vhost, queue"""


def _facts(audit: Audit, verdict: Verdict) -> list[tuple[str, str]]:
    plan = audit.plan
    history = (
        "complete" if plan.start == 0 else f"incomplete below LSN {plan.start:#x}: the broker deleted dead segments"
    )
    if plan.damage or audit.scan.broken:
        history = "damaged: the unreadable parts are listed below and were not checked"
    facts = [
        ("Journal", audit.journal),
        ("Read in this run", f"LSN {plan.begin:#x} to {plan.end:#x}, {size(plan.bytes)}, {verdict.records:,} records"),
        ("Messages checked", f"{verdict.messages:,}: settled since the last run, or still in their queues"),
        ("Branches in doubt", f"{verdict.undecided:,}"),
        ("History", history),
        ("Continuity", _continuity(audit)),
        ("Deleted parts", deleted(len(plan.missing.holes), audit.continuity.deleted, noted=plan.missing.noted)),
        ("Routes", _routes(audit)),
        ("Contents", contents(audit.continuity.compared, changed=len(audit.continuity.changed))),
        ("Head", str(audit.continuity.head or "")),
        ("Run", f"{verdict.run}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"),
    ]
    if plan.held_back:
        left = "the last frame, which the broker may still be writing; the next run reads it"
        facts.insert(2, ("Not read", left))
    return facts


def _routes(audit: Audit) -> str:
    share = audit.options.routing
    if not share:
        return "not checked: the option --routing was not given"
    checked = f"{audit.routed:,} {'message was' if audit.routed == 1 else 'messages were'} routed again"
    if share < 1:
        checked += f", a share of {share:.3g}"
    if audit.untold:
        checked += f"; the log does not show the routes of {audit.untold:,} others"
    return checked


def _continuity(audit: Audit) -> str:
    if audit.continuity.unchained:
        return "broken: the log is not the one that was written, see below"
    if not audit.store.state.head:  # that of the last run
        proved = "proved within the log only: each segment continues the one before"
        if not audit.continuity.proved:
            proved = "not proved: segments of older versions have no chain, or a segment is missing"
        return f"{proved}. There is no earlier run to compare with; the next run compares the log with the head below"
    if audit.continuity.proved:
        return "proved: each segment continues the one before, and the log the one that the last run saw"
    return "not proved: segments of older versions have no chain, or segments were deleted between two runs"


def deleted(count: int, proved: bool | None, *, noted: bool) -> str:
    """Return what is known about missing segments, in words.

    Args:
        count: the number of missing parts of the log.
        proved: whether the journal has noted that it deleted them; None if nothing is missing.
        noted: whether it notes what it deletes.
    """
    if proved is None:
        return "none"
    parts = f"{count:,} part{'s' * (count != 1)} of the log"
    if proved:
        return f"proved: the broker has noted that it deleted {parts}"
    if not noted:
        return f"not proved: {parts} may have been deleted by a version that did not note it"
    return f"not proved for all of {parts}: see the violations below, if there are any; otherwise, the next run decides"


def contents(found: Compared, *, changed: int) -> str:
    """Return what was proved about the contents of records, in words.

    Args:
        found: the frames that were compared with their digests.
        changed: how many of them differ.
    """
    if changed:
        return f"changed: {changed:,} of {_frames(found.frames)} differ from their digests, see below"
    parts = [f"proved for {_frames(found.frames)}: each is as the digest says that the next one has"]
    if found.without:
        why = "they were written by a version without digests, or the frame after them was deleted or cannot be read"
        parts.append(f"not proved for {_frames(found.without)}: {why}")
    if found.last >= 0:
        parts.append(f"the last frame, at LSN {found.last:#x}, has no later one; the next run compares it")
    return "; ".join(parts if found.frames else parts[1:])


def _frames(count: int) -> str:
    return f"{count:,} frame{'s' * (count != 1)}"


def _rules(verdict: Verdict, counts: Sequence[RuleCount], moves: RecordedMoves) -> str:
    """Return the table of rules: what each is about, how many of these were checked, and how often it was broken."""
    lines = [(each.rule, each.name, each.told, f"{each.broken:,}") for each in counts]
    note = ""
    if moves.delivered < verdict.messages:
        note = (
            f'<p class="note">{moves.delivered:,} of {verdict.messages:,} messages have recorded deliveries that can '
            "be judged. The broker records deliveries only while its setting journal.detail is “deliveries”. Those of "
            "streams are not judged, because a stream delivers a message repeatedly.</p>"
        )
    return table(("Rule", "Violation", "Checked", "Broken"), lines, numbers=(3,)) + note


def _queues(rows: list[dict[str, Any]], late: dict[tuple[str, str], Any]) -> str:
    lines = []
    for row in rows:
        best = late.get((row["vhost"], row["queue"]))
        times = ("", "") if best is None else (duration(best["p50_ms"]), duration(best["p99_ms"]))
        other = row["settled"] - row["accepted"]
        counts = (f"{row['published']:,}", f"{row['accepted']:,}", f"{other:,}")
        lines.append((f"{row['vhost']} {row['queue']}", *counts, size(row["bytes"] or 0), *times))
    note = f'<p class="note">The {SHOWN} busiest of {rows[0]["whole"]} queues.</p>' if rows[0]["whole"] > SHOWN else ""
    note += (
        '<p class="note">“Settled otherwise” counts messages that were rejected, expired, dropped, purged, or deleted '
        "with their queue; silver/messages has the outcome of each. "
        "Times are from publish to acceptance, in the busiest hour.</p>"
    )
    heads = ("Queue", "Published", "Accepted", "Settled otherwise", "Size", "Median", "99 %")
    return table(heads, lines, numbers=(1, 2, 3, 4, 5, 6)) + note


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
