"""A simulated client of AMQP 0-10. It knows the messages that it has received, and executes steps if it can.

Its session without transactions has a timeout. The client remembers it when the connection is lost, attaches it again,
and repeats the commands that are not known to be complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.harness.server import AnyPort
from tests.simulation.amqp010 import wire
from tests.simulation.amqp010.wire import Operation
from tests.simulation.steps import Step
from tests.simulation.topology import ARGUMENTS, BOUND, DELETED, EXCHANGE, NOWHERE, PURGED

MODES: Final = ("", "tx")
TX: Final = 2
"""The channel of the session that is transactional."""
KEPT: Final = 1
"""The channel of the session that outlives its connection."""
TIMEOUT: Final = 10**9
"""Seconds for which a session is kept. The machine's clock is set forward by days meanwhile."""
_REPEATED: Final = 3  # commands that are sent again although they are known to be complete
NAMES: Final = tuple(name for name in ARGUMENTS if name != "small")
"""The queues to which clients publish. A queue that refuses a message ends the session, and is left to other worlds."""
_CREDIT: Final = (1, 2, 5, 20, 0xFFFFFFFF)
_SIZES: Final = (8, 8, 8, 40, 600, 5000)
_LOGIN: Final = b"\0guest\0guest"


@dataclass(eq=False)
class _Session:
    number: int
    name: bytes
    is_open: bool = False
    sent: int = 0
    asked: set[int] = field(default_factory=set)
    """Commands after which this session sends nothing until they are complete."""
    log: dict[int, bytes] = field(default_factory=dict)
    """The frames of commands, from the first one on that is not known to be complete, and of a few before."""
    completed: set[int] = field(default_factory=set)
    again: bool = False
    """Whether the client has attached it again, and does not know yet whether the broker has kept it."""
    leaving: bool = False
    received: int = 0
    unsettled: list[int] = field(default_factory=list)
    in_transaction: list[int] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)


class Actor:
    """One client process, as `tests.simulation.dialect.Client`."""

    def __init__(self, number: int, favourites: Sequence[str] = ()) -> None:
        self.number = number
        wanted = [name for name in favourites if name in NAMES]
        self._names = (*wanted, *wanted, *wanted, *NAMES)
        self.port: AnyPort | None = None
        self.up = bytearray()
        self.down = bytearray()
        self.sessions: dict[int, _Session] = {}
        self._parser = wire.Parser()
        self._serials = self._tags = self._lives = 0
        self._closing = False
        self.left = False
        self._keeps = bool(favourites)
        self.kept: _Session | None = None
        """The session of a connection that is lost. The broker may have kept it."""
        self.force = False
        """Whether the session is taken from a connection that the broker does not know to be lost."""

    # -- connections

    def connect(self, port: AnyPort) -> None:
        """Log in and attach a session of each mode, without waiting for answers."""
        self.port = port
        self.up, self.down = bytearray(wire.PROTOCOL_HEADER), bytearray()
        self.sessions.clear()
        self._parser = wire.Parser()
        self._closing = self.left = False
        self._lives += 1
        start_ok = {"properties": {}, "mechanism": "PLAIN", "response": _LOGIN, "locale": "en_US"}
        self.up += wire.operation(0, "connection.start-ok", **start_ok)
        self.up += wire.operation(0, "connection.tune-ok", channel_max=100, frame_max=4096)
        self.up += wire.operation(0, "connection.open", vhost="/")
        kept, self.kept = self.kept, None
        if kept is None:
            self._open(KEPT)
        else:
            self.sessions[KEPT] = kept
            self._attach_again(kept)
        self.force = False
        self._open(TX)

    def lost(self) -> None:
        """Note that the connection is lost."""
        self.port = None
        if self._keeps:
            self.kept = self.sessions.get(KEPT, self.kept)
        self.up.clear()
        self.down.clear()
        self.sessions.clear()

    def _open(self, number: int) -> None:
        self._tags += 1
        name = b"%d.%d.%d" % (self.number, self._lives, self._tags)
        self.sessions[number] = session = _Session(number, name)
        self.up += wire.operation(number, "session.attach", name=name)
        self._begin(session)
        if MODES[number - 1] == "tx":
            self._ask(session, "tx.select")

    def _begin(self, session: _Session) -> None:
        """Begin to send the commands of a new session."""
        self.up += wire.operation(session.number, "session.command-point", id=0, offset=0)
        if session.number == KEPT and self._keeps:
            self.up += wire.operation(session.number, "session.request-timeout", timeout=TIMEOUT)

    # -- sessions that are attached again

    def _attach_again(self, session: _Session) -> None:
        session.again, session.is_open, session.leaving = True, False, False
        session.asked.discard(-1)
        self.up += wire.operation(session.number, "session.attach", name=session.name, force=self.force)

    def _resume(self, session: _Session) -> None:
        """Go on with a session that the broker has kept: repeat commands, and ask for those that have not arrived."""
        session.again, session.is_open = False, True
        self.up += wire.operation(session.number, "session.expected", commands=[(session.received, session.received)])
        first = min(session.log, default=session.sent)
        self.up += wire.operation(session.number, "session.command-point", id=first, offset=0)
        for number in range(first, session.sent):
            self.up += session.log[number]

    def _renew(self, session: _Session) -> None:
        """Begin anew with a session that the broker has not kept."""
        self.sessions[session.number] = fresh = _Session(session.number, session.name, is_open=True)
        self._begin(fresh)

    def _note_completed(self, session: _Session, first: int, last: int) -> None:
        numbers = set(range(first, last + 1))
        session.asked -= numbers
        session.completed |= numbers
        while session.log and len(session.log) > _REPEATED and min(session.log) + _REPEATED in session.completed:
            del session.log[min(session.log)]

    def set_up(self) -> None:
        """Declare the exchange and the queues."""
        session = self.sessions[1]
        self._say(session, "exchange.declare", exchange=EXCHANGE, type="fanout", durable=True)
        for name in ARGUMENTS:
            self._say(session, "queue.declare", **declared(name))
        for name in BOUND:
            self._say(session, "exchange.bind", queue=name, exchange=EXCHANGE, key="")

    def _say(self, session: _Session, name: str, **values: Any) -> int:
        return self._put(session, wire.operation(session.number, name, **values))

    def _put(self, session: _Session, frames: bytes) -> int:
        """Send a command, and return its number."""
        number = session.sent
        session.sent += 1
        if session.number == KEPT:
            session.log[number] = frames
        self.up += frames
        return number

    def _ask(self, session: _Session, name: str, **values: Any) -> None:
        """Send a command, after which this session sends nothing until it is complete."""
        session.asked.add(self._say(session, name, **values))

    # -- from the server

    def read(self, data: bytes) -> None:
        """Process bytes from the server."""
        for each in self._parser.feed(data):
            if each.name == "connection.close-ok":
                self.left = True
            session = self.sessions.get(each.channel)
            if session is not None:
                self._read(session, each)

    def _read(self, session: _Session, each: Operation) -> None:
        if not each.is_control:
            number = session.received
            session.received += 1
            if each.name == "message.transfer" and each.values.get("accept_mode", 0) == 0:
                session.unsettled.append(number)
        elif each.name == "session.attached":
            session.is_open = not session.again
        elif each.name == "session.flush" and session.again:
            self._resume(session)
        elif each.name == "session.command-point" and session.again:
            self._renew(session)
        elif each.name == "session.gap":
            session.received = each.values["commands"][-1][1] + 1
        elif each.name == "session.completed":
            for first, last in each.values.get("commands", ()):
                self._note_completed(session, first, last)
            if not session.asked:
                session.in_transaction.clear()
        elif each.name == "session.detach":
            self.up += wire.operation(session.number, "session.detached", name=each.values["name"], code=0)
            self._open(session.number)
        elif each.name == "session.detached" and -1 in session.asked and not session.leaving and self._keeps:
            self._attach_again(session)
        elif each.name == "session.detached":
            self._open(session.number)

    # -- steps

    def act(self, step: Step) -> None:
        """Execute a step, or do nothing if it makes no sense at the moment, or if the protocol has nothing like it."""
        if self.port is None or self._closing:
            return
        sessions = list(self.sessions.values())
        if step.kind == "settle":
            sessions = [session for session in sessions if session.unsettled] or sessions
        session = sessions[step.what % len(sessions)]
        if step.kind == "close connection":
            if not any(other.asked for other in self.sessions.values()):
                self.up += wire.operation(0, "connection.close", code=200)
                self._closing = True
        elif not session.asked and session.is_open:
            action = getattr(self, "_" + step.kind.replace(" ", "_"), None)
            if action is not None:
                action(session, step)

    def _publish(self, session: _Session, step: Step) -> None:
        what, how = step.what // len(MODES), step.how
        for i in range(1 + how % 4):
            name = self._names[(what + i * (how // 64)) % len(self._names)]
            to_all = how % 11 == 0
            nowhere = how % 23 == 0
            self._serials += 1
            serial = self.number * 1_000_000 + self._serials
            size = _SIZES[(what + how) % len(_SIZES)]
            delivery = {
                "discard_unroutable": True,
                "mode": 1 if how % 7 == 0 else 2,
                "priority": (how + i) % 5 if name == "priority" else 4,
                "ttl": how * 20 if name == "letters" and how % 2 and not to_all else None,
                "key": NOWHERE if nowhere and not to_all else name,
            }
            body = b"%d.%s" % (serial, bytes((serial + k) % 251 for k in range(size)))
            mode = 0 if session.number == KEPT and how % 3 else 1
            self._put(session, wire.transfer(session.number, EXCHANGE if to_all else "", delivery, body, 4096, mode))

    def _settle(self, session: _Session, step: Step) -> None:
        if not session.unsettled:
            return
        at = (step.what // len(MODES)) % min(len(session.unsettled), 8)
        taken = session.unsettled[: at + 1] if step.how % 4 == 0 else [session.unsettled[at]]
        session.unsettled = [other for other in session.unsettled if other not in taken]
        self.up += wire.operation(
            session.number, "session.completed", commands=[(0, max(session.received - 1, 0))], timely_reply=True
        )
        ranges = [(one, one) for one in taken]
        match step.how // 4 % 8:
            case 0:
                self._say(session, "message.release", transfers=ranges, set_redelivered=True)
            case 1:
                self._say(session, "message.reject", transfers=ranges, code=0)
            case _:
                self._say(session, "message.accept", transfers=ranges)
                if session.number == TX:
                    session.in_transaction += taken

    def _commit(self, session: _Session, step: Step) -> None:
        transactional = self.sessions[TX]
        if not transactional.asked and transactional.is_open:
            self._ask(transactional, "tx.commit")

    def _rollback(self, session: _Session, step: Step) -> None:
        transactional = self.sessions[TX]
        if not transactional.asked and transactional.is_open:
            self._ask(transactional, "tx.rollback")
            transactional.unsettled = sorted([*transactional.unsettled, *transactional.in_transaction])
            transactional.in_transaction.clear()

    def _consume(self, session: _Session, step: Step) -> None:
        name = self._names[step.how % len(self._names)]
        if len(session.consumers) >= 4 or name in DELETED:
            return
        self._tags += 1
        tag = f"{name}-{self.number}-{self._tags}"
        session.consumers.append(tag)
        mode = int(name == "careless")
        self._ask(session, "message.subscribe", queue=name, destination=tag, accept_mode=mode, acquire_mode=0)
        self._say(session, "message.set-flow-mode", destination=tag, mode=step.what % 2)
        self._say(session, "message.flow", destination=tag, unit=1, value=0xFFFFFFFF)
        self._say(session, "message.flow", destination=tag, unit=0, value=_CREDIT[step.what // 3 % len(_CREDIT)])

    def _recover(self, session: _Session, step: Step) -> None:
        """Grant more messages to a subscription."""
        if session.consumers:
            tag = session.consumers[step.how % len(session.consumers)]
            self._say(session, "message.flow", destination=tag, unit=0, value=1 + step.what % 5)

    def _cancel(self, session: _Session, step: Step) -> None:
        if session.consumers:
            tag = session.consumers.pop(step.how % len(session.consumers))
            self._ask(session, "message.cancel", destination=tag)

    def _purge(self, session: _Session, step: Step) -> None:
        self._ask(session, "queue.purge", queue=PURGED[step.how % len(PURGED)])

    def _delete(self, session: _Session, step: Step) -> None:
        self._ask(session, "queue.delete", queue=DELETED[step.how % len(DELETED)])

    def _declare(self, session: _Session, step: Step) -> None:
        self._ask(session, "queue.declare", **declared(DELETED[step.how % len(DELETED)]))

    def _count(self, session: _Session, step: Step) -> None:
        name = self._names[step.how % len(self._names)]
        if name not in DELETED:
            self._ask(session, "queue.query", queue=name)

    def _exclusive(self, session: _Session, step: Step) -> None:
        owner = self.number if step.how % 4 else step.how // 4 % 3
        name = f"own-{owner}"
        if owner == self.number:
            self._ask(session, "queue.declare", queue=name, durable=True, exclusive=True)
        else:
            self._ask(session, "queue.purge", queue=name)

    def _close_channel(self, session: _Session, step: Step) -> None:
        session.asked.add(-1)  # until the session is attached again
        if session.number != KEPT or step.how % 2:
            session.leaving = True
            if session.number == KEPT:
                self.up += wire.operation(session.number, "session.request-timeout", timeout=0)
        self.up += wire.operation(session.number, "session.detach", name=session.name)


def declared(name: str) -> dict[str, Any]:
    """Return the fields of the declaration of a queue."""
    return {"queue": name, "durable": name != "transient", "arguments": dict(ARGUMENTS[name]) or None}
