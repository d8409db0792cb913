"""Half messages in a simulated world: producers with a local database, an operator, and a broker that crashes.

Producers store numbered messages, decide them, repeat and contradict their decisions, and are lost and come back. An
operator resumes, commits and drops parked messages. Answers leave when their records are on disk, requests and answers
are lost with their connection, and the broker is killed at any step. In the end each message must have been delivered
once if it was committed, and never if it was not. Whatever was answered must hold.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.deciding import HalfVerdict
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.options import CheckOptions
from escrowmq.core.half.state import HalfInput, HalfState
from escrowmq.core.half.storing import HalfArrival, Stored
from escrowmq.core.messages.envelope import Envelope
from tests.simulation.faulty_world import TROUBLE, FaultyWorld
from tests.simulation.half_clients import CHECKS, Account, ProducerProcess, Request
from tests.simulation.ledger import Violation
from tests.simulation.steps import Step

WEIGHTS: Final[dict[str, int]] = {
    "send": 40,
    "decide": 30,
    "repeat": 10,
    "contradict": 8,
    "say unknown": 6,
    "forge": 3,
    "arrive": 90,
    "arrive together": 20,
    "hear": 60,
    "answer": 30,
    "deafen": 8,
    "lose": 6,
    "join": 16,
    "resume": 20,
    "force": 5,
    "drop": 5,
    "consume": 8,
    "time": 30,
    "turn": 40,
    "sync": 24,
    "crash": 4,
    "crash in sync": 3,
    "snapshot": 2,
    "compact": 2,
    **TROUBLE,
}
PRODUCERS: Final = 2
ROUNDS: Final = 120
_VERDICTS: Final = {"commit": HalfInput.COMMIT, "roll back": HalfInput.ROLL_BACK}
"""The decisions that the broker may take together."""
_OPTIONS: Final = CheckOptions(timeout_ms=100, interval_ms=100, checks=CHECKS)
_ENVELOPE: Final = Envelope("", "q", durable=True)


def _prepare(broker: Broker, life: int) -> None:
    broker.half.options.check = _OPTIONS
    broker.half.options.outcome_kept_ms = 1 << 40


class HalfWorld(FaultyWorld):
    """A history of half messages."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _prepare, resident_limit=400)
        self.site.queue()
        self.site.sync()
        self.accounts: dict[str, Account] = {}
        self.producers = [ProducerProcess(self, who) for who in range(PRODUCERS)]
        self.operator = ProducerProcess(self, PRODUCERS)
        self.delivered: Counter[str] = Counter()
        self._stored: dict[int, int] = {}  # by number: the LSN up to which the log must be synced
        self._synced_lsn = 0  # when the last process died

    # -- what producers and the operator do

    def _producer(self, step: Step) -> ProducerProcess:
        return self.producers[step.who % PRODUCERS]

    def stored_end(self, number: int) -> int:
        """Return the LSN up to which the log must be synced before a half message is on disk."""
        return self._stored.get(number, 0)

    def _known(self, step: Step) -> Account | None:
        """Return one of the messages that were stored as far as their producer knows."""
        known = [account for account in self.accounts.values() if account.number]
        return known[step.what % len(known)] if known else None

    def _send(self, step: Step) -> None:
        """Send a new half message, or one again whose answer was lost."""
        producer = self._producer(step)
        if not producer.connected:
            return
        again = [account for account in self.accounts.values() if not account.number]
        if again and step.what % 2:
            account = again[step.what % len(again)]
            self.count("sent again")
        else:
            ident = f"m{len(self.accounts)}"
            account = self.accounts[ident] = Account(ident)
        producer.requests.append(Request("store", account.ident))

    def _decide(self, step: Step) -> None:
        account = self._known(step)
        if account is not None:
            account.decide(step.what)
            self._producer(step).end(account, account.local)

    _repeat = _decide

    def _contradict(self, step: Step) -> None:
        account = self._known(step)
        if account is not None and account.local:
            self._producer(step).end(account, "roll back" if account.local == "commit" else "commit")
            account.muddled = True

    def _say_unknown(self, step: Step) -> None:
        account = self._known(step)
        if account is not None:
            self._producer(step).end(account, "unknown")

    def _forge(self, step: Step) -> None:
        """Decide a half message that does not exist."""
        producer = self._producer(step)
        if producer.connected:
            producer.requests.append(Request("commit", "", 1_000_000 + step.what))

    def _answer(self, step: Step) -> None:
        self._producer(step).answer_checks(step.what)

    def _deafen(self, step: Step) -> None:
        producer = self._producer(step)
        producer.writable = not producer.writable

    def _hear(self, step: Step) -> None:
        self._producer(step).hear()
        self.operator.hear()

    def _lose(self, step: Step) -> None:
        self._producer(step).lose()

    def _join(self, step: Step) -> None:
        self._producer(step).join()

    def _order(self, step: Step, verb: str) -> None:
        account = self._known(step)
        if account is not None:
            self.operator.requests.append(Request(verb, account.ident, account.number))
            self._handle(self.operator)

    def _resume(self, step: Step) -> None:
        self._order(step, "resume")

    def _force(self, step: Step) -> None:
        self._order(step, "force")

    def _drop(self, step: Step) -> None:
        self._order(step, "drop")

    # -- the broker handles requests

    def _arrive(self, step: Step) -> None:
        self._handle(self._producer(step))

    def _arrive_together(self, step: Step) -> None:
        """Handle all requests of a producer: those to store in one call, then commits and rollbacks in another one."""
        producer = self._producer(step)
        requests, producer.requests = producer.requests, deque()
        half, queue = self.site.broker.half, self.site.vhost.queue("q")
        stores = [request for request in requests if request.verb == "store"]
        arrivals = [HalfArrival(request.ident, _ENVELOPE, request.ident.encode(), queue) for request in stores]
        for request, result in zip(
            stores, half.store_each("/", "t", arrivals, group="g", user="u", producer=producer), strict=True
        ):
            assert isinstance(result, Stored)
            self._was_stored(producer, request, result)
        ends = [request for request in requests if request.verb in _VERDICTS]
        before = [half.at("/", request.number) for request in ends]
        verdicts = [HalfVerdict(request.number, _VERDICTS[request.verb], request.ident) for request in ends]
        results = half.decide_each("/", verdicts)
        for i, request in enumerate(ends):
            if request.number in {other.number for other in ends[:i]}:
                before[i] = half.at("/", request.number)  # the state after the first of them
            self._was_decided(producer, request, before[i], results[i])
        producer.requests.extend(request for request in requests if request.verb == "unknown")
        if len(requests) > 1:
            self.count("arrived together")

    def _was_stored(self, producer: ProducerProcess, request: Request, stored: Stored) -> None:
        if not stored.repeated:
            self._stored[stored.number] = stored.lsn
        producer.tell(stored.lsn, request, "ok", stored.number)

    def _handle(self, producer: ProducerProcess) -> None:
        if not producer.requests:
            return
        request = producer.requests.popleft()
        half = self.site.broker.half
        if request.verb == "store":
            stored = half.store(
                *("/", "t", request.ident, _ENVELOPE, request.ident.encode(), self.site.vhost.queue("q")),
                group="g",
                user="u",
                producer=producer,
            )
            self._was_stored(producer, request, stored)
            return
        before = half.at("/", request.number)
        result: int | BrokerError
        try:
            result = self._end(request)
        except BrokerError as error:
            result = error
        self._was_decided(producer, request, before, result)

    def _was_decided(
        self, producer: ProducerProcess, request: Request, before: HalfMessage | None, result: int | BrokerError
    ) -> None:
        account = self.accounts.get(request.ident)
        if isinstance(result, BrokerError):
            self._refused(request, before, result)
            producer.tell(0, request, "refused")
            return
        if before is None:
            raise Violation(f"{request} has an effect, although there is no such half message")
        if account is not None and account.ident != before.message_id:
            raise Violation(f"{request} decided {before.message_id}")
        if before.state is HalfState.PARKED and request.verb in ("commit", "roll back"):
            raise Violation(f"{request} was accepted, although {before.message_id} is parked")
        self.count(request.verb)
        if account is not None:
            account.requested.add(request.verb)
            if request.verb == "resume":
                account.checks = 0
        producer.tell(result, request, "ok", request.number)

    def _end(self, request: Request) -> int:
        half, number, ident = self.site.broker.half, request.number, request.ident
        match request.verb:
            case "commit":
                return half.commit("/", number, message_id=ident)
            case "roll back":
                return half.roll_back("/", number, message_id=ident)
            case "unknown":
                return half.unknown("/", number, message_id=ident)
            case "resume":
                return half.resume("/", number)
            case "force":
                return half.force_commit("/", number)
            case _:
                return half.drop("/", number)

    def _refused(self, request: Request, before: HalfMessage | None, error: BrokerError) -> None:
        """Check that a refusal is justified."""
        if self.refused(error):
            return
        account = self.accounts.get(request.ident)
        if error.condition is Condition.NOT_FOUND:
            if account is not None and account.number == request.number:
                raise Violation(f"{request} is refused, although the half message was acknowledged")
            self.count("refused: unknown")
            return
        if error.condition is not Condition.ILLEGAL_STATE or before is None or account is None:
            raise Violation(f"{request} is refused: {error}")
        commits = {"commit", "force"}
        drops = {"roll back", "drop"}
        if before.state is HalfState.PARKED and account.checks >= CHECKS:
            self.count("refused: parked")
        elif request.verb in commits | {"resume"} and account.requested & drops:
            self.count("refused: rolled back")
        elif request.verb in drops | {"resume"} and account.requested & commits:
            self.count("refused: committed")
        elif request.verb != "resume":
            raise Violation(f"{request} is refused without a reason: {error}")

    # -- what consumers get

    def _consume(self, step: Step) -> None:
        if self.machine.troubled:
            return  # a process that dies now may have settled a message that nobody got
        while True:
            with self.machine.calm():
                entry = self.site.broker.engine.get(self.site.vhost.queue("q"), auto_settle=True)
                self._turn(step)
                self._sync(step)
            if entry is None:
                return
            self.take(entry.content.decode())

    def take(self, ident: str) -> None:
        """Check a message that was delivered."""
        self.delivered[ident] += 1
        account = self.accounts[ident]
        if self.delivered[ident] > 1:
            raise Violation(f"{ident} was delivered {self.delivered[ident]} times")
        if not account.requested & {"commit", "force"}:
            raise Violation(f"{ident} was delivered, but not committed")
        if account.promised == "rolled back":
            raise Violation(f"{ident} was delivered, although its rollback was answered")

    def look(self) -> None:
        """Check that no check counts that nobody got, and note which messages are parked."""
        for ident, account in self.accounts.items():
            half = self.site.broker.half.named("/", "t", ident)
            if half is not None and half.checks > account.checks:
                raise Violation(f"{half.checks} checks of {ident} count, {account.checks} were written")
            if half is None or half.state is not HalfState.PARKED:
                account.parked = 0
            elif not account.parked:
                account.parked = self.site.journal.end_lsn

    # -- syncs and crashes

    def synced(self) -> None:
        for process in (*self.producers, self.operator):
            process.synced(self.site.journal.synced_lsn)

    def dying(self) -> None:
        self._synced_lsn = self.site.journal.synced_lsn

    def restarted(self) -> None:
        synced = self._synced_lsn
        self._stored.clear()
        for process in (*self.producers, self.operator):
            process.broker_died()
        for ident, account in self.accounts.items():
            half = self.site.broker.half.named("/", "t", ident)
            if half is None:
                if account.number:
                    raise Violation(f"{ident} was acknowledged, and the crash lost it")
                continue
            self.count(f"survived: {half.state.title}")
            account.requested |= {"commit"} if half.state is HalfState.COMMITTED else set()
            if 0 < account.parked <= synced and half.state is HalfState.PENDING and "resume" not in account.requested:
                raise Violation(f"{ident} was parked, and is pending after the crash")
            if account.number and half.number != account.number:
                raise Violation(f"{ident} was number {account.number}, and is {half.number} after the crash")
            if account.promised and account.promised != half.state.title:
                raise Violation(f"{ident} is {half.state.title} after the crash, and was {account.promised}")
            account.checks = half.checks  # the checks of the last turn may be lost

    # -- the end

    def finish(self) -> None:
        """Let everybody finish without trouble. Then each message must have its outcome, and be delivered by it."""
        for producer in self.producers:
            producer.writable = True
            producer.join()
        for _ in range(ROUNDS):
            for who in range(PRODUCERS):
                for kind in ("answer", "arrive", "arrive", "hear"):
                    self.do(Step(kind, who, 0, 0))
            for kind in ("time", "turn", "sync", "consume"):
                self.do(Step(kind, 0, 0, 3))
            if not self._go_on():
                break
        self._judge()

    def _go_on(self) -> bool:
        """Send again what was not answered, and decide parked messages. Return whether there was any."""
        busy = any(producer.requests or producer.answers for producer in self.producers)
        for at, account in enumerate(self.accounts.values()):
            producer = self.producers[at % PRODUCERS]
            half = self.site.broker.half.named("/", "t", account.ident)
            if not account.number:
                producer.requests.append(Request("store", account.ident))
            elif half is not None and half.state is HalfState.PARKED:
                verb = "force" if account.local == "commit" else "drop"
                self.operator.requests.append(Request(verb, account.ident, account.number))
                self._handle(self.operator)
            elif half is not None and half.state.decided:
                continue
            busy = True
        return busy

    def _judge(self) -> None:
        for ident, account in self.accounts.items():
            half = self.site.broker.half.named("/", "t", ident)
            if half is None or not half.state.decided:
                raise Violation(f"{ident} is never decided: {half and half.state.title}")
            expected = 1 if half.state is HalfState.COMMITTED else 0
            if self.delivered[ident] != expected:
                raise Violation(f"{ident} is {half.state.title}, and was delivered {self.delivered[ident]} times")
            if account.promised and account.promised != half.state.title:
                raise Violation(f"{ident} is {half.state.title}, and was {account.promised}")
            if account.local == "commit" and expected == 0 and not (account.muddled or "drop" in account.requested):
                raise Violation(f"{ident} is rolled back, although its producer has only committed it")
        self.ledger.events["messages"] = len(self.accounts)
