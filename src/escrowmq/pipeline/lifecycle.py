"""Combine events into the life of each message on each queue, and find violations in it.

All functions work on whole columns of some hundred thousand messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.deliveries import REDELIVERED, SETTLED
from escrowmq.pipeline import causes, contents
from escrowmq.pipeline.columns import Ints, Rows, distinct
from escrowmq.pipeline.events import NOWHERE, Events, Happened
from escrowmq.pipeline.findings import Finding
from escrowmq.pipeline.identity_columns import concatenated
from escrowmq.pipeline.message_columns import MessageColumns, joined
from escrowmq.pipeline.positions import POSITION_BITS, Of, Positions, Told

QUEUE_DELETED = 100
"""The outcome of a message whose queue was deleted. No record of the message itself says so."""

HISTORY_GONE = 101
"""The outcome of a message that has left its queue, where the part of the log that says how has been deleted."""

LATE = -1
"""The value of `publish_order` for a message that was logged some time after it had been enqueued.

The address of its record then says nothing about its order.
"""


class MessageFacts(NamedTuple):
    """Facts that apply to all messages.

    Args:
        start: the LSN from which the log has no gaps; below it, some of its history may be gone.
        begin: the LSN up to which earlier runs have read the log.
        published: the highest position of each queue whose publication earlier runs have seen.
        deleted: LSN, frame and time (µs) of the deletion of each deleted queue.
        handed: for each queue, positions below which messages may have been handed out, each with LSN and frame of the
            record that says so, as seen by other parts of the work and by earlier runs.
        snapshots: the LSNs of the snapshots to compare with the log, all at or after `begin`.
        holes: ranges of addresses (begin, end) whose segments have been deleted.
        priorities: the queues that order messages by priority.
        streams: the queues that keep settled messages, which may be read repeatedly.
        declared: the queues whose declaration has been read; None if that is true of all.
        terms: what each known queue allows; None leaves out the checks that need it.
        set_back: the LSNs of frames that are about a day older than the frame before.
        segments: the LSNs at which segments of the new part of the log begin. A start of the broker begins one.
    """

    start: int = 0
    begin: int = 0
    deleted: Mapping[int, tuple[int, int, int]] = {}
    published: Mapping[int, int] = {}
    handed: Mapping[int, Sequence[tuple[int, int, int]]] = {}
    snapshots: Sequence[int] = ()
    holes: Sequence[tuple[int, int]] = ()
    priorities: frozenset[int] = frozenset()
    streams: frozenset[int] = frozenset()
    declared: frozenset[int] | None = None
    terms: Mapping[int, causes.QueueTerms] | None = None
    set_back: Sequence[int] = ()
    segments: Sequence[int] = ()

    def once(self, queues: Ints) -> npt.NDArray[np.bool_]:
        """Return which of these queues are known to hand out each message once, and in order: those that are not
        streams.
        """
        found = ~np.isin(queues, list(self.streams))
        return found if self.declared is None else found & np.isin(queues, list(self.declared))


def lives(events: Events, open_before: list[MessageColumns], facts: MessageFacts) -> MessageColumns:
    """Return the state and findings of all messages with events, and of those that were open before.

    Args:
        events: events of this run.
        open_before: messages that earlier runs left open.
        facts: facts that apply to all messages.

    Returns the messages sorted by queue and position.
    """
    rows = events.rows[np.lexsort((events.rows["order"], events.rows["lsn"]))]  # inserts events of snapshots
    old = joined(open_before, 0)
    positions = Positions(rows, old["queue"], old["position"])
    of, known = positions.of, positions.known
    messages = MessageColumns.empty(len(known))
    messages.texts, messages.consumers = old.texts + events.texts, old.consumers + events.texts
    messages["queue"][:] = positions.queues[known >> POSITION_BITS]
    messages["position"][:] = known & ((1 << POSITION_BITS) - 1)
    for name, column in old.columns.items():
        messages[name][positions.others] = column
    known_ids = len(old.ids.message_id)
    messages.ids = old.ids if events.ids is None else concatenated([old.ids, events.ids])
    _publish(messages, events, of, len(old.texts), known_ids)
    contents.move(messages, events, of, facts.start)
    held = _settle(messages, of)
    causes.count(messages, of, facts.terms or {}, facts.start, facts.segments)
    _return(messages, of)
    _check_holds(messages, held, facts.start)
    _deliver(messages, of, len(old.consumers), facts)
    _delete(messages, facts)
    _check_order(messages, facts)
    _check_delivery_order(messages, facts)
    _check_visibility(messages, rows[rows["what"] == Happened.HANDED_OUT], facts)
    for lsn in facts.snapshots:
        _compare(messages, *of(Happened.HELD_IN_SNAPSHOT)[:2], lsn, facts.start)
    _check_existence(messages)
    _check_content(messages, facts.holes)
    if facts.terms is not None:
        causes.check_queues(messages, rows, positions, facts.terms, facts.start)
        known_next = rows[rows["what"] == Happened.NEXT]
        evidence = causes.Evidence(facts.terms, facts.begin, facts.set_back, known_next, facts.segments)
        causes.check_outcomes(messages, evidence)
    return messages


def is_open(messages: MessageColumns) -> npt.NDArray[np.bool_]:
    """Return which messages are still in their queue."""
    waits: npt.NDArray[np.bool_] = messages["outcome"] == 0
    return waits


def _first(place: Ints, count: int) -> Ints:
    """Return the indexes of the events that are the first of their message. There are `count` messages."""
    first = np.empty(count, np.int64)
    first[place[::-1]] = np.arange(len(place) - 1, -1, -1)  # numpy assigns in order, so the first event wins
    found: Ints = np.flatnonzero(first[place] == np.arange(len(place)))
    return found


def _publish(messages: MessageColumns, events: Events, of: Of, texts: int, ids: int) -> None:
    place, rows, nth = of(Happened.PUBLISHED, Happened.COPIED)
    again = messages["publications"][place] > 0
    first = _first(place, len(messages))
    repeated = np.ones(len(place), bool)
    repeated[first] = False
    repeated |= again
    messages["publications"][:] += np.bincount(place, minlength=len(messages))
    messages.report(place[repeated], Finding.DUPLICATED, rows["lsn"][repeated])
    fresh = first[~again[first]]
    place, rows, nth = place[fresh], rows[fresh], nth[fresh]
    messages["publish_lsn"][place], messages["publish_order"][place] = (
        rows["lsn"],
        np.where(rows["what"] == Happened.COPIED, LATE, rows["order"]),
    )
    messages["publish_frame"][place], messages["publish_us"][place] = rows["frame"], rows["time"]
    messages["came_ms"][place], messages["publish_branch"][place] = rows["came"], rows["branch"]
    messages["block"][place], messages["index"][place] = rows["block"], rows["index"] + nth
    nowhere = rows["came"] == NOWHERE
    messages.report(place[nowhere], Finding.OTHER_CONTENT, rows["lsn"][nowhere])
    text, at = rows["text"], rows["bodies"]
    told = at >= 0
    bodies = events.bodies[at[told] + nth[told]]
    messages["size"][place[told]], messages["digest"][place[told]] = bodies["size"], bodies["digest"]
    if events.ids is not None:
        messages["ident"][place[told]] = at[told] + nth[told] + ids
    text[told] = np.where((bodies["text"] >= 0) & (text[told] >= 0), bodies["text"], text[told])
    messages["text"][place] = np.where(text >= 0, text + texts, -1)


def _settle(messages: MessageColumns, of: Of) -> Ints:
    """Record settlements. Returns the messages settled by groups of bulk readers."""
    place, rows, _ = of(Happened.SETTLED, Happened.SETTLED_BY_GROUP)
    again = messages["settlements"][place] > 0
    first = _first(place, len(messages))
    repeated = np.ones(len(place), bool)
    repeated[first] = False
    repeated |= again
    messages["settlements"][:] += np.bincount(place, minlength=len(messages))
    messages.report(place[repeated], Finding.SETTLED_TWICE, rows["lsn"][repeated])
    fresh = first[~again[first]]
    place, rows = place[fresh], rows[fresh]
    messages["settle_lsn"][place], messages["settle_frame"][place] = rows["lsn"], rows["frame"]
    messages["settle_us"][place], messages["settle_branch"][place] = rows["time"], rows["branch"]
    messages["outcome"][place] = rows["code"]
    by_group: Ints = place[rows["what"] == Happened.SETTLED_BY_GROUP]
    return by_group


def _return(messages: MessageColumns, of: Of) -> None:
    place, rows, _ = of(Happened.RETURNED, Happened.TAKEN)
    messages["taken"][place[rows["what"] == Happened.TAKEN]] = 1
    late = (messages["settlements"][place] > 0) & (rows["lsn"] > messages["settle_lsn"][place])
    messages.report(place[late], Finding.AFTER_SETTLEMENT, rows["lsn"][late])


def _check_holds(messages: MessageColumns, settled: Ints, start: int) -> None:
    """Check that bulk readers reserved the messages that they settled, and accepted them.

    Older messages are exempt, because the record of the reservation may have been deleted.
    """
    unheld = (messages["taken"][settled] == 0) & (messages["publish_lsn"][settled] >= start)
    strange = settled[unheld | (messages["outcome"][settled] != Outcome.ACCEPTED)]
    messages.report(strange, Finding.NOT_HELD, messages["settle_lsn"][strange])


def _deliver(messages: MessageColumns, of: Of, consumers: int, facts: MessageFacts) -> None:
    place, rows, _ = of(Happened.DELIVERED)
    if not len(place):
        return
    side = np.argsort(place, kind="stable")  # groups the deliveries of each message, in order
    place, rows = place[side], rows[side]
    code, lsn = rows["code"].astype(np.int64), rows["lsn"]
    follows = np.zeros(len(place), bool)
    follows[1:] = place[1:] == place[:-1]
    again = follows | (messages["deliveries"][place] > 0)
    flags = messages["last_flags"][place]  # of the previous delivery
    flags[1:] = np.where(follows[1:], code[:-1], flags[1:])
    marked = (code & REDELIVERED) > 0
    once = facts.once(messages["queue"][place])
    unmarked = again & ~marked & once & ((flags & SETTLED) == 0)
    messages.report(place[unmarked], Finding.NOT_MARKED, lsn[unmarked])
    late = once & (messages["settlements"][place] > 0) & (lsn > messages["settle_lsn"][place])
    messages.report(place[late], Finding.AFTER_SETTLEMENT, lsn[late])
    published = (messages["publish_lsn"][place] >= 0) & (messages["publish_order"][place] != LATE)
    sealed = (messages["publish_branch"][place] > 0) & (rows["frame"] <= messages["publish_frame"][place])
    early = published & (sealed | (lsn < messages["publish_lsn"][place]))
    messages.report(place[early], Finding.TOO_EARLY, lsn[early])
    us, first = rows["came"] * 1000, ~again
    messages["first_delivered_us"][place[first]], messages["first_delivered_lsn"][place[first]] = us[first], lsn[first]
    messages["deliveries"][:] += np.bincount(place, minlength=len(messages))
    messages["redeliveries"][:] += np.bincount(place[marked], minlength=len(messages))
    messages["last_delivered_us"][place], messages["last_flags"][place] = us, code
    messages["consumer"][place] = rows["text"] + consumers


def _check_delivery_order(messages: MessageColumns, facts: MessageFacts) -> None:
    """Check that first deliveries are in order of position, within one priority if the queue orders by priority."""
    first = (
        (messages["first_delivered_lsn"] >= 0)
        & (messages["deliveries"] > messages["redeliveries"])
        & (messages["taken"] == 0)
    )
    by_priority = np.isin(messages["queue"], list(facts.priorities))
    told = ~by_priority | (messages["text"] >= 0)  # the record with the priority may have been deleted
    rows = np.flatnonzero(first & told & facts.once(messages["queue"]))
    group = messages["queue"][rows] << 8
    ranked = by_priority[rows]
    if ranked.any():
        levels = np.array([text[2] if len(text) > 2 else 0 for text in messages.texts] or [0], np.int64)
        group[ranked] += levels[messages["text"][rows[ranked]]]
    order = np.lexsort((messages["position"][rows], group))
    rows, group = rows[order], group[order]
    lsn = messages["first_delivered_lsn"][rows]
    late = np.flatnonzero((group[1:] == group[:-1]) & (lsn[1:] < lsn[:-1]))
    messages.report(rows[late], Finding.OUT_OF_ORDER, lsn[late])


def _delete(messages: MessageColumns, facts: MessageFacts) -> None:
    for queue in distinct(messages["queue"]).tolist():
        deletion = facts.deleted.get(queue)
        if deletion is None:
            continue
        low, high = np.searchsorted(messages["queue"], (queue, queue + 1))
        late = low + np.flatnonzero(messages["publish_lsn"][low:high] > deletion[0])
        messages.report(late, Finding.TO_NOBODY, messages["publish_lsn"][late])
        gone = low + np.flatnonzero(messages["outcome"][low:high] == 0)
        messages["outcome"][gone] = QUEUE_DELETED
        for name, value in zip(("settle_lsn", "settle_frame", "settle_us"), deletion, strict=True):
            messages[name][gone] = value


def _check_order(messages: MessageColumns, facts: MessageFacts) -> None:
    """Check that LSNs of publication grow with positions (ORD-1)."""
    fresh = (messages["publish_lsn"] >= facts.begin) & (messages["publish_order"] != LATE)
    for ident in distinct(messages["queue"]).tolist():
        low, high = np.searchsorted(messages["queue"], (ident, ident + 1))
        mine = np.arange(low, high)
        late = mine[fresh[mine] & (messages["position"][mine] <= facts.published.get(ident, 0))]
        messages.report(late, Finding.REORDERED, messages["publish_lsn"][late])
    known = np.flatnonzero((messages["publish_lsn"] >= 0) & (messages["publish_order"] != LATE))
    queue, lsn, order = messages["queue"][known], messages["publish_lsn"][known], messages["publish_order"][known]
    same = queue[1:] == queue[:-1]
    down = same & ((lsn[1:] < lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (order[1:] < order[:-1])))
    late = np.flatnonzero(down)
    messages.report(known[late], Finding.REORDERED, lsn[late])


def _check_visibility(messages: MessageColumns, handed: Rows, facts: MessageFacts) -> None:
    """Check that a branch's messages are invisible until its commit is on disk (TX-2).

    Everything that happens to such a message must therefore be in a later frame.
    """
    published = messages["publish_lsn"] >= 0
    branch = published & (messages["publish_branch"] > 0)
    settled = messages["settlements"] > 0
    early = settled & published & (messages["settle_lsn"] < messages["publish_lsn"])
    early |= settled & branch & (messages["settle_frame"] <= messages["publish_frame"])
    messages.report(early, Finding.TOO_EARLY, messages["settle_lsn"][early])
    # A HANDED_OUT event covers all positions up to its own, so each of them must have been published before.
    handed = handed[np.argsort(handed["queue"], kind="stable")]
    owner = handed["queue"].copy()  # sorted, for a binary search: there may be as many queues as messages
    spoken_of = [*distinct(owner).tolist(), *facts.handed]
    for queue in np.intersect1d(messages["queue"], spoken_of).tolist():
        here = handed[slice(*np.searchsorted(owner, (queue, queue + 1)))]
        elsewhere = np.array(facts.handed.get(queue, ()), np.int64).reshape(-1, 3)
        said = np.r_[np.c_[here["first"] + 1, here["lsn"], here["frame"]], elsewhere]
        said = said[np.argsort(said[:, 1], kind="stable")]
        below = np.maximum.accumulate(said[:, 0]) - 1
        low, high = np.searchsorted(messages["queue"], (queue, queue + 1))
        mine = np.arange(low, high)
        first = np.searchsorted(below, messages["position"][mine])  # the first event that covers each position
        mine, first = mine[first < len(said)], first[first < len(said)]
        _, lsn, frame = said[first].T
        wrong = (published & (messages["publish_order"] != LATE))[mine] & (
            (messages["publish_lsn"][mine] > lsn) | (branch[mine] & (messages["publish_frame"][mine] >= frame))
        )
        messages.report(mine[wrong], Finding.TOO_EARLY, lsn[wrong])


def _compare(messages: MessageColumns, place: Ints, rows: Told, lsn: int, start: int) -> None:
    """Compare the log up to `lsn` with the snapshot taken there."""
    here = rows["lsn"] == lsn
    times = np.bincount(place[here], minlength=len(messages))
    held = times > 0
    messages.report(times > 1, Finding.HELD_TWICE, lsn)
    published = messages["publish_lsn"] >= 0
    before = messages["publish_lsn"] < lsn
    gone = (messages["outcome"] != 0) & (messages["settle_lsn"] < lsn)
    absent = before & ~gone & ~held
    forgotten = absent & (messages["publish_lsn"] < start)
    messages["outcome"][forgotten & is_open(messages)] = HISTORY_GONE
    lost = absent & published & ~forgotten
    messages.report(lost, Finding.LOST, lsn)
    messages.report(held & gone, Finding.RESURRECTED, lsn)
    messages.report(held & published & ~before, Finding.INVENTED, lsn)
    fresh = np.flatnonzero(here & ~published[place])
    messages["held"][place[fresh]] = lsn


def _check_existence(messages: MessageColumns) -> None:
    """Report events on messages that were never published.

    They may have been published before the log begins; `judging` drops these findings.
    """
    unknown = (messages["publish_lsn"] < 0) & (messages["findings"] & Finding.UNKNOWN == 0)
    lsn = np.where(messages["settle_lsn"] >= 0, messages["settle_lsn"], messages["held"])
    messages.report(unknown, Finding.UNKNOWN, lsn[unknown])


def _check_content(messages: MessageColumns, holes: Sequence[tuple[int, int]]) -> None:
    waiting = is_open(messages) & (messages["block"] >= 0)
    for begin, end in holes:
        gone = waiting & (messages["block"] >= begin) & (messages["block"] < end)
        messages.report(gone, Finding.CONTENT_LOST, messages["block"][gone])
