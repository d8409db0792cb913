"""Sessions that outlive their connection, as the oracle sees them.

While such a session is detached, its channel is on a conversation of its own: it has no bytes, but its deliveries stay
unsettled, and its answers due. The broker may have given it messages that were lost with the connection, so what it has
is not known until everything was sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.simulation.amqp010 import wire
from tests.simulation.amqp010.wire import Operation
from tests.simulation.amqp091.channels import Channel, Connection
from tests.simulation.amqp091.oracle import Oracle
from tests.simulation.ledger import Ledger, Violation

_OPENING: Final = (spec.ChannelOpenOk, spec.ConfirmSelectOk)


@dataclass(eq=False)
class Session:
    """One session as it is seen: the answers to its commands, and the tags of the broker's deliveries."""

    name: bytes
    is_tx: bool
    received: int = 0
    """The number of the client's next command."""
    known: int = 0
    """The commands of the client below this number were received."""
    answers: dict[int, Callable[[], Method]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    """The number of the broker's next command."""
    most_sent: int = 0
    """The commands of the broker below this number were sent."""
    log: dict[int, Operation] = field(default_factory=dict)
    """The broker's commands."""
    tags: dict[int, int] = field(default_factory=dict)
    delivered: int = 0
    published: int = 0
    unaccepted: set[int] = field(default_factory=set)
    """Publishes that the broker has to accept."""
    completed: set[int] = field(default_factory=set)
    again: int = 0
    """Commands below this number may be complete more than once, since the session was attached again."""
    timeout: int = 0
    resumed: bool = False
    replaying: bool = False
    """Whether the broker may be sending again. It is true until everything is at rest."""


class Conversation(Connection):
    """One connection, with a parser for each direction."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.client, self.server = wire.Parser(), wire.Parser()
        self.sessions: dict[int, Session] = {}
        self.awaited: dict[int, bytes] = {}
        """The names of detached sessions that the client has attached again, by channel, until the broker answers."""
        self.former: dict[int, Conversation] = {}
        """The places of sessions that were detached from this connection, by channel. What the broker had sent for them
        before still arrives.
        """


class KeptSessions(Oracle):
    """Knows which sessions have no connection."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._detached: dict[bytes, Conversation] = {}

    def connect(self, name: str) -> Conversation:
        connection = Conversation(name)
        self.connections[connection] = None
        return connection

    # -- sessions lose their connection

    def lose(self, connection: Connection) -> None:
        """Note that the server has lost a connection."""
        if not connection.lost:
            self.keep_all(connection)
        super().lose(connection)

    def die(self) -> None:
        """Note that the server process has ended, and all sessions with it."""
        for connection in self.connections:
            assert isinstance(connection, Conversation)
            for session in connection.sessions.values():
                session.timeout = 0
        self._detached.clear()
        super().die()

    def keep_all(self, connection: Connection) -> None:
        """Note that a connection ends, and which of its sessions do not."""
        assert isinstance(connection, Conversation)
        for number in list(connection.sessions):
            self.keep(connection, number)

    def keep(self, connection: Conversation, number: int) -> bool:
        """Note that a session is detached. Return False if it ends."""
        session, channel = connection.sessions[number], connection.channels.get(number)
        if not session.timeout or channel is None or channel.closing is not None:
            return False
        place = Conversation(f"{session.name.decode()}, detached")
        place.channels[number], place.sessions[number] = (
            connection.channels.pop(number),
            connection.sessions.pop(number),
        )
        self.connections[place] = None
        self._detached[session.name] = connection.former[number] = place
        self.ledger.count("sessions kept")
        return True

    def place_of(self, connection: Conversation, each: Operation) -> Conversation | None:
        """Return where the session is, as which the broker sends something over a connection; None if it has ended, or
        goes on over another connection.
        """
        if each.channel in connection.sessions:
            return connection
        place = connection.former.get(each.channel)
        if each.name == "session.detached":
            connection.former.pop(each.channel, None)
            return None
        return place if place in self._detached.values() else None

    # -- sessions are attached again

    def awaits(self, connection: Conversation, number: int, name: bytes) -> bool:
        """Note that a client attaches a session again. Return False if the session is a new one."""
        for other in list(self.connections):
            assert isinstance(other, Conversation)
            for channel, session in list(other.sessions.items()):
                if session.name == name and other not in self._detached.values() and self.keep(other, channel):
                    self.ledger.count("sessions taken over")
        if name in self._detached:
            connection.awaited[number] = name
        return name in self._detached

    def decide(self, connection: Conversation, each: Operation) -> None:
        """Process the broker's answer to a client that has attached a session again."""
        name = connection.awaited.pop(each.channel)
        place = self._detached.pop(name)
        if each.name != "session.flush":
            raise Violation(f"the session {name.decode()} was not kept: the broker has sent {each}")
        del self.connections[place]
        ((number, session),) = place.sessions.items()
        assert number == each.channel
        connection.sessions[number], connection.channels[number] = session, place.channels[number]
        expected = connection.channels[number].expected
        while expected and expected[0].kinds[0] in _OPENING:  # the answer to the first attach was lost
            expected.popleft()
        session.resumed = session.replaying = True
        session.again = session.known
        self.ledger.count("sessions resumed")

    def repeated(self, channel: Channel, session: Session, number: int, each: Operation) -> None:
        """Check a command that the broker sends again: it is the same, and a delivery is unsettled."""
        before = session.log.get(number)
        if before is None or str(before) != str(each) or (before.header, before.body) != (each.header, each.body):
            raise Violation(f"command {number} is sent again as {each}, and was {before}")
        tag = session.tags.get(number)
        if tag is not None and tag not in channel.unsettled:
            raise Violation(f"delivery {number} is sent again, but it is settled")
        self.ledger.count(f"{each.name} sent again")

    def skipped(self, channel: Channel, session: Session, each: Operation) -> None:
        """Check a gap in the broker's commands: no unsettled delivery is in it."""
        for first, last in each.values["commands"]:
            if first != session.sent:
                raise Violation(f"command {session.sent} is next, but {first} to {last} are skipped")
            for number in range(first, last + 1):
                if session.tags.get(number) in channel.unsettled:
                    raise Violation(f"delivery {number} is skipped, but it is unsettled")
            session.sent = last + 1
            session.most_sent = max(session.most_sent, session.sent)
        self.ledger.count("gaps")

    # -- what is not known meanwhile

    @property
    def settled(self) -> bool:
        """Whether no answer is due, and no session is without a connection or repeats something."""
        return super().settled and not any(
            other in self._detached.values() or session.replaying or session.unaccepted
            for other, session in self._sessions()
        )

    def before_output(self) -> None:
        """Prepare for the end of a turn. A session without a connection may have been given messages."""
        super().before_output()
        for other, session in self._sessions():
            if other in self._detached.values() or session.replaying:
                self.held |= {channel: channel.sources for channel in other.channels.values()}

    def seen_late(self) -> None:
        """Do not compare the last delivery with the head of its queue, since it was made earlier."""
        copy, _ = self._seen.pop()
        self._seen.append((copy, -1))

    def at_rest(self) -> None:
        """Note that everything was sent again."""
        for _, session in self._sessions():
            session.replaying = False

    def _sessions(self) -> list[tuple[Conversation, Session]]:
        found: list[tuple[Conversation, Session]] = []
        for other in self.connections:
            assert isinstance(other, Conversation)
            found += [(other, session) for session in other.sessions.values()]
        return found
