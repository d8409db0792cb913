"""Check the causes of what happened to messages: their queues existed, outcomes were due, counters grew by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from escrowmq.core.queues.outcome import Outcome
from escrowmq.pipeline.columns import Ints, Rows, distinct
from escrowmq.pipeline.events import Happened
from escrowmq.pipeline.findings import Finding
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.policies import PolicyPhase
from escrowmq.pipeline.positions import Of, Positions, Told

Mask = npt.NDArray[np.bool_]
Check = Callable[[MessageColumns, Ints, "QueueTerms", "Evidence"], Mask]
NEVER: Final = 1 << 62
_MS_OF_UNIT: Final = {"Y": 31_536_000_000, "M": 2_592_000_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
"""The units of `x-max-age`."""
_TTL_AT: Final = slice(3, 11)
"""Where the time to live is in the text of an envelope."""


class QueueTerms(NamedTuple):
    """What a queue allows, and when it existed.

    Args:
        since: the LSN of its declaration; 0 if the log does not show when it was declared.
        until: the LSN of its deletion; NEVER if it exists.
        ttl_ms: how long messages live at most, in milliseconds; NEVER if there is no limit.
        drops: whether it has a limit beyond which it drops messages.
        length: the number of messages beyond which it drops the oldest; NEVER if their number is not limited.
        returns: the number of returns after which a message leaves; -1 if that is not limited.
        declared: whether the declaration was read; the fields after `until` are known only then.
        counted_since: the LSN from which on returns are recorded, because of a policy with a delivery limit.
        phases: what it allows under the policies of its virtual host; empty if there never were any.
    """

    since: int = 0
    until: int = NEVER
    ttl_ms: int = NEVER
    drops: bool = False
    length: int = NEVER
    returns: int = -1
    declared: bool = True
    counted_since: int = 0
    phases: tuple[TermsPhase, ...] = ()

    @classmethod
    def of(cls, arguments: Mapping[str, Any], since: int, until: int) -> QueueTerms:
        """Return the terms of a queue that was declared with these arguments."""
        ttl, age = arguments.get("x-message-ttl"), arguments.get("x-max-age")
        length, size = arguments.get("x-max-length"), arguments.get("x-max-length-bytes")
        returns = arguments.get("x-delivery-limit")
        return cls(
            since,
            until,
            min(NEVER if ttl is None else int(ttl), NEVER if age is None else _period_ms(str(age))),
            length is not None or size is not None,
            NEVER if length is None or size is not None or "x-max-priority" in arguments else int(length),
            -1 if returns is None else int(returns),
        )


class TermsPhase(NamedTuple):
    """What a queue may allow from one LSN to another; `terms` is None if that is not known."""

    begin: int
    end: int
    terms: QueueTerms | None


def by_phase(
    declared: QueueTerms, name: str, arguments: Mapping[str, Any], phases: Sequence[PolicyPhase]
) -> tuple[TermsPhase, ...]:
    """Return what a queue allows under the policies of each phase."""
    found = []
    for phase in phases:
        merged, terms = phase.arguments(name, arguments), None
        if merged is not None:
            terms = QueueTerms.of(merged, declared.since, declared.until)
            if declared.returns < 0 <= terms.returns:
                terms = terms._replace(counted_since=phase.settled)
        found.append(TermsPhase(phase.since, phase.until, terms))
    return tuple(found)


def _period_ms(text: str) -> int:
    """Return a period such as 7D in milliseconds. 0 stands for one that is not valid, so nothing is judged by it."""
    number, unit = text[:-1], text[-1:]
    return int(number) * _MS_OF_UNIT[unit] if number.isdecimal() and unit in _MS_OF_UNIT else 0


def check_queues(
    messages: MessageColumns, rows: Rows, positions: Positions, terms: Mapping[int, QueueTerms], start: int
) -> None:
    """Check that a message's queue existed whenever a record named it.

    Args:
        messages: the messages.
        rows: the events.
        positions: the positions of the events.
        terms: the terms of all queues that are known.
        start: the LSN from which the log is complete.
    """
    queues, inverse = np.unique(rows["queue"], return_inverse=True)
    known = [terms.get(queue) for queue in queues.tolist()]
    since = np.array([NEVER if each is None else each.since for each in known], np.int64)
    until = np.array([NEVER if each is None else each.until for each in known], np.int64)
    lsn = rows["lsn"]
    wrong = (lsn >= start) & ((lsn < since[inverse]) | (lsn > until[inverse]))
    wrong &= ~((rows["what"] == Happened.PUBLISHED) & (lsn > until[inverse]))  # that is Finding.TO_NOBODY
    if wrong.any():
        place, said, _ = positions.within(np.flatnonzero(wrong))
        messages.report(place, Finding.NO_SUCH_QUEUE, said["lsn"])


class Evidence(NamedTuple):
    """What outcomes are judged by.

    Args:
        terms: what each known queue allows.
        begin: the LSN up to which earlier runs have judged outcomes.
        set_back: the LSNs of frames that are about a day older than the frame before: the broker's time went back.
        following: events with the next position of a queue, from snapshots.
        segments: the LSNs at which segments begin. A start of the broker begins one.
    """

    terms: Mapping[int, QueueTerms]
    begin: int
    set_back: Sequence[int]
    following: Rows
    segments: Sequence[int] = ()


def check_outcomes(messages: MessageColumns, evidence: Evidence) -> None:
    """Check that messages expired, were dropped or reached a delivery limit only where the log shows the reason."""
    fresh = messages["settle_lsn"] >= evidence.begin
    for check, outcome in (
        (_expired, Outcome.EXPIRED),
        (_dropped, Outcome.DROPPED),
        (_returned_too_often, Outcome.DELIVERY_LIMIT),
    ):
        rows = np.flatnonzero(fresh & (messages["outcome"] == outcome))
        for queue in distinct(messages["queue"][rows]).tolist():
            terms = evidence.terms.get(queue)
            if terms is not None and terms.declared:
                mine = rows[messages["queue"][rows] == queue]
                wrong = mine[_unexplained(check, messages, mine, terms, evidence)]
                messages.report(wrong, Finding.NO_CAUSE, messages["settle_lsn"][wrong])


def _unexplained(check: Check, messages: MessageColumns, rows: Ints, terms: QueueTerms, evidence: Evidence) -> Mask:
    """Check outcomes by what their queue allowed then. While policies change, that may be several things."""
    if not terms.phases:
        return check(messages, rows, terms, evidence)
    lsn = messages["settle_lsn"][rows]
    wrong = np.ones(len(rows), bool)
    for phase in terms.phases:
        outside = (lsn < phase.begin) | (lsn > phase.end)
        if not outside.all():
            wrong &= outside if phase.terms is None else outside | check(messages, rows, phase.terms, evidence)
    return wrong


def _expired(messages: MessageColumns, rows: Ints, terms: QueueTerms, evidence: Evidence) -> Mask:
    own = [int.from_bytes(text[_TTL_AT], "little", signed=True) for text in messages.texts] or [0]
    ttl = np.where(np.array(own) >= 0, own, NEVER)[messages["text"][rows]]
    ttl = np.minimum(ttl, terms.ttl_ms)
    came, left = messages["came_ms"][rows], messages["settle_us"][rows] // 1000
    early: Mask = (ttl == NEVER) | (left < came + np.minimum(ttl, NEVER >> 1))
    early &= (messages["text"][rows] >= 0) & (came >= 0)
    for lsn in evidence.set_back:  # the broker's time says nothing about the time that passed meanwhile
        early &= (ttl == NEVER) | ~((messages["publish_lsn"][rows] < lsn) & (lsn <= messages["settle_lsn"][rows]))
    return early


def _dropped(messages: MessageColumns, rows: Ints, terms: QueueTerms, evidence: Evidence) -> Mask:
    """A queue drops its oldest message. So there must have been more than its limit from that message on.

    Positions that are not in the log may have belonged to messages that do not survive a restart. The first message
    that was published later, and the next snapshot, show which positions existed, unless the broker was restarted
    before: it may give the positions of lost messages to new ones.
    """
    if not terms.drops:
        return np.ones(len(rows), bool)
    if terms.length == NEVER:
        return np.zeros(len(rows), bool)
    queue = messages["queue"][rows[0]]
    low, high = np.searchsorted(messages["queue"], (queue, queue + 1))
    known = low + np.flatnonzero(messages["publish_lsn"][low:high] >= 0)
    snapshots = evidence.following[evidence.following["queue"] == queue]
    left, borders = messages["settle_lsn"][rows], np.array(sorted(evidence.segments), np.int64)
    bound = np.minimum(
        _first_after(messages["publish_lsn"][known], messages["position"][known], left, borders),
        _first_after(snapshots["lsn"], snapshots["first"], left, borders),
    )
    few: Mask = bound - messages["position"][rows] <= terms.length
    return few


def _first_after(lsns: Ints, positions: Ints, after: Ints, borders: Ints) -> Ints:
    """Return the position that the first record behind `after` names; NEVER if there is none before the next of
    `borders`. LSNs grow.
    """
    lsns = np.r_[np.maximum.accumulate(lsns), NEVER]
    place = np.searchsorted(lsns[:-1], after)
    return np.where(_any_between(borders, after, lsns[place]), NEVER, np.r_[positions, NEVER][place])


def _returned_too_often(messages: MessageColumns, rows: Ints, terms: QueueTerms, evidence: Evidence) -> Mask:
    """Each return is in the log, apart from one that a restart may have counted, and the last one."""
    del evidence
    if terms.returns < 0:
        return np.ones(len(rows), bool)
    returned = messages["returned"][rows]
    early: Mask = (returned < terms.returns) & ~((returned == 0) & (terms.returns <= 1))
    return early & (messages["publish_lsn"][rows] >= terms.counted_since)


def count(
    messages: MessageColumns, of: Of, terms: Mapping[int, QueueTerms], start: int, segments: Sequence[int] = ()
) -> None:
    """Note the returns and failed deliveries of messages, and check that they grew by one with each record.

    Returns are recorded only on queues with a delivery limit. Where a policy gives or takes that, some are missing, and
    the counters are not judged. A restart, which begins a segment, counts one delivery that no record shows.
    """
    borders = np.array(sorted(segments), np.int64)
    place, rows, _ = of(Happened.RETURNED, Happened.COUNTED, Happened.HELD_IN_SNAPSHOT, Happened.DELIVERED)
    limited = [queue for queue, each in terms.items() if each.returns >= 0]
    mine = (rows["what"] == Happened.RETURNED) | np.isin(rows["queue"], limited)
    place, rows = place[mine], rows[mine]
    if len(place):
        order = np.lexsort((rows["what"], rows["order"], rows["lsn"], place))
        place, rows = place[order], rows[order]
        delivered = rows["what"] == Happened.DELIVERED
        _check_deliveries(messages, place, rows, borders)
        place, rows = place[~delivered], rows[~delivered]
        value = np.where(rows["what"] == Happened.HELD_IN_SNAPSHOT, 0, rows["index"])
        listed = rows["what"] == Happened.COUNTED
        pair = np.flatnonzero(listed[1:] & (place[1:] == place[:-1]) & (rows["lsn"][1:] == rows["lsn"][:-1]))
        value[pair] = value[pair + 1]
        unlisted = rows["what"] == Happened.HELD_IN_SNAPSHOT
        unlisted[pair] = False
        value = np.where(unlisted, _kept(messages, place, value, unlisted) == 1, value)
        place, rows, value = place[~listed], rows[~listed], value[~listed]
        back = rows["what"] == Happened.RETURNED
        restarted = _any_between(borders, messages["publish_lsn"][place], rows["lsn"])
        wrong = _more(messages, "returned", place, value)
        wrong = np.where(back, wrong != 1, wrong != 0) & ~((value == 1 + back) & (wrong == value) & restarted)
        wrong &= ~np.isin(rows["queue"], _at_times_limited(terms))
        _report(messages, "returned", place, rows["lsn"], value, wrong, start)
    place, rows, _ = of(Happened.MARKED, Happened.MARKED_IN_SNAPSHOT)
    if len(place):
        order = np.argsort(place, kind="stable")
        place, rows = place[order], rows[order]
        value = rows["index"]
        more = _more(messages, "failures", place, value)
        wrong = (more < 0) | (more > (rows["what"] == Happened.MARKED))
        wrong &= more <= value  # the first record of a message may count earlier failures
        _report(messages, "failures", place, rows["lsn"], value, wrong, start)


def _kept(messages: MessageColumns, place: Ints, value: Ints, unlisted: Mask) -> Ints:
    """Return, for each row, the last value of the same message that is not `unlisted`.

    A snapshot omits counts of 0, and may omit one of 1: a message that may have been delivered has that by default.
    """
    last = np.maximum.accumulate(np.where(unlisted, -1, np.arange(len(place))))
    found: Ints = np.where((last >= 0) & (place[last] == place), value[last], messages["returned"][place])
    return found


def _at_times_limited(terms: Mapping[int, QueueTerms]) -> list[int]:
    """Return the queues that have a delivery limit from policies only."""
    return [
        queue
        for queue, each in terms.items()
        if each.returns < 0 and any(phase.terms is None or phase.terms.returns >= 0 for phase in each.phases)
    ]


def _any_between(borders: Ints, low: Ints, high: Ints) -> Mask:
    found: Mask = np.searchsorted(borders, low, "right") < np.searchsorted(borders, high, "right")
    return found


def _check_deliveries(messages: MessageColumns, place: Ints, rows: Told, borders: Ints) -> None:
    """Check that a message was returned between two deliveries, or the broker restarted."""
    delivered, lsn = rows["what"] == Happened.DELIVERED, rows["lsn"]
    again = np.flatnonzero(delivered[1:] & delivered[:-1] & (place[1:] == place[:-1])) + 1
    again = again[~_any_between(borders, lsn[again - 1], lsn[again])]
    messages.report(place[again], Finding.MISCOUNTED, lsn[again])


def _more(messages: MessageColumns, name: str, place: Ints, value: Ints) -> Ints:
    """Return by how much a counter has grown since the record before of the same message."""
    before = messages[name][place]
    follows = np.flatnonzero(place[1:] == place[:-1]) + 1
    before[follows] = value[follows - 1]
    more: Ints = value - before
    return more


def _report(messages: MessageColumns, name: str, place: Ints, lsn: Ints, value: Ints, wrong: Mask, start: int) -> None:
    """Report wrong counts, if no record since the message's record before can be missing, or since its publication if
    there is none. Note the last value of each message.
    """
    told = messages["publish_lsn"][place] >= start
    follows = np.flatnonzero(place[1:] == place[:-1]) + 1
    told[follows] |= lsn[follows - 1] >= start
    wrong = wrong & told & (messages["taken"][place] == 0)
    messages.report(place[wrong], Finding.MISCOUNTED, lsn[wrong])
    messages[name][place] = value  # numpy assigns in order, so the last value of a message wins
