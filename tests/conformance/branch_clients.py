"""Clients that work for branches and ask for their outcomes, over each protocol that has dtx classes."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol

from escrowmq.core.branches.branch import Publication
from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.codec import spec as spec010
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.dtx import STATUSES
from escrowmq.wire.amqp091 import spec as spec091
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import SimClient
from tests.unit.wire.amqp010.clients import Client, SharingServer

TO_CORE: Final = {theirs: ours for ours, theirs in STATUSES.items()}
"""The core's status for each status of AMQP 0-10."""
CALLS: Final = (
    "start",
    "start join",
    "start resume",
    "start join resume",
    "end",
    "end fail",
    "end suspend",
    "end fail suspend",
    "prepare",
    "commit",
    "commit one-phase",
    "rollback",
    "forget",
    "get-timeout",
    "set-timeout",
)
"""The calls that name a branch, with their flags."""
DEMARCATION: Final = frozenset(call for call in CALLS if call.startswith(("start", "end")))
"""The calls that need `select`."""


class BranchClient(Protocol):
    """A client with one channel or session, which has selected dtx mode unless told otherwise."""

    PROTOCOL: ClassVar[str]

    def __init__(self, server: SharingServer, name: str = "client", *, selects: bool = True) -> None: ...

    def declare(self, queue: str) -> None:
        """Declare a durable queue."""
        ...

    def publish(self, queue: str, *bodies: bytes) -> None:
        """Publish messages, in the branch for which the client works, if any."""
        ...

    def call(self, call: str, xid: Xid, timeout: int = 5) -> int:
        """Make one of CALLS. Return the status as the core has it, the timeout, or 0 if the answer has neither; and the
        error code if the call was refused. The channel or session is open again afterwards, in dtx mode.
        """
        ...

    def recover(self) -> list[Xid]:
        """Return the branches in doubt."""
        ...

    def lose(self) -> None:
        """Lose the connection."""
        ...


class ChannelClient:
    """A channel of AMQP 0-9-1."""

    PROTOCOL: ClassVar[str] = "amqp091"

    def __init__(self, server: SharingServer, name: str = "client", *, selects: bool = True) -> None:
        self._client = SimClient(server, name)
        self._selects = selects
        self._open()

    def _open(self) -> None:
        self._client.open_channel(1)
        if self._selects:
            self._client.call(1, spec091.DtxDemarcationSelect(), spec091.DtxDemarcationSelectOk)

    def declare(self, queue: str) -> None:
        self._client.declare(1, queue)

    def publish(self, queue: str, *bodies: bytes) -> None:
        self._client.publish(1, queue, *bodies)

    def call(self, call: str, xid: Xid, timeout: int = 5) -> int:
        method = _method(call, xid.encode(), timeout)
        self._client.send(1, method)
        self._client.collect()
        got: Any = self._client.inbox.popleft().method
        if isinstance(got, spec091.ChannelClose):
            assert (got.class_id, got.method_id) == (method.CLASS_ID, method.METHOD_ID)
            self._client.send(1, spec091.ChannelCloseOk())
            self._open()  # fails unless the connection is still open
            return got.reply_code
        assert f"{method.NAME}-ok" == got.NAME
        return int(getattr(got, "flags", getattr(got, "timeout", 0)))

    def recover(self) -> list[Xid]:
        answer = self._client.call(1, spec091.DtxCoordinationRecover(True, 1), spec091.DtxCoordinationRecoverOk)
        found: Any = answer.xids["xids"]
        return [Xid.decode(name.encode() if isinstance(name, str) else name) for name in found]

    def lose(self) -> None:
        self._client.lose()


class SessionClient:
    """A session of AMQP 0-10."""

    PROTOCOL: ClassVar[str] = "amqp010"

    def __init__(self, server: SharingServer, name: str = "client", *, selects: bool = True) -> None:
        self._client = Client(server, attaches=False)
        self._name = name.encode()
        self._selects = selects
        self._open()

    def _open(self) -> None:
        self._client.attach(1, self._name)
        if self._selects:
            self._client.do(spec010.DtxSelect())

    def declare(self, queue: str) -> None:
        self._client.do(spec010.QueueDeclare(queue, durable=True))

    def publish(self, queue: str, *bodies: bytes) -> None:
        server = self._client.server
        session = self._client.port.endpoint.sessions[1]
        queues = (server.broker.directory.vhost("/").queue(queue),)
        envelope = Envelope("", queue, durable=True)
        if session.branch is not None:
            server.broker.transactions.enlist(session.branch, Publication(envelope, list(bodies), queues))

    def call(self, call: str, xid: Xid, timeout: int = 5) -> int:
        command = _command(call, spec010.Xid(*xid), timeout)
        number = self._client.command(command)
        first = self._client.inbox[0].operation
        if isinstance(first, spec010.ExecutionException):
            raised = self._client.raised(first.error_code or 0, number)
            assert (raised.class_code or 0) << 8 | (raised.command_code or 0) == command.CODE
            self._open()  # fails unless the connection is still open
            return int(raised.error_code or 0)
        found: Any = None
        if isinstance(first, spec010.ExecutionResult):
            found = self._client.expect(spec010.ExecutionResult).value
        self._client.completes(number)
        if isinstance(found, spec010.XaResult):
            return TO_CORE[spec010.XaStatus(found.status or 0)]
        return int(getattr(found, "timeout", 0))

    def recover(self) -> list[Xid]:
        found = self._client.do(spec010.DtxRecover())
        return [Xid(each.format, each.global_id, each.branch_id) for each in found.in_doubt]

    def lose(self) -> None:
        self._client.server.lose(self._client.port)


CLIENTS: Final[tuple[type[BranchClient], ...]] = (ChannelClient, SessionClient)


def _method(call: str, xid: bytes, timeout: int) -> Method:
    """Return the method of AMQP 0-9-1 for a call."""
    name, *flags = call.split()
    set_flags: dict[str, Any] = {flag.replace("-", "_"): True for flag in flags}
    if name == "set-timeout":
        return spec091.DtxCoordinationSetTimeout(xid, timeout)
    kinds: dict[str, Any] = {
        "start": spec091.DtxDemarcationStart,
        "end": spec091.DtxDemarcationEnd,
        "prepare": spec091.DtxCoordinationPrepare,
        "commit": spec091.DtxCoordinationCommit,
        "rollback": spec091.DtxCoordinationRollback,
        "forget": spec091.DtxCoordinationForget,
        "get-timeout": spec091.DtxCoordinationGetTimeout,
    }
    method: Method = kinds[name](xid, **set_flags)
    return method


def _command(call: str, xid: spec010.Xid, timeout: int) -> Command:
    """Return the command of AMQP 0-10 for a call."""
    name, *flags = call.split()
    set_flags: dict[str, Any] = {flag.replace("-", "_"): True for flag in flags}
    if name == "set-timeout":
        return spec010.DtxSetTimeout(xid, timeout)
    kinds: dict[str, Any] = {
        "start": spec010.DtxStart,
        "end": spec010.DtxEnd,
        "prepare": spec010.DtxPrepare,
        "commit": spec010.DtxCommit,
        "rollback": spec010.DtxRollback,
        "forget": spec010.DtxForget,
        "get-timeout": spec010.DtxGetTimeout,
    }
    command: Command = kinds[name](xid, **set_flags)
    return command
