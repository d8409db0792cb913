"""Each fault of a client of AMQP 0-10: the code of the specification, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.queues.queue import Session as Owner
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, FRAME_HEAD, HEAD_SIZE
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionOpen,
    ConnectionTuneOk,
    DetachCode,
    DtxCommit,
    DtxEnd,
    DtxStart,
    ErrorCode,
    ExchangeDeclare,
    ExecutionException,
    ExecutionSync,
    MessageAccept,
    MessageReject,
    MessageResume,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueueQuery,
    RejectCode,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionTimeout,
    TxCommit,
    TxSelect,
    Xid,
)
from escrowmq.wire.amqp010.codec.structs import Command, Control
from tests.unit.wire.amqp010.clients import Client, SharingServer, server
from tests.unit.wire.amqp010.messaging import header, octets, publish, subscribe

X: Final = Xid(1, b"g", b"b")
BODY_LIMIT: Final = 1000


class Cost(Enum):
    """What ends because of a fault."""

    MESSAGE = "the message is not taken"
    COMMAND = "nothing ends"
    SESSION = "the session ends with an exception"
    DETACHED = "the session ends without an exception"
    CONNECTION = "the connection ends"


class Fault(NamedTuple):
    """A fault, which a client commits with `does` on channel 1, and the code of the answer."""

    name: str
    does: Callable[[Client], object]
    cost: Cost
    code: int


def command(value: Command) -> Callable[[Client], object]:
    return lambda client: client.command(value)


def commands(*values: Command) -> Callable[[Client], object]:
    """Return the fault of the last command."""

    def does(client: Client) -> None:
        for value in values[:-1]:
            client.do(value)
        client.command(values[-1])

    return does


def control(value: Control, channel: int = 1) -> Callable[[Client], object]:
    return lambda client: client.control(value, channel)


def raw(data: bytes) -> Callable[[Client], object]:
    return lambda client: client.send_bytes(data)


def frame(flags: int, kind: int, payload: bytes, *, track: int = 1, channel: int = 1) -> bytes:
    return FRAME_HEAD.pack(flags, kind, len(payload) + HEAD_SIZE, track, channel) + payload


def transfer(
    body: bytes = b"x", key: str = "q", mode: int = 1, to: str = "", **more: object
) -> Callable[[Client], object]:
    return lambda client: client.send_bytes(octets(client, body, key, mode=mode, to=to, **more))


def exclusive_elsewhere(client: Client) -> None:
    vhost = client.server.broker.directory.vhost("/")
    client.server.broker.directory.declare_queue(vhost, "theirs", Declaration(exclusive=True), Owner("other"))
    client.command(MessageSubscribe("theirs", "d", 0, 0))


def forbidden(client: Client) -> None:
    client.server.broker.access.set_permission("guest", "/", "^$", ".*", ".*")
    client.command(QueueDeclare("new"))


def deleted(client: Client) -> None:
    subscribe(client)
    client.server.broker.directory.delete_queue(client.server.broker.directory.vhost("/").queue("q"))
    client.send_bytes(b"")


def over_the_limit(client: Client) -> None:
    """The third operation of a transaction that may have two."""
    client.do(TxSelect())
    publish(client, b"1", b"2")
    client.inbox.clear()
    publish(client, b"3")


def full(mode: int) -> Callable[[Client], object]:
    def does(client: Client) -> None:
        client.do(QueueDeclare("small", arguments={"qpid.max_count": 1}))
        publish(client, b"1", key="small")
        client.inbox.clear()
        publish(client, b"2", key="small", mode=mode)

    return does


def unavailable(client: Client) -> None:
    """The disk cannot read a queue whose messages are to go to its alternate exchange."""
    client.do(QueueDeclare("unread", alternate_exchange="amq.fanout"))
    publish(client, b"1", key="unread")
    client.inbox.clear()
    queue = client.server.broker.directory.vhost("/").queue("unread")
    queue.change()
    queue.fault = "the disk cannot be read"
    client.command(QueueDelete("unread"))


def reopened(client: Client) -> None:
    client.control(ConnectionOpen("/"), 0)


CASES: Final = (
    # messages
    Fault("no queue takes the message", transfer(key="nowhere", mode=0), Cost.MESSAGE, RejectCode.UNROUTABLE),
    Fault("nobody takes it at once", transfer(mode=0, immediate=True), Cost.MESSAGE, RejectCode.IMMEDIATE),
    Fault("a queue is full, and answers are wanted", full(0), Cost.MESSAGE, RejectCode.UNSPECIFIED),
    # commands that do not matter
    Fault("a delivery that is not outstanding", command(MessageAccept(((5, 9),))), Cost.COMMAND, 0),
    Fault("a result for a command without one", command(QueueQuery("nothing")), Cost.COMMAND, 0),
    # commands that are refused
    Fault("a permission is missing", forbidden, Cost.SESSION, ErrorCode.UNAUTHORIZED_ACCESS),
    Fault("no such queue", command(QueueDelete("nothing")), Cost.SESSION, ErrorCode.NOT_FOUND),
    Fault("no such exchange", transfer(to="nothing"), Cost.SESSION, ErrorCode.NOT_FOUND),
    Fault("no such branch", command(DtxCommit(X)), Cost.SESSION, ErrorCode.NOT_FOUND),
    Fault("another owner's queue", exclusive_elsewhere, Cost.SESSION, ErrorCode.RESOURCE_LOCKED),
    Fault(
        "a queue that is in use",
        commands(MessageSubscribe("q", "d", 0, 0), QueueDelete("q", if_unused=True)),
        Cost.SESSION,
        ErrorCode.PRECONDITION_FAILED,
    ),
    Fault("the queue of a subscription is deleted", deleted, Cost.SESSION, ErrorCode.RESOURCE_DELETED),
    Fault("tx.commit without tx.select", command(TxCommit()), Cost.SESSION, ErrorCode.ILLEGAL_STATE),
    Fault("dtx.start without dtx.select", command(DtxStart(X)), Cost.SESSION, ErrorCode.COMMAND_INVALID),
    Fault(
        "content for a command that has none",
        lambda client: client.command(QueueQuery("q"), header=header(), body=b""),
        Cost.SESSION,
        ErrorCode.COMMAND_INVALID,
    ),
    Fault("a transaction is too large", over_the_limit, Cost.SESSION, ErrorCode.RESOURCE_LIMIT_EXCEEDED),
    Fault("a message is too large", transfer(b"x" * (BODY_LIMIT + 1)), Cost.SESSION, ErrorCode.RESOURCE_LIMIT_EXCEEDED),
    Fault("a queue is full, and answers are not wanted", full(1), Cost.SESSION, ErrorCode.RESOURCE_LIMIT_EXCEEDED),
    Fault("a reserved name", command(QueueDeclare("amq.mine")), Cost.SESSION, ErrorCode.NOT_ALLOWED),
    Fault(
        "an exchange of another type",
        command(ExchangeDeclare("amq.direct", "fanout")),
        Cost.SESSION,
        ErrorCode.NOT_ALLOWED,
    ),
    Fault("message.resume", command(MessageResume("d", "id")), Cost.SESSION, ErrorCode.NOT_IMPLEMENTED),
    Fault(
        "an unknown command",
        lambda client: client.send_bytes(frame(15, COMMAND, b"\x09\x01\x01\x00")),
        Cost.SESSION,
        ErrorCode.NOT_IMPLEMENTED,
    ),
    Fault("a queue without a name", command(QueueDeclare("")), Cost.SESSION, ErrorCode.INVALID_ARGUMENT),
    Fault("no xid", command(DtxEnd()), Cost.SESSION, ErrorCode.COMMAND_INVALID),
    Fault("a queue that cannot be read", unavailable, Cost.SESSION, ErrorCode.INTERNAL_ERROR),
    # controls of a session
    Fault("a control that is not for servers", control(SessionTimeout(5)), Cost.COMMAND, 0),
    Fault("an expectation without a reason", control(SessionExpected(((9, 9),))), Cost.COMMAND, 0),
    Fault(
        "a command continued in its middle", control(SessionCommandPoint(1, 1)), Cost.DETACHED, DetachCode.UNKNOWN_IDS
    ),
    Fault(
        "completion of a command never sent",
        control(SessionCompleted(((7, 7),))),
        Cost.DETACHED,
        DetachCode.UNKNOWN_IDS,
    ),
    Fault(
        "confirmation of a command never sent",
        control(SessionConfirmed(((7, 7),))),
        Cost.DETACHED,
        DetachCode.UNKNOWN_IDS,
    ),
    Fault(
        "the name of another session is detached",
        control(SessionDetach(b"another")),
        Cost.DETACHED,
        DetachCode.NOT_ATTACHED,
    ),
    Fault("an exception of the client", command(ExecutionException(404)), Cost.DETACHED, DetachCode.NORMAL),
    Fault("an attached name", control(SessionAttach(b"session 1"), 3), Cost.COMMAND, DetachCode.SESSION_BUSY),
    Fault("a channel in use", control(SessionAttach(b"third")), Cost.COMMAND, DetachCode.TRANSPORT_BUSY),
    Fault("a session without a name", control(SessionAttach(b""), 3), Cost.COMMAND, DetachCode.NOT_ATTACHED),
    Fault(
        "a command on a channel without a session",
        raw(frame(15, COMMAND, encode_command(ExecutionSync()), channel=3)),
        Cost.COMMAND,
        DetachCode.NOT_ATTACHED,
    ),
    Fault(
        "a control on a channel without a session",
        control(SessionCompleted(), 3),
        Cost.COMMAND,
        DetachCode.NOT_ATTACHED,
    ),
    # the connection
    Fault(
        "a frame that is shorter than its head",
        raw(b"\x0f\x01\x00\x01" + bytes(8)),
        Cost.CONNECTION,
        CloseCode.FRAMING_ERROR,
    ),
    Fault(
        "a frame of an unknown version",
        raw(frame(0x4F, COMMAND, b"\x03\x01\x01\x00")),
        Cost.CONNECTION,
        CloseCode.FRAMING_ERROR,
    ),
    Fault(
        "a command on the track of controls",
        raw(frame(15, COMMAND, b"\x03\x01\x01\x00", track=0)),
        Cost.CONNECTION,
        CloseCode.FRAMING_ERROR,
    ),
    Fault("a body without a command", raw(frame(15, BODY, b"x")), Cost.CONNECTION, CloseCode.FRAMING_ERROR),
    Fault(
        "fields that do not fill their octets",
        raw(frame(15, COMMAND, b"\x03\x01\x01\x00\xff\xff")),
        Cost.CONNECTION,
        CloseCode.FRAMING_ERROR,
    ),
    Fault(
        "a channel above the agreed number",
        control(SessionAttach(b"far"), 60_000),
        Cost.CONNECTION,
        CloseCode.FRAMING_ERROR,
    ),
    Fault("a control of the connection in the wrong state", reopened, Cost.CONNECTION, CloseCode.FRAMING_ERROR),
)
LIMITS: Final = {"transaction": Limits(operations=2), "message_size": BODY_LIMIT}
ELSEWHERE: Final = {
    ErrorCode.ILLEGAL_ARGUMENT: "deprecated in the specification's errata; invalid-argument is its successor",
    CloseCode.NORMAL: "the client's own",
    CloseCode.CONNECTION_FORCED: "limits of connections, logins and an operator, below",
    CloseCode.INVALID_PATH: "no such virtual host, below",
}
"""Codes that no fault of the table has, each with the reason."""


def site() -> Client:
    """Return a client with two sessions and a queue, which knows what was sent so far."""
    client = Client(server(**LIMITS))
    client.attach(2)
    client.do(QueueDeclare("q"))
    return client


def other_session_works(client: Client) -> None:
    client.do(ExecutionSync(), channel=2)


@pytest.mark.parametrize("fault", CASES, ids=lambda fault: fault.name)
def test_a_fault_has_its_code_and_costs_what_the_specification_says(fault: Fault) -> None:
    client = site()
    fault.does(client)
    match fault.cost:
        case Cost.MESSAGE:
            assert client.expect(MessageReject).code == fault.code
            client.expect(SessionCompleted)
            client.do(ExecutionSync())
            other_session_works(client)
        case Cost.COMMAND:
            answers = [each.operation for each in client.inbox if isinstance(each.operation, SessionDetached)]
            client.inbox.clear()
            assert [each.code for each in answers] == ([fault.code] if fault.code else [])
            client.do(ExecutionSync())
            other_session_works(client)
        case Cost.SESSION:
            while not isinstance(client.inbox[0].operation, ExecutionException):
                client.inbox.popleft()
            client.raised(fault.code)
            other_session_works(client)
            client.attach(1)
        case Cost.DETACHED:
            assert client.expect(SessionDetached).code == fault.code
            other_session_works(client)
            client.attach(1)
        case Cost.CONNECTION:
            assert client.expect(ConnectionClose).reply_code == fault.code
            assert client.idle()
            client.command(ExecutionSync(), channel=2)
            assert client.idle()


def test_every_code_of_the_specification_is_in_the_table() -> None:
    found = {(type(fault.code), int(fault.code)) for fault in CASES}
    codes = [code for kind in (ErrorCode, DetachCode, RejectCode, CloseCode) for code in kind]
    missing = {code for code in codes if (type(code), int(code)) not in found}
    assert missing == set(ELSEWHERE)


def not_open(made: SharingServer) -> Client:
    client = Client(made, opens=False)
    client.log_in()
    return client


def test_an_unknown_virtual_host_costs_the_connection() -> None:
    client = not_open(server())
    client.tune()
    client.control(ConnectionOpen("nowhere"), 0)
    assert client.expect(ConnectionClose).reply_code == CloseCode.INVALID_PATH


def test_a_refused_login_costs_the_connection() -> None:
    client = Client(opens=False)
    client.log_in(password="wrong")
    assert client.expect(ConnectionClose).reply_code == CloseCode.CONNECTION_FORCED


def test_an_agreement_beyond_the_offer_costs_the_connection() -> None:
    client = not_open(server())
    client.inbox.clear()
    client.control(ConnectionTuneOk(60_000, 65_535, 0), 0)
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


def test_an_operator_may_end_the_connection() -> None:
    client = site()
    client.port.endpoint.shut("by an operator")
    client.send_bytes(b"")
    assert client.expect(ConnectionClose).reply_code == CloseCode.CONNECTION_FORCED
