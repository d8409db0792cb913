"""Opening a connection: protocol headers, SASL, and the exchange of Open (parts 2 and 5 of the specification).

A client begins with the header of SASL, or with that of AMQP if it needs no login. After a successful login the header
of AMQP follows. A client that sends the header of AMQP at once is logged in as EXTERNAL if it has a certificate, or as
ANONYMOUS, if the broker offers that. Otherwise the broker answers with the header of SASL, and closes the connection.

| state          | header of SASL | header of AMQP       | other header | frame of SASL | Open   |
|----------------|----------------|----------------------|--------------|---------------|--------|
| HEADER         | SASL           | OPENING, or refused  | refused      |               |        |
| SASL           |                |                      |              | AUTHENTICATING|        |
| CHALLENGED     |                |                      |              | AUTHENTICATING|        |
| AUTHENTICATING | input waits    | input waits          | input waits  | input waits   | waits  |
| AUTHENTICATED  | refused        | OPENING              | refused      |               |        |
| OPENING        |                |                      |              |               | RUNNING|
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from escrowmq import __version__
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, frame
from escrowmq.wire.amqp10.codec.performatives import Open, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.delays import DELAYED_DELIVERY
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_ALLOWED, connection_fault
from escrowmq.wire.login import EXTERNAL, LoginFault
from escrowmq.wire.scram.keys import HASHES

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.errors import AmqpFault

ANONYMOUS: Final = "ANONYMOUS"
MECHANISMS: Final = frozenset(("EXTERNAL", "PLAIN", "ANONYMOUS", *HASHES))
"""The mechanisms of this protocol, if the server offers them."""
SOLE: Final = Symbol("sole-connection-for-container")
CAPABILITIES: Final = (
    Symbol("ANONYMOUS-RELAY"),
    DELAYED_DELIVERY,
    Symbol("LINK_PAIR_V1_0"),
    Symbol("SHARED-SUBS"),
    SOLE,
)
"""The capabilities that Open offers. Clients rely on each of them, so an extension is named here when it works."""
NODE: Final = "escrowmq"
"""The name of the broker's only node, for clients that look for the leader of a queue."""
LEAST_IDLE_MS: Final = 1000
"""The shortest idle time-out of a client. The broker looks at its connections about once a second."""
_FAILED: Final = Symbol("amqp:connection-establishment-failed")
"""The property that announces a close right after the broker's Open."""
_VHOST: Final = "vhost:"
_DEFAULT_VHOST: Final = "/"
_OK, _AUTH = 0, 1  # codes of SaslOutcome


class ConnectionState(Enum):
    """The state of a connection."""

    HEADER = auto()
    SASL = auto()
    CHALLENGED = auto()
    """The mechanism has further steps, and the client's answer to a challenge is next."""
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()
    OPENING = auto()
    RUNNING = auto()
    CLOSING = auto()
    """The broker has sent Close and waits for that of the client."""
    CLOSED = auto()


_State = ConnectionState


def mechanisms_of(connection: Connection) -> tuple[str, ...]:
    """Return the mechanisms that this connection is offered."""
    return tuple(name for name in connection.login.mechanisms if name in MECHANISMS)


def read_header(connection: Connection, header: bytes) -> None:
    """Handle a protocol header of eight bytes."""
    if connection.state is _State.HEADER and header == SASL_HEADER:
        offered = tuple(Symbol(name) for name in mechanisms_of(connection))
        connection.send_raw(SASL_HEADER)
        connection.send_raw(frame(0, encode_performative(SaslMechanisms(offered)), type=SASL))
        connection.state = _State.SASL
    elif connection.state is _State.AUTHENTICATED and header == PROTOCOL_HEADER:
        connection.send_raw(PROTOCOL_HEADER)
        connection.state = _State.OPENING
    elif connection.state is _State.HEADER and header == PROTOCOL_HEADER:
        _log_in_without_sasl(connection)
    else:
        connection.refuse_protocol(SASL_HEADER)


def _log_in_without_sasl(connection: Connection) -> None:
    offered = mechanisms_of(connection)
    mechanism = EXTERNAL if EXTERNAL in offered else ANONYMOUS if ANONYMOUS in offered else None
    if mechanism is None:
        connection.refuse_protocol(SASL_HEADER)
        return
    connection.state = _State.AUTHENTICATING

    def done(accepted: bool) -> None:
        if connection.state is not _State.AUTHENTICATING:
            return
        if not accepted:
            connection.refuse_protocol(SASL_HEADER)
            return
        connection.send_raw(PROTOCOL_HEADER)
        connection.state = _State.OPENING
        connection.resume()

    connection.login.authenticate(mechanism, b"", done, lambda _: None)  # these mechanisms have one step


def read_sasl(connection: Connection, frame_of_sasl: object) -> None:
    """Handle a frame of SASL: the choice of a mechanism, or the response to a challenge. Raises AmqpFault."""
    step: Callable[[], None]
    if connection.state is _State.CHALLENGED and isinstance(frame_of_sasl, SaslResponse):
        step = partial(connection.login.respond, frame_of_sasl.response)
    elif connection.state is _State.SASL and isinstance(frame_of_sasl, SaslInit):
        step = partial(_begin, connection, frame_of_sasl)
    else:
        expected = "sasl-init" if connection.state is _State.SASL else "sasl-response"
        raise connection_fault(NOT_ALLOWED, f"expected {expected}")
    connection.state = _State.AUTHENTICATING
    try:
        step()
    except LoginFault:
        _send_outcome(connection, accepted=False)


def _begin(connection: Connection, init: SaslInit) -> None:
    def done(accepted: bool) -> None:
        if connection.state is not _State.AUTHENTICATING:
            return
        _send_outcome(connection, accepted=accepted)
        connection.resume()

    def challenge(data: bytes) -> None:
        connection.send_raw(frame(0, encode_performative(SaslChallenge(data)), type=SASL))
        connection.state = _State.CHALLENGED

    if str(init.mechanism) not in mechanisms_of(connection):
        raise LoginFault("the mechanism is not on offer")
    connection.login.authenticate(str(init.mechanism), init.initial_response or b"", done, challenge)


def _send_outcome(connection: Connection, *, accepted: bool) -> None:
    outcome = SaslOutcome(_OK if accepted else _AUTH, connection.login.final or None)
    connection.send_raw(frame(0, encode_performative(outcome), type=SASL))
    if accepted:
        connection.state = _State.AUTHENTICATED
    else:
        connection.end()


def open_connection(connection: Connection, opened: Open) -> None:
    """Enter the virtual host, and answer with the broker's Open. Raises AmqpFault."""
    connection.note_peer(opened)
    fault = _enter(connection, opened)
    own = _own_open(connection)
    if fault is not None:
        own["properties"][_FAILED] = True
    connection.send(Open(**own))
    connection.state = _State.RUNNING
    if fault is not None:
        raise fault
    connection.login.admit()


def _enter(connection: Connection, opened: Open) -> AmqpFault | None:
    """Enter the virtual host. Return the reason if that is refused."""
    if opened.max_frame_size < 512:
        return connection_fault(INVALID_FIELD, f"max-frame-size {opened.max_frame_size} is less than 512")
    idle = opened.idle_time_out
    if idle is not None and 0 < idle < LEAST_IDLE_MS:
        return connection_fault(NOT_ALLOWED, f"idle-time-out of {idle} ms; the shortest one here is {LEAST_IDLE_MS} ms")
    try:
        connection.vhost = connection.login.enter(_vhost_of(connection, opened.hostname or ""))
    except BrokerError as error:
        return connection_fault(NOT_ALLOWED, error.text)
    connection.door = connection.login.door()
    connection.traffic = connection.broker.engine.counters.traffic_of(connection.vhost.name, "amqp10")
    claims, vhost, container = connection.broker.claims, connection.vhost.name, opened.container_id
    if SOLE in opened.desired_capabilities and not claims.take(vhost, container, connection.owner):
        fault = connection_fault(INVALID_FIELD, f"another connection has the container id '{container}'")
        fault.info = {"invalid-field": Symbol("container-id")}
        return fault
    return None


def _vhost_of(connection: Connection, hostname: str) -> str:
    """Return the virtual host that `hostname` names: `vhost:NAME`, and for any other name the default one.

    The default is `/`. Where that does not exist, it is the first virtual host in which the user has permissions.
    """
    if hostname.startswith(_VHOST):
        return hostname[len(_VHOST) :]
    vhosts, login = connection.broker.access.vhosts, connection.login
    if _DEFAULT_VHOST in vhosts:
        return _DEFAULT_VHOST
    return next((name for name in vhosts if login.access.enters(login.user, name)), _DEFAULT_VHOST)


def _own_open(connection: Connection) -> dict[str, Any]:
    limits, pretended = connection.limits, connection.limits.rabbitmq_version
    return {
        "container_id": "escrowmq",
        "max_frame_size": limits.frame_max,
        "channel_max": limits.channels - 1,
        # Half of the time after which the broker gives up on a silent client (section 2.4.5).
        "idle_time_out": limits.heartbeat * 1000 or None,
        "offered_capabilities": CAPABILITIES,
        "properties": {
            # RabbitMQ's own clients refuse brokers without its name, or with a version below 4.
            Symbol("product"): "RabbitMQ" if pretended else "EscrowMQ",
            Symbol("version"): pretended or __version__,
            Symbol("platform"): "Python" if not pretended else f"EscrowMQ {__version__}, Python",
            Symbol("node"): NODE,
        },
    }
