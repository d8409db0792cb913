"""A client for the tests beside this file: real frames of AMQP 0-10, no sockets."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, TypeVar

from escrowmq.wire.amqp010.codec.commands import decode_command, decode_control, encode_command, encode_control
from escrowmq.wire.amqp010.codec.frames import (
    BODY,
    COMMAND,
    CONTROL,
    FRAME_HEAD,
    HEAD_SIZE,
    HEADER,
    PROTOCOL_HEADER,
    Assembly,
    assembly,
)
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExecutionException,
    ExecutionResult,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
)
from escrowmq.wire.amqp010.codec.structs import Command, Compound, Control
from escrowmq.wire.amqp010.connection import Connection
from escrowmq.wire.amqp010.ports import Content
from escrowmq.wire.endpoint import EndpointLimits
from tests.harness.server import Options, Port, SimServer
from tests.unit.wire.amqp091.clients import Server

T = TypeVar("T", bound=Compound)
PLENTY = (1 << 20,) * 4


class SharingServer(Server):
    """A server whose connections share what `Host.common` makes."""

    common = SimServer.common


class Received(NamedTuple):
    """A control or a command from the server, with the content of a command."""

    channel: int
    operation: Any
    content: Content | None


def server(**limits: Any) -> SharingServer:
    """Return a server. `limits` are those of EndpointLimits."""
    return SharingServer(Options(limits=EndpointLimits(**limits)))


class Client:
    """A connection that is opened, with a session on channel 1, unless told otherwise."""

    def __init__(
        self, made: SharingServer | None = None, user: str = "guest", *, opens: bool = True, attaches: bool = True
    ) -> None:
        self.server = made or server()
        self.port: Port[Connection] = self.server.open(Connection, user)
        self.inbox: deque[Received] = deque()
        self.headers: list[bytes] = []
        self.frame_max = 65_535
        self.sent: dict[int, int] = {}  # by channel: the number of the next command
        self._unread = b""
        self._taken: dict[tuple[int, int], Assembly] = {}
        if opens:
            self.log_in(user)
            self.tune()
            self.open()
            if attaches:
                self.attach(1)

    # -- opening

    def log_in(self, user: str = "guest", password: str | None = None, mechanism: str = "PLAIN") -> ConnectionStart:
        self.send_bytes(PROTOCOL_HEADER)
        assert self.headers == [PROTOCOL_HEADER]
        start = self.expect(ConnectionStart)
        secret = f"\0{user}\0{user if password is None else password}".encode()
        self.control(ConnectionStartOk({}, mechanism, secret, "en_US"), 0)
        return start

    def tune(self, **fields: Any) -> ConnectionTune:
        tune = self.expect(ConnectionTune)
        self.control(ConnectionTuneOk(**({"channel_max": tune.channel_max} | fields)), 0)
        return tune

    def open(self, vhost: str | None = "/") -> None:
        self.control(ConnectionOpen(vhost), 0)
        self.expect(ConnectionOpenOk)

    def attach(self, channel: int, name: bytes | None = None, *, force: bool = False) -> None:
        name = name or b"session %d" % channel
        self.control(SessionAttach(name, force=force), channel)
        assert self.expect(SessionAttached).name == name
        assert self.expect(SessionCommandPoint) == SessionCommandPoint(0, 0)
        self.sent[channel] = 0
        self.control(SessionCommandPoint(0, 0), channel)

    # -- commands

    def control(self, control: Control, channel: int = 1) -> None:
        """Send a control in a turn of its own."""
        self.send_bytes(self.control_octets(control, channel))

    def control_octets(self, control: Control, channel: int = 1) -> bytes:
        return b"".join(assembly(channel, [(CONTROL, encode_control(control))], self.frame_max))

    def command(
        self,
        command: Command,
        *,
        channel: int = 1,
        header: bytes | None = None,
        body: bytes | None = None,
        sync: bool = True,
        disk: bool = True,
    ) -> int:
        """Send a command in a turn of its own; return its number."""
        number = self.sent[channel]
        self.send_bytes(self.octets(command, channel=channel, header=header, body=body, sync=sync), disk=disk)
        return number

    def octets(
        self,
        command: Command,
        *,
        channel: int = 1,
        header: bytes | None = None,
        body: bytes | None = None,
        sync: bool = True,
    ) -> bytes:
        """Return the frames of a command, which gets the next number."""
        self.sent[channel] += 1
        segments: list[Any] = [(COMMAND, encode_command(command, sync=sync))]
        segments += [(kind, part) for kind, part in ((HEADER, header), (BODY, body)) if part is not None]
        return b"".join(assembly(channel, segments, self.frame_max))

    def do(self, command: Command, **fields: Any) -> Any:
        """Send a command; return its result, if it has one, and expect its completion."""
        number = self.command(command, **fields)
        result = None
        if self.inbox and isinstance(self.inbox[0].operation, ExecutionResult):
            answer = self.expect(ExecutionResult)
            assert answer.command_id == number
            result = answer.value
        self.completes(number)
        return result

    def completes(self, first: int, last: int | None = None) -> None:
        """Expect the completion of these commands."""
        assert self.expect(SessionCompleted).commands == ((first, first if last is None else last),)

    def refused(self, command: Command, code: int, **fields: Any) -> ExecutionException:
        """Send a command; expect that the server raises this exception, and that the session ends."""
        number = self.command(command, **fields)
        return self.raised(code, number, fields.get("channel", 1))

    def raised(self, code: int, number: int | None = None, channel: int = 1) -> ExecutionException:
        """Expect this exception, and the end of the session, which is answered."""
        exception = self.expect(ExecutionException)
        assert exception.error_code == code, exception
        assert number is None or exception.command_id == number, exception
        name = self.expect(SessionDetach).name
        self.control(SessionDetached(name, 0), channel)
        return exception

    # -- bytes

    def send_bytes(self, data: bytes, *, disk: bool = True) -> None:
        """Send bytes, which the server handles in a turn of their own. Without `disk`, nothing is synced after it."""
        self.server.receive(self.port, data)
        self.server.end_turn()
        if disk:
            self.server.run_disk()
        self.collect()

    def collect(self) -> None:
        """Read the server's output."""
        data, self.port.sent = self._unread + bytes(self.port.sent), bytearray()
        while data.startswith(b"AMQP"):
            self.headers.append(data[:8])
            data = data[8:]
        at = 0
        while len(data) - at >= HEAD_SIZE:
            flags, kind, size, track, channel = FRAME_HEAD.unpack_from(data, at)
            if at + size > len(data):
                break
            taken = self._taken.setdefault((channel, track), Assembly(PLENTY))
            if taken.take(flags, kind, data[at + HEAD_SIZE : at + size]):
                del self._taken[channel, track]
                self.inbox.append(_received(channel, taken.segments))
            at += size
        self._unread = data[at:]

    def expect(self, kind: type[T]) -> T:
        """Return the next control or command, which must be of this class."""
        return self.expect_message(kind).operation  # type: ignore[no-any-return]

    def expect_message(self, kind: type[Compound]) -> Received:
        """Like `expect`, with channel and content."""
        assert self.inbox, f"no {kind.__name__}"
        found = self.inbox.popleft()
        assert isinstance(found.operation, kind), found
        return found

    def idle(self) -> bool:
        """Whether the server has sent nothing that was not expected."""
        return not self.inbox


def _received(channel: int, segments: dict[int, bytes]) -> Received:
    if CONTROL in segments:
        return Received(channel, decode_control(segments[CONTROL]), None)
    command, _ = decode_command(segments[COMMAND])
    content = Content(segments.get(HEADER, b""), segments.get(BODY, b"")) if len(segments) > 1 else None
    return Received(channel, command, content)
