"""All termini of the broker: attaching, suspending, expiring and ending them (SET-12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.holdings import Holdings
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Reference
from escrowmq.core.records.termini import encode_forgotten, encode_given_back
from escrowmq.core.termini.fresh import FreshContents
from escrowmq.core.termini.loan import Loan
from escrowmq.core.termini.state_records import CapturedTermini, DurableTermini, set_fields, unsettled_records
from escrowmq.core.termini.terminus import (
    EXPIRES_AFTER,
    Durability,
    Terminus,
    TerminusInput,
    TerminusKey,
    TerminusSettings,
    TerminusState,
)

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.loan import Borrower

PIECE: Final = 1000
"""Locked messages that are loaded together to be settled."""
ATTACHES: Final = (TerminusInput.ESTABLISH, TerminusInput.RESUME, TerminusInput.RECOVER)

PutBack = "Callable[[Queue, list[tuple[Reference, int]]], None]"


@dataclass(slots=True)
class TerminusLimits:
    """The limits of termini. The timeout is in milliseconds; a longer one is reduced to it."""

    termini: int = 10_000
    """For each user and virtual host."""
    unsettled: int = 1_000_000
    """For each incoming terminus."""
    timeout_ms: int = 7 * 24 * 3600 * 1000


class Termini:
    """The termini of all virtual hosts, by key."""

    def __init__(
        self,
        engine: Engine,
        put_back: Callable[[Queue, list[tuple[Reference, int]]], None],
        holdings: Holdings | None = None,
    ) -> None:
        """`put_back` returns messages that are not in memory to their queue, each with the number of its earlier
        deliveries. `holdings` bounds the memory of unsettled deliveries.
        """
        self.engine = engine
        self._holdings = holdings or Holdings()
        self.limits = TerminusLimits()
        self.fresh = FreshContents()
        self.by_key: dict[TerminusKey, Terminus] = {}
        self.durable = DurableTermini()
        self._put_back = put_back
        self._owned: Counter[tuple[str, str]] = Counter()  # by user and virtual host
        self._last = 0  # the last number that was assigned
        # Tags of this turn that the log has yet to learn of. They are keys, by which they are found at once.
        self._forgotten: dict[Terminus, dict[bytes, None]] = {}
        self._fading: dict[Terminus, list[dict[bytes, Any]]] = {}  # many tags, of which it learns in pieces
        engine.at_each_turn(self._record_forgotten)

    # -- attaching

    def find(self, key: TerminusKey) -> Terminus | None:
        """Return the terminus with this key, or None."""
        return self.by_key.get(key)

    def attach(
        self, key: TerminusKey, settings: TerminusSettings, link: Borrower, how: TerminusInput, *, user: str
    ) -> Loan:
        """Lend the terminus to `link`, and create it if it does not exist. If it is on loan, it is stolen first.

        ESTABLISH takes the new settings, and leaves nothing unsettled: tags are forgotten, deliveries get the default
        outcome. RESUME takes the new settings and keeps what is unsettled. RECOVER keeps the settings, too.

        Raises NOT_FOUND if there is nothing to recover, ACCESS_REFUSED if the terminus belongs to another user, and
        LIMIT_EXCEEDED if the user has too many, or while memory or disk space is scarce.
        """
        settings = settings._replace(timeout_ms=min(settings.timeout_ms, self.limits.timeout_ms))
        terminus = self.by_key.get(key)
        fresh = terminus is None
        if terminus is None:
            terminus = self._make(key, settings, how, user)
        elif terminus.user != user:
            raise BrokerError(
                Condition.ACCESS_REFUSED,
                f"access to {terminus.title} in vhost '{key.vhost}' refused for user '{user}', who does not own it",
            )
        elif terminus.state is TerminusState.ATTACHED:
            self._steal(terminus)
        self._lent(terminus, settings, how)
        terminus.step(how)
        terminus.since = self.engine.now
        if terminus.deadline is not None:
            terminus.deadline.cancel()
            terminus.deadline = None
        # The client concludes from a delivery's absence that it is settled, so that must be on disk.
        lsn = self.record() if terminus.number else 0
        terminus.loan = Loan(self, terminus, link, fresh=fresh, lsn=lsn)
        return terminus.loan

    def _make(self, key: TerminusKey, settings: TerminusSettings, how: TerminusInput, user: str) -> Terminus:
        if how is TerminusInput.RECOVER:
            raise BrokerError(
                Condition.NOT_FOUND,
                f"no terminus of link '{key.link}' of container '{key.container}' in vhost '{key.vhost}'",
            )
        check_growth(self.engine.scarcity, f"link '{key.link}' in vhost '{key.vhost}'")
        if self._owned[user, key.vhost] >= self.limits.termini:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has {self.limits.termini} link termini in vhost '{key.vhost}', the limit "
                "(limits.termini_per_user)",
            )
        return self.add(Terminus(self.engine, key, settings._replace(durability=Durability.NONE), user))

    def add(self, terminus: Terminus) -> Terminus:
        """Add a terminus that was made by an attach or found by recovery."""
        self.by_key[terminus.key] = terminus
        self._owned[terminus.user, terminus.key.vhost] += 1
        self._last = max(self._last, terminus.number)
        self.engine.holders[terminus.deliveries] = None
        terminus.deliveries.holding = self._holdings.begin(terminus.user, terminus.key.vhost)
        terminus.termini = self
        return terminus

    def _steal(self, terminus: Terminus) -> None:
        terminus.step(TerminusInput.STEAL)
        link = self._void(terminus)
        if link is not None:
            link.stolen()

    def _void(self, terminus: Terminus) -> Borrower | None:
        """End the loan of a terminus that is not attached any more. Return the link."""
        terminus.arrivals.suspend(self.engine.log.synced_lsn)
        return None if terminus.loan is None else terminus.loan.void()

    def _lent(self, terminus: Terminus, settings: TerminusSettings, how: TerminusInput) -> None:
        """Bring settings and unsettled deliveries into the state that `how` asks for, in memory and in the log."""
        if how is TerminusInput.ESTABLISH:
            self._empty(terminus)
        if how is TerminusInput.RECOVER or settings == terminus.settings:
            return
        kept, log = terminus.keeps, self.engine.log
        terminus.settings = settings
        if settings.durability is Durability.NONE:
            self._unrecord(terminus)
            return
        if not terminus.number:
            self._last += 1
            terminus.number = self._last
        elif kept and not terminus.keeps:  # nothing that is unsettled survives a restart any more
            self._unrecord(terminus)
            self._last += 1
            terminus.number = self._last
        self.durable.changed(terminus)
        log.append(Kind.TERMINUS_SET, encode_change(**set_fields(terminus)))
        if terminus.keeps and not kept:
            for kind, parts in unsettled_records(terminus):
                log.append(kind, *parts)

    def _unrecord(self, terminus: Terminus) -> int:
        """Record that nothing of the terminus survives a restart. Return the LSN for the answer."""
        self._forgotten.pop(terminus, None)
        self._fading.pop(terminus, None)
        if not terminus.number:
            return 0
        self.engine.log.append(Kind.TERMINUS_DELETED, encode_change(number=terminus.number))
        terminus.number = 0
        self.durable.changed(terminus)
        return self.engine.log.end_lsn

    # -- suspending and ending

    def suspend(self, loan: Loan, given: TerminusInput) -> None:
        """Note that the link of `loan` was detached, or its session or connection ended. A void loan has no effect."""
        terminus = loan.terminus
        if terminus.loan is not loan or terminus.state is TerminusState.GONE:
            return
        if terminus.state is TerminusState.ATTACHED:
            terminus.step(given)
            self._void(terminus)
            terminus.since = self.engine.now
        elif given is TerminusInput.DETACH:
            return
        else:
            terminus.step(given)
        self.arm(terminus, given)

    def arm(self, terminus: Terminus, given: TerminusInput) -> None:
        """Start the timeout of a suspended terminus if its policy says so for this input."""
        settings = terminus.settings
        if terminus.deadline is None and given in EXPIRES_AFTER[settings.policy]:
            if settings.timeout_ms:
                at = self.engine.now + settings.timeout_ms
                terminus.deadline = self.engine.deadlines.set(at, lambda: self._expire(terminus))
            else:
                self._expire(terminus)

    def _expire(self, terminus: Terminus) -> None:
        if terminus.state is TerminusState.SUSPENDED:
            self.end(terminus, TerminusInput.EXPIRE)

    def end(self, terminus: Terminus, given: TerminusInput = TerminusInput.EXPIRE) -> int:
        """End a terminus: forget its tags, give its deliveries the default outcome, and tell a link that still has it.
        Return the LSN up to which the log must be synced before an answer (0: no wait).
        """
        terminus.step(given)
        link = self._void(terminus)
        if terminus.deadline is not None:
            terminus.deadline.cancel()
        del self.by_key[terminus.key]
        owner = terminus.user, terminus.key.vhost
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]
        self.forget_all(terminus, terminus.arrivals.clear())
        self.fresh.forget(terminus.arrivals)
        terminus.deliveries.default = terminus.settings.default
        lsn = self._unrecord(terminus)
        self.release(terminus)
        del self.engine.holders[terminus.deliveries]
        # Without these references its memory is free at once, and needs no garbage collector.
        terminus.loan = terminus.deadline = terminus.termini = None
        terminus.deliveries.end()
        if link is not None and given is TerminusInput.EXPIRE:
            link.deleted()
        return lsn

    def relieve(self, terminus: Terminus, text: str) -> None:
        """Free the memory of a terminus's deliveries. If the log has them, they stay locked for it, but its link is
        detached; otherwise the terminus is ended. A delivery that has arrived in part is forgotten.
        """
        if terminus.state is TerminusState.ATTACHED and terminus.loan is not None and terminus.loan.link is not None:
            terminus.loan.link.relieved(text, closed=not terminus.keeps)
        terminus.arrivals.interrupt(None)
        if terminus.state is TerminusState.SUSPENDED and not (terminus.keeps and terminus.deliveries.swap_out()):
            self.end(terminus)

    def of_vhost(self, vhost: str) -> list[Terminus]:
        """Return the termini of a virtual host."""
        return [terminus for key, terminus in self.by_key.items() if key.vhost == vhost]

    def of_user(self, user: str) -> list[Terminus]:
        """Return the termini that belong to a user, in all virtual hosts."""
        return [terminus for terminus in self.by_key.values() if terminus.user == user]

    def end_of_vhost(self, vhost: str) -> None:
        """End the termini of a virtual host that is to be deleted."""
        for terminus in self.of_vhost(vhost):
            self.end(terminus)

    def end_of_user(self, user: str) -> None:
        """End the termini of a user that was deleted."""
        for terminus in self.of_user(user):
            self.end(terminus)

    # -- unsettled deliveries

    def _empty(self, terminus: Terminus) -> None:
        self.forget_all(terminus, terminus.arrivals.clear())
        self.release(terminus)

    def release(self, terminus: Terminus) -> int:
        """Give all deliveries of a terminus without a link the default outcome. Return their number."""
        count = terminus.deliveries.count
        default = terminus.settings.default
        taken = terminus.deliveries.take_all()
        if default is Disposition.MODIFIED:
            self.engine.give_back(taken, taken.count, taken.queues())
            self._give_back_locked(terminus)
            return count
        self.dispose(taken.take_some(taken.count), default)
        numbers = terminus.deliveries.numbers()
        for begin in range(0, len(numbers), PIECE):
            some = terminus.deliveries.take_up(numbers[begin : begin + PIECE])
            self.dispose([(each.consumer, [each.entry]) for each in some], default)
            terminus.deliveries.take_all()
        return count

    def _give_back_locked(self, terminus: Terminus) -> None:
        by_queue: dict[Queue, list[tuple[Reference, int]]] = {}
        for queue, _, reference, deliveries in terminus.deliveries.locks.take_all():
            by_queue.setdefault(queue, []).append((reference, deliveries))
        for queue, pieces in by_queue.items():
            pieces.sort()
            queue.change()
            queue.unsettled -= sum([reference.length for reference, _ in pieces])
            if terminus.keeps:
                ranges = [(reference.first, reference.length) for reference, _ in pieces]
                self.engine.log.append(Kind.GIVEN_BACK, encode_given_back(terminus.number, queue.ident, ranges))
            self._put_back(queue, pieces)

    def dispose(self, taken: Iterable[tuple[Consumer, list[Entry]]], disposition: Disposition | Modification) -> None:
        """Apply an outcome to deliveries that were taken from a terminus."""
        for consumer, entries in taken:
            if isinstance(disposition, Modification):
                self.engine.modify(consumer, entries, disposition)
            else:
                self.engine.settle(consumer, entries, disposition)

    def record(self) -> int:
        """Record the settlements of this turn now. Return the LSN up to which the log must be synced before they are
        answered.
        """
        self.engine.settlements.flush()
        return self.engine.log.end_lsn

    # -- tags

    def check_room(self, terminus: Terminus, count: int) -> None:
        """Make room for `count` more tags. Raises LIMIT_EXCEEDED if they are too many for the terminus."""
        if not terminus.arrivals.count:
            terminus.unsettled_since = self.engine.now
        if terminus.arrivals.count + count > self.limits.unsettled:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"{terminus.title} has {terminus.arrivals.count} unsettled deliveries; the limit is "
                f"{self.limits.unsettled} (limits.unsettled_per_link)",
            )

    def forget(self, terminus: Terminus, tags: Sequence[bytes]) -> None:
        """Record, at the end of the turn, that the sender has settled these tags."""
        if tags and terminus.keeps:
            self._forgotten.setdefault(terminus, {}).update(dict.fromkeys(tags))

    def forget_all(self, terminus: Terminus, gone: list[dict[bytes, Any]]) -> None:
        """Forget messages, by their tags; those in the first dict may be in the log. The memory of many of them is
        freed in later turns, in which the log learns of their tags.
        """
        if not any(gone):
            return
        if sum(map(len, gone)) <= PIECE:
            self.forget(terminus, list(gone[0]))
            return
        if terminus.keeps:
            self._fading.setdefault(terminus, []).append(gone[0])
        self.engine.left_over.add(self._fade(terminus, gone))

    def _fade(self, terminus: Terminus, gone: list[dict[bytes, Any]]) -> Iterator[None]:
        """Free the memory of messages in pieces, and record their tags."""
        for tags in gone:
            while tags:
                some = [tags.popitem()[0] for _ in range(min(PIECE, len(tags)))]
                if any(tags is each for each in self._fading.get(terminus, ())):
                    self.forget(terminus, some)
                yield
        fading = self._fading.get(terminus)
        if fading is not None and not any(fading):
            del self._fading[terminus]

    def record_forgotten(self, terminus: Terminus, tags: Sequence[bytes]) -> None:
        """Record settled tags now if some of `tags` are among them, because messages that reuse them follow."""
        for fading in self._fading.get(terminus, ()):
            self.forget(terminus, [tag for tag in tags if fading.pop(tag, None) is not None])
        waiting = self._forgotten.get(terminus)
        if waiting and not waiting.keys().isdisjoint(tags):
            self._record_forgotten()

    def _record_forgotten(self) -> None:
        for terminus, tags in self._forgotten.items():
            self.engine.log.append(Kind.FORGOTTEN, encode_forgotten(terminus.number, list(tags)))
        self._forgotten.clear()

    # -- the log

    def counters(self) -> dict[str, int]:
        """Return the number that must not be assigned twice, for a snapshot."""
        return {"next_terminus": self._last + 1} if self._last else {}

    def captured(self) -> CapturedTermini:
        """Return copies of all durable termini, for a snapshot."""
        self._record_forgotten()
        return self.durable.captured()

    def restore(self, terminus: Terminus) -> None:
        """Add a terminus that recovery found. Its timeout starts from the beginning."""
        self.add(terminus)
        self.durable.changed(terminus)
        terminus.state = TerminusState.SUSPENDED
        if TerminusInput.CONNECTION_LOST in EXPIRES_AFTER[terminus.settings.policy]:
            at = self.engine.now + terminus.settings.timeout_ms
            terminus.deadline = self.engine.deadlines.set(at, lambda: self._expire(terminus))

    def seen(self, number: int) -> None:
        """Note a terminus number found in a record, so that it is not assigned again."""
        self._last = max(self._last, number)
