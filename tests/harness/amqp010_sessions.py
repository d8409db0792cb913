"""A client of AMQP 0-10 that remembers its session, and goes on with it over another connection."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.wire.amqp010.codec.commands import encode_header
from escrowmq.wire.amqp010.codec.frames import control_frame
from escrowmq.wire.amqp010.codec.spec import (
    CreditUnit,
    DeliveryProperties,
    DetachCode,
    MessageFlow,
    MessageSubscribe,
    MessageTransfer,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionRequestTimeout,
    SessionTimeout,
)
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.credit import INFINITE
from tests.broker import wait_until
from tests.harness.amqp010_client import Received, SocketLink, Transferred, command_frames

PIECE: Final = 40
"""The largest frame that the client sends, in octets, so that headers and bodies come in several frames."""


class KeptClient:
    """A session on channel 1, and all that its client remembers when the connection is lost."""

    def __init__(self, port: int, name: bytes, seconds: int = 60) -> None:
        self._port = port
        self.name = name
        self.commands: list[bytes] = []
        """The frames of each command that was made, by number."""
        self.received = 0
        """The number of the broker's next command."""
        self.transfers: list[Transferred] = []
        self.completed: set[int] = set()
        self.others: list[Any] = []
        """Commands of the broker apart from transfers."""
        self.link = SocketLink(port)
        self.link.control(SessionAttach(name))
        self.link.expect(SessionAttached)
        assert self.link.expect(SessionCommandPoint) == SessionCommandPoint(0, 0), "the session is not a new one"
        self.link.control(SessionRequestTimeout(seconds))
        self.timeout: int = self.link.expect(SessionTimeout).timeout
        self.link.control(SessionCommandPoint(0, 0))

    # -- commands

    def make(self, command: Command, header: bytes | None = None, body: bytes | None = None) -> bytes:
        """Give the next number to a command, and return its frames, which are not sent yet."""
        self.commands.append(command_frames(command, header, body, PIECE))
        return self.commands[-1]

    def message(self, queue: str, body: bytes, accept_mode: int = 0) -> bytes:
        """Make a publish of a persistent message, which the broker accepts unless `accept_mode` is 1."""
        header = encode_header([DeliveryProperties(routing_key=queue, delivery_mode=2)])
        return self.make(MessageTransfer("", accept_mode, 0), header, body)

    def do(self, command: Command) -> None:
        """Make a command, send it, and wait for its completion."""
        self.link.send(self.make(command))
        self.settle()

    def subscribe(self, queue: str, credit: int = INFINITE) -> None:
        """Subscribe to a queue with credit, in window mode and with acceptance."""
        self.do(MessageSubscribe(queue, queue, accept_mode=0, acquire_mode=0))
        self.do(MessageFlow(queue, CreditUnit.BYTE, INFINITE))
        self.do(MessageFlow(queue, CreditUnit.MESSAGE, credit))

    def settle(self) -> None:
        """Read until all commands are complete."""
        while len(self.completed) < len(self.commands):
            self.read()

    def read_transfers(self, count: int) -> list[bytes]:
        """Read until so many transfers have arrived in all. Return their bodies by number."""
        while len(self.transfers) < count:
            self.read()
        return [body for _, body in sorted(self.transfers)]

    def read(self) -> Received:
        """Read a control or a command. No number of the broker may be used twice."""
        found = self.link.receive()
        match found.operation:
            case SessionCompleted(commands=commands):
                self.completed |= {one for first, last in commands or () for one in range(first, last + 1)}
            case SessionCommandPoint(command_id=number):
                assert number == self.received
            case SessionGap(commands=((first, last),)):
                assert first == self.received
                self.received = last + 1
            case MessageTransfer():
                self.transfers.append(Transferred(self.received, found.body))
                self.received += 1
            case Command():
                self.others.append(found.operation)
                self.received += 1
        return found

    # -- losing the connection

    def lose(self) -> None:
        """Lose the connection without a word."""
        self.link.close()

    def attach(self, channel: int = 1, *, force: bool = False) -> Any:
        """Attach the session on a new connection, as soon as the broker has noticed the loss of the former one. Return
        the control after `session.attached`: `session.flush` if it is the same session.
        """
        self.link = SocketLink(self._port)
        wait_until(lambda: self._attaches(channel, force=force), what="the name of the session")
        return self.link.receive().operation

    def _attaches(self, channel: int, *, force: bool) -> bool:
        self.link.control(SessionAttach(self.name, force=force), channel)
        answer = self.link.receive().operation
        if isinstance(answer, SessionDetached):
            assert answer.code == DetachCode.SESSION_BUSY
            return False
        assert answer == SessionAttached(self.name)
        return True

    def expect_rest(self) -> None:
        """Ask for the broker's commands that have not arrived."""
        self.link.control(SessionExpected(((self.received, self.received),)))

    def repeat(self, first: int = 0) -> bytes:
        """Return the frames that send all commands from number `first` on once more."""
        return control_frame(1, SessionCommandPoint(first, 0)) + b"".join(self.commands[first:])

    def resume(self, first: int = 0, *, force: bool = False) -> None:
        """Attach the session again, and send its commands from number `first` on once more."""
        assert self.attach(force=force) == SessionFlush(expected=True, confirmed=True, completed=True)
        self.expect_rest()
        self.link.send(self.repeat(first))
