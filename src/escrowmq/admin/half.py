"""Operations on half messages: list and show them, and decide those that no producer decides (HALF-6, HALF-10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

from escrowmq.admin.operation import Listing, NothingFound, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.state import HalfState

_DONE: Final = {HalfState.COMMITTED: "committed", HalfState.ROLLED_BACK: "dropped", HalfState.PENDING: "resumed"}

_log = logging.getLogger("escrowmq.admin")


class HalfAdmin:
    """The operations by name are in `operations`; their argument `transaction` is a transaction id, or a message id,
    which RocketMQ clients get as the id of the transaction.

    They raise OperationRefused or BrokerError. A change is on disk when its operation returns.
    """

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "half.list": self.list_half_messages,
            "half.show": self.show,
            "half.resume": self.resume,
            "half.commit": self.commit,
            "half.drop": self.drop,
        }

    async def list_half_messages(self, vhost: str = "", topic: str = "", states: tuple[str, ...] = ()) -> Listing:
        """Return half messages, in the order of their arrival in each virtual host: those of `vhost`, of `topic`, and
        in one of `states`, if these are given. An unknown virtual host or topic is refused.
        """
        known = list(self._broker.directory.vhosts)
        if vhost and vhost not in known:
            raise OperationRefused(f"no virtual host '{vhost}'; `escrowmq vhost list` shows those that exist")
        vhosts = [vhost] if vhost else known
        if topic and not any(self._has(each, topic) for each in vhosts):
            raise OperationRefused(f"no topic '{topic}'; `escrowmq topic list` shows those that exist")
        wanted = {HalfState[state.upper()] for state in states} or set(HalfState)
        return Listing(self._pieces, self._rows(vhosts, topic, wanted))

    def _has(self, vhost: str, topic: str) -> bool:
        """Whether a virtual host has a topic, or half messages of a topic that was deleted."""
        queue = self._broker.half.queue(vhost)
        there = queue is not None and topic in queue.ledger.states
        return there or self._broker.topics.find(self._broker.directory.vhost(vhost), topic) is not None

    async def show(self, vhost: str, transaction: str, *, whole: bool = False) -> Row:
        """Return one half message, with its routing and content if it is undecided and can be read. Without `whole`,
        only the beginning of a long body is returned.
        """
        half = self._find(vhost, transaction)
        row = self._row(half)
        if not half.state.decided:
            try:
                envelope = half.envelope
                row |= {"exchange": envelope.exchange, "routing_key": envelope.routing_key}
                row = self._process.readable(envelope, half.content, whole=whole) | row
            except BrokerError as error:
                row["unreadable"] = error.text
        return row

    async def resume(self, vhost: str, transaction: str) -> Row:
        """Have a parked half message checked again, from the first check on."""
        return await self._change(vhost, transaction, self._broker.half.resume)

    async def commit(self, vhost: str, transaction: str) -> Row:
        """Deliver a half message that is parked or pending."""
        return await self._change(vhost, transaction, self._broker.half.force_commit)

    async def drop(self, vhost: str, transaction: str) -> Row:
        """Drop a half message that is parked or pending."""
        return await self._change(vhost, transaction, self._broker.half.drop)

    async def summary(self) -> dict[str, int]:
        """Return the numbers of pending and parked half messages, and the ages of the oldest ones in seconds."""
        return await self._pieces.result(self._counting())

    def _counting(self) -> Generator[None, None, dict[str, int]]:
        counts, now = (
            dict.fromkeys(("pending", "pending_seconds", "parked", "parked_seconds"), 0),
            self._broker.engine.now,
        )
        for vhost in list(self._broker.directory.vhosts):
            yield
            queue = self._broker.half.queue(vhost)
            if queue is None:
                continue
            for state in (HalfState.PENDING, HalfState.PARKED):
                count, oldest = queue.ledger.tally(state)
                name = state.title
                counts[name] += count
                counts[f"{name}_seconds"] = max(counts[f"{name}_seconds"], (now - oldest) // 1000 if count else 0)
        return counts

    async def _change(self, vhost: str, transaction: str, change: Callable[[str, int], int]) -> Row:
        half = self._find(vhost, transaction)
        await self._process.durably(lambda: change(vhost, half.number))
        after = self._find(vhost, transaction)
        if after.state is half.state:
            return self._row(after)
        _log.warning(
            "an operator has %s %s in vhost '%s', message id '%s', which had been %s",
            *(_DONE[after.state], half.title, vhost, half.message_id, half.state.title),
            extra={"fields": {"vhost": vhost, "message_id": half.message_id, "group": half.group}},
        )
        return self._row(after)

    def _find(self, vhost: str, transaction: str) -> HalfMessage:
        half = self._broker.half.find(vhost, transaction)
        if half is not None:
            return half
        found = self._broker.half.with_message_id(vhost, transaction)
        if len(found) > 1:
            idents = ", ".join(half.transaction_id for half in found)
            raise OperationRefused(
                f"{len(found)} half messages in vhost '{vhost}' have the message id {transaction}; use one of the "
                f"transaction ids {idents}"
            )
        if not found:
            raise NothingFound(
                f"no half message {transaction} in vhost '{vhost}'; `escrowmq half list` shows those that are known"
            )
        return found[0]

    def _rows(self, vhosts: list[str], topic: str, wanted: set[HalfState]) -> Iterator[Row | None]:
        for vhost in vhosts:
            for half in self._broker.half.each(vhost):
                if half.state in wanted and topic in ("", half.topic):
                    yield self._row(half)
                else:
                    yield None

    def _row(self, half: HalfMessage) -> Row:
        now = self._broker.engine.now
        due: dict[str, Any] = {"next_check": None, "decided": None}
        waits = False
        if half.state is HalfState.PENDING:
            waits = half.due <= now and not self._broker.half.producers.count(half.vhost, half.group)
            due["next_check"] = None if waits else max(half.due - now, 0) // 1000
        elif half.state.decided:
            due["decided"] = (now - half.due) // 1000
        return {
            "transaction": half.transaction_id,
            "number": half.number,
            "vhost": half.vhost,
            "topic": half.topic,
            "group": half.group,
            "message_id": half.message_id,
            "state": half.state.name.lower(),
            "seconds": (now - half.born) // 1000,
            "checks": half.checks,
            **due,
            "waits_for_producer": waits,
            "user": half.user,
            "producer": half.label,
            "queue": half.queue.name if half.queue is not None else None,
        }
