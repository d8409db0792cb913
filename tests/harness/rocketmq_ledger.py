"""What RocketMQ clients have asked for, what was answered, and what must therefore be delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.harness.rocketmq_calls import COMMIT, SEND, STORE, Answered, Asked


@dataclass
class Ledger:
    """Filled while clients run. The `check_*` methods raise AssertionError for a violated guarantee.

    `stored` has the numbers of acknowledged half messages, `wanted` the decision that was sent for each, and `decided`
    the half messages whose decision was answered.
    """

    asked: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    halves: set[str] = field(default_factory=set)
    stored: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)

    def ask(self, request: Asked) -> None:
        """Note a request that is about to be sent."""
        if request.verb == SEND:
            self.asked.add(request.ident)
        elif request.verb == STORE:
            self.halves.add(request.ident)
        else:
            self.wanted[request.ident] = request.verb

    def answered(self, answer: Answered) -> None:
        """Note an answer. Raises AssertionError if it is a refusal."""
        request, fault, number = answer
        assert not fault, f"{request} is refused: {fault}"
        if request.verb == SEND:
            self.sent.add(request.ident)
        elif request.verb == STORE:
            before = self.stored.setdefault(request.ident, number)
            assert before == number, f"half message {request.ident} was number {before}, and became {number}"
        else:
            self.decided.add(request.ident)

    def check_promises(self, delivered: Iterable[str]) -> None:
        """HALF-1, HALF-2, DUR-1: what was answered holds, and nothing is there that was not asked for."""
        times = Counter(delivered)
        self.check_delivered(times.elements())
        self._check_sends(times)
        committed = {ident for ident in self.decided if self.wanted[ident] == COMMIT}
        lost = sorted(committed - times.keys())
        assert not lost, f"{len(lost)} commits were answered, and are lost: {lost[:5]}"

    def check_outcomes(self, delivered: Iterable[str]) -> None:
        """HALF-2, HALF-3: after everything was decided, each committed message is there once, and no other one."""
        times = Counter(delivered)
        self.check_delivered(times.elements())
        self._check_sends(times)
        undecided = sorted(self.halves - self.decided)
        assert not undecided, f"{len(undecided)} half messages have no outcome: {undecided[:5]}"
        committed = {ident for ident in self.halves if self.wanted[ident] == COMMIT}
        lost = sorted(committed - times.keys())
        assert not lost, f"{len(lost)} half messages were committed, and are lost: {lost[:5]}"

    def _check_sends(self, times: Counter[str]) -> None:
        lost = sorted(self.sent - times.keys())
        assert not lost, f"{len(lost)} sends were answered, and are lost: {lost[:5]}"

    def check_delivered(self, delivered: Iterable[str]) -> None:
        """Nothing is there twice, without a commit, or without having been sent."""
        times = Counter(delivered)
        twice = sorted(ident for ident, number in times.items() if number > 1)
        assert not twice, f"{len(twice)} messages were delivered more than once: {twice[:5]}"
        committed = {ident for ident, verb in self.wanted.items() if verb == COMMIT}
        wrong = sorted(times.keys() & self.halves - committed)
        assert not wrong, f"{len(wrong)} half messages were delivered without a commit: {wrong[:5]}"
        unknown = sorted(times.keys() - self.asked - self.halves)
        assert not unknown, f"{len(unknown)} messages were never sent in this round: {unknown[:5]}"
