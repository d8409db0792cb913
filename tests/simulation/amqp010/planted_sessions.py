"""Planted bugs of sessions that outlive their connection, which histories over AMQP 0-10 must find."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.wire.amqp010.execution import Execution
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.sent import SentCommands
from escrowmq.wire.amqp010.session import Session
from escrowmq.wire.amqp010.subscriptions import Subscriptions

_answer_run = Execution.answer_run
_complete = Execution.complete
_keep = Session.keep


def completed_before_the_sync(self: Execution, number: int, reply: Reply | None) -> None:
    _complete(self, number, reply._replace(after=0) if reply is not None else Reply())


def run_completed_before_the_sync(self: Execution, first: int, last: int, after: int) -> None:
    _answer_run(self, first, last, 0)


def all_numbers_new(self: Execution) -> None:
    """Take the commands that a client sends again for new ones."""
    self._first = self._known = self.next = 0


def forgetful_completion(self: Execution, number: int, reply: Reply | None) -> None:
    """Complete only commands that are executed, and not those that come again."""
    if number >= self._known - 1:
        _complete(self, number, reply)


def half_kept(self: Session) -> None:
    """Keep the first frames of a command whose others were lost."""
    half = self.assembly
    _keep(self)
    self.assembly = half


def nothing_sent_again(self: Subscriptions, first: int, most: int) -> list[Any]:
    return []


def nothing_remembered(self: SentCommands, number: int, payload: bytes, after: int) -> None:
    """Forget the broker's own commands."""


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "a completion before the sync": {
        (Execution, "complete"): completed_before_the_sync,
        (Execution, "answer_run"): run_completed_before_the_sync,
    },
    "a command that comes again is executed twice": {(Execution, "resume"): all_numbers_new},
    "completions are forgotten": {
        (Execution, "complete"): forgetful_completion,
        (Execution, "completed"): property(lambda _: []),
    },
    "half a command is kept": {(Session, "keep"): half_kept},
    "unsettled deliveries are not sent again": {(Subscriptions, "sent_again"): nothing_sent_again},
    "acceptances are not sent again": {(SentCommands, "add"): nothing_remembered},
}
"""The patches of each bug, by class and attribute."""
