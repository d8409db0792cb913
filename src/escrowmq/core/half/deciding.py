"""Deciding half messages: the commits that arrive together are in one record, other decisions in another one (HALF-2,
HALF-3).

The record of commits also places the messages in their destinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.branches.decision import BLOCK_BYTES, Decision
from escrowmq.core.branches.xa_branch import PreparedRun
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.changes import Deciding
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.state import TABLE, HalfInput, HalfState, after
from escrowmq.core.half.storing import HALF_BYTES
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.half import HalfDecided
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.half.checks import Checking
    from escrowmq.core.half.queue import HalfQueue
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue

_FORGOTTEN: Final = 2
"""Outcomes over the limit that are forgotten with each new one."""
_BY_OPERATOR: Final = frozenset((HalfInput.FORCE_COMMIT, HalfInput.DROP))
_COMMITTED: Final = HalfState.COMMITTED


class HalfVerdict(NamedTuple):
    """An input to half message `number`, which has this `message_id` unless that is empty."""

    number: int
    given: HalfInput
    message_id: str = ""


class _HalfRecord:
    """The decisions of one record. Neighbours for one queue that share an envelope form a run there."""

    __slots__ = ("decided", "decision", "entries", "open", "size")

    def __init__(self, engine: Engine) -> None:
        self.decision = Decision(engine)
        self.entries: list[Entry] = []
        self.decided: list[HalfDecided] = []
        self.open: dict[Queue, tuple[Envelope, list[bytes]]] = {}
        self.size = 0


class HalfDecisions:
    """Decides the half messages of all virtual hosts."""

    __slots__ = ("_checks", "_engine", "_queue_of")

    def __init__(self, engine: Engine, checks: Checking, queue_of: Callable[[str], HalfQueue | None]) -> None:
        self._engine = engine
        self._checks = checks
        self._queue_of = queue_of

    def decide(self, vhost: str, verdicts: Sequence[HalfVerdict]) -> list[int | BrokerError]:
        """See `HalfMessages.decide_each`."""
        queue = self._queue_of(vhost)
        if queue is None:
            return [unknown(vhost, verdict.number) for verdict in verdicts]
        groups: dict[HalfState, _HalfRecord] = {}
        states: dict[int, HalfState] = {}  # of those that are decided now
        found: list[int | BrokerError] = []
        for verdict in verdicts:
            try:
                self._take(queue, verdict, groups, states)
                found.append(0)
            except BrokerError as error:
                found.append(error)
        for wanted, group in groups.items():
            self._apply(queue, group, wanted)
        log = self._engine.log
        lsn = log.proof_lsn(log.end_lsn)  # a repeated decision waits, too: the one in force may not be synced yet
        return [each if isinstance(each, BrokerError) else lsn for each in found]

    def _take(
        self, queue: HalfQueue, verdict: HalfVerdict, groups: dict[HalfState, _HalfRecord], states: dict[int, HalfState]
    ) -> None:
        """Add a decision to those of its record. Raises BrokerError if it is refused."""
        number, given, message_id = verdict
        rows = queue.ledger.rows
        state = states.get(number) or rows.state(number)
        if state is None or (message_id and rows.ident(number) != message_id):
            raise unknown(queue.vhost, number)
        wanted = TABLE.get((state, given)) or after(state, given, HalfMessage(queue, number, state).title)
        if wanted is state:
            return
        if not groups:
            self._checks.record()
        commit = wanted is _COMMITTED
        try:
            entry = queue.entry(number, whole=commit)
        except LogUnreadable as error:
            title = HalfMessage(queue, number, state).title
            raise BrokerError(
                Condition.UNAVAILABLE, f"{title} in vhost '{queue.vhost}' cannot be read, and stays undecided: {error}"
            ) from error
        assert entry is not None
        group = groups.get(wanted)
        if group is None:
            group = groups[wanted] = _HalfRecord(self._engine)
        if commit:
            self._place(group, entry, queue.ledger.origins[rows.origin(number)].queue)
        group.entries.append(entry)
        group.decided.append(HalfDecided(queue.ident, number, wanted, given in _BY_OPERATOR, self._engine.now))
        group.size += len(entry.content)
        states[number] = wanted
        if group.size >= BLOCK_BYTES:
            self._apply(queue, groups.pop(wanted), wanted)

    def _apply(self, queue: HalfQueue, group: _HalfRecord, wanted: HalfState) -> None:
        """Write the record of a group, and change the state."""
        decision = group.decision
        decision.remove(queue, group.entries, Outcome.COMMITTED if wanted is _COMMITTED else Outcome.ROLLED_BACK)
        decision.record(Deciding(group.decided, lambda decided: self._decided(queue, decided)))
        decision.apply(sealed=True)
        counters = self._engine.counters.half
        if wanted is _COMMITTED:
            counters.committed += len(group.entries)
        else:
            counters.rolled_back += len(group.entries)

    def _place(self, group: _HalfRecord, entry: Entry, target: Queue | None) -> None:
        """Place the message in its destination, unless that was deleted. If possible, the new record refers to the
        block that was stored.
        """
        if target is None or target.deleted:
            return
        run, log, decision = entry.run, self._engine.log, group.decision
        if target.durable and not target.is_stream and not run.index:
            placed = PreparedRun(run.envelope, [entry.content], (target,), False, run.time, run.lsn, 1)
            if not placed.has_to_be_written_again(self._engine.now):
                log.retain(run.lsn, 1)  # for the destination; the hidden queue releases its own
                decision.place_prepared(placed, [target])
                group.open.pop(target, None)
                return
        last = group.open.get(target)
        if last is not None and last[0] is run.envelope:
            last[1].append(entry.content)
            return
        contents = [entry.content]
        group.open[target] = run.envelope, contents
        decision.place(run.envelope, contents, [target])

    def _decided(self, queue: HalfQueue, decided: Sequence[HalfDecided]) -> None:
        """Change the state, after the decisions are written."""
        ledger, known = queue.ledger, queue.timetable.decided
        rows, first = ledger.rows, not known
        queue.remove_each([each.number for each in decided])
        owners: Counter[str] = Counter()
        for _, number, state, _, time in decided:
            ledger.set(number, HalfState(state), time, rows.checks(number))
            owners[ledger.origins[rows.origin(number)].key.user] += 1
            known.append(number)
        for user in owners:
            undecided = ledger.undecided[user]
            if undecided:
                queue.holdings[user].shrink(HALF_BYTES * undecided)
            else:
                queue.holdings.pop(user).close()
        for _ in range(min(_FORGOTTEN * len(decided), len(known) - self._checks.options.outcomes)):
            ledger.forget(known.popleft())
        if first:
            self._checks.arm(queue)


def unknown(vhost: str, number: int) -> BrokerError:
    """Return the error for a half message that is not known."""
    return BrokerError(
        Condition.NOT_FOUND,
        f"no half message {number} in vhost '{vhost}' is known; its outcome may have been forgotten",
    )
