"""Planted bugs in RocketMQ's endpoints that the simulator must find, most of them in calls that are gathered."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.registry import HalfMessages
from escrowmq.wire.rocketmq.grpc.calls import Call
from escrowmq.wire.rocketmq.grpc.gathering import GatheredCalls
from escrowmq.wire.rocketmq.remoting.half_runs import HalfRuns, WaitingHalf
from escrowmq.wire.rocketmq.remoting.pulling import Pull
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply
from escrowmq.wire.rocketmq.remoting.runs import SendRuns
from tests.simulation import planted_faults

_flush_halves = HalfRuns.flush
_store_halves = HalfRuns._store
_publish = SendRuns._publish
_answer_with = Call.answer_with
_decide = HalfMessages.decide_each
_answer_now = Pull.answer_now
_flush_calls = GatheredCalls.flush


def halves_answered_before_sync(self: HalfRuns, answer: Any) -> int:
    _flush_halves(self, answer)
    return 0


def sends_answered_before_sync(self: SendRuns) -> None:
    lsn = self._lsn
    _publish(self)
    self._lsn = lsn


def calls_answered_before_sync(self: Call, data: bytes, after: int = 0) -> None:
    _answer_with(self, data, 0)


def answers_exchanged(self: HalfRuns, topic: str, group: str, some: list[WaitingHalf], answer: Any) -> int:
    """Give the answers of half messages that arrived together in the opposite order."""
    turned = [half._replace(request=other.request) for half, other in zip(some, reversed(some), strict=True)]
    return _store_halves(self, topic, group, turned, answer)


def refused_with_its_neighbours(self: HalfMessages, vhost: str, verdicts: Any) -> list[int | BrokerError]:
    """Let the refusal of one decision keep those behind it from being taken, although they are answered."""
    found = _decide(self, vhost, verdicts[:1])
    if isinstance(found[0], BrokerError):
        return found + [0] * (len(verdicts) - 1)
    return found + (refused_with_its_neighbours(self, vhost, verdicts[1:]) if verdicts[1:] else [])


def left_at_the_end_of_a_read(self: GatheredCalls) -> None:
    """Forget half messages if there are decisions, too."""
    if self._ends:
        self._halves.clear()
    _flush_calls(self)


def pulled_before_sync(self: Pull) -> HandlerReply | None:
    reply = _answer_now(self)
    return None if reply is None else reply._replace(after=0)


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "half messages of one read answered before their sync": {(HalfRuns, "flush"): halves_answered_before_sync},
    "sends of one read answered before their sync": {(SendRuns, "_publish"): sends_answered_before_sync},
    "calls of gRPC answered before their sync": {(Call, "answer_with"): calls_answered_before_sync},
    "answers of half messages exchanged": {(HalfRuns, "_store"): answers_exchanged},
    "decisions behind a refused one not taken": {(HalfMessages, "decide_each"): refused_with_its_neighbours},
    "half messages forgotten among decisions": {(GatheredCalls, "flush"): left_at_the_end_of_a_read},
    "messages pulled before their sync": {(Pull, "answer_now"): pulled_before_sync},
    **planted_faults.OF_ANY_DISK,
}
"""The patches of each bug, by class and attribute."""
