"""The class connection: logging in, tuning, opening, closing.

| state          | next control of the client                            |
|----------------|-------------------------------------------------------|
| HEADER         | the protocol header                                   |
| START          | start-ok                                              |
| SECURE         | secure-ok, because the mechanism has further steps    |
| AUTHENTICATING | input waits until the login is judged                 |
| ACCEPTED       | secure-ok, after the last data of the mechanism       |
| TUNE           | tune-ok                                               |
| OPEN           | open                                                  |
| RUNNING        | controls of sessions, and commands                    |
| CLOSING        | close-ok, or close                                    |

In every state from START on, the client may close the connection or send a heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from escrowmq import __version__
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp010.codec.encoding import STR16
from escrowmq.wire.amqp010.codec.frames import LEAST_FRAME_MAX, MOST_FRAME_MAX, PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from escrowmq.wire.amqp010.codec.types import Array
from escrowmq.wire.amqp010.faults import ConnectionFault
from escrowmq.wire.scram.keys import HASHES

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Control
    from escrowmq.wire.amqp010.connection import Connection

MECHANISMS: Final = frozenset(("EXTERNAL", "PLAIN", "ANONYMOUS", *HASHES))
"""The mechanisms of this protocol, if the server offers them."""
_LOCALE: Final = "en_US"
_DEFAULT_VHOST: Final = "/"


class ConnectionState(Enum):
    """The state of a connection."""

    HEADER = auto()
    START = auto()
    SECURE = auto()
    AUTHENTICATING = auto()
    ACCEPTED = auto()
    TUNE = auto()
    OPEN = auto()
    RUNNING = auto()
    CLOSING = auto()
    CLOSED = auto()


_State = ConnectionState


def begin(connection: Connection) -> None:
    """Answer the protocol header with the header and an offer of mechanisms."""
    offered = [name for name in connection.login.mechanisms if name in MECHANISMS]
    connection.send_raw(PROTOCOL_HEADER)
    connection.send(
        ConnectionStart(
            {
                "product": "EscrowMQ",
                "version": __version__,
                "platform": "Python",
                # Qpid JMS takes two connections for the same resource manager if this is equal. A transaction manager
                # then joins their branches, which this client starts and ends twice on one of its sessions. Therefore
                # each connection has a tag of its own.
                "qpid.federation_tag": f"{connection.limits.federation_tag}/{connection.peer}",
            },
            Array(offered, code=STR16),
            Array([_LOCALE], code=STR16),
        )
    )
    connection.state = _State.START


def start_ok(connection: Connection, control: ConnectionStartOk) -> None:
    """Log the client in. The verdict arrives later; until then nothing more is read. Raises LoginFault."""
    connection.introduce(control.client_properties or {})
    connection.state = _State.AUTHENTICATING

    def done(accepted: bool) -> None:
        if connection.state is not _State.AUTHENTICATING:
            return
        if not accepted:
            connection.login_refused()
            return
        if connection.login.final:
            challenge(connection.login.final, _State.ACCEPTED)
        else:
            _tune(connection)
        connection.resume()

    def challenge(data: bytes, state: ConnectionState = _State.SECURE) -> None:
        connection.send(ConnectionSecure(data))
        connection.state = state

    mechanism = control.mechanism or ""
    if mechanism not in MECHANISMS:
        mechanism = f"{mechanism} "  # it may be on offer for other protocols
    connection.login.authenticate(mechanism, control.response or b"", done, challenge)


def secure_ok(connection: Connection, control: ConnectionSecureOk) -> None:
    """Go on with the login. Raises LoginFault."""
    if connection.state is _State.ACCEPTED:
        _tune(connection)
    else:
        connection.state = _State.AUTHENTICATING
        connection.login.respond(control.response or b"")


def _tune(connection: Connection) -> None:
    limits = connection.limits
    connection.send(
        ConnectionTune(
            channel_max=min(limits.channels, 0xFFFF),
            max_frame_size=min(limits.frame_max, MOST_FRAME_MAX),
            heartbeat_min=0,
            heartbeat_max=min(limits.heartbeat, 0xFFFF),
        )
    )
    connection.state = _State.TUNE


def tune_ok(connection: Connection, control: ConnectionTuneOk) -> None:
    """Apply the client's limits. 0, and what is absent, means the broker's limit, and no heartbeats. Raises
    ConnectionFault.
    """
    limits = connection.limits
    frame_max = _agreed(
        "max-frame-size", control.max_frame_size, min(limits.frame_max, MOST_FRAME_MAX), LEAST_FRAME_MAX
    )
    channel_max = _agreed("channel-max", control.channel_max, min(limits.channels, 0xFFFF), 1)
    connection.tuned(frame_max, channel_max, control.heartbeat or 0)
    connection.state = _State.OPEN


def _agreed(name: str, wanted: int | None, limit: int, least: int) -> int:
    if not wanted:
        return limit
    if not min(least, limit) <= wanted <= limit:
        raise ConnectionFault(f"{name} of {wanted} was asked for, between {least} and {limit} were offered")
    return wanted


def open_vhost(connection: Connection, control: ConnectionOpen) -> None:
    """Enter the virtual host that the client names; without a name, the default one. Raises ConnectionFault."""
    name = control.virtual_host or _DEFAULT_VHOST
    login = connection.login
    try:
        login.access.check_vhost(login.user, name)
    except BrokerError as error:
        raise ConnectionFault(error.text, CloseCode.INVALID_PATH) from None
    try:
        connection.enter(name)
    except BrokerError as error:
        raise ConnectionFault(error.text, CloseCode.CONNECTION_FORCED) from None
    connection.state = _State.RUNNING
    connection.send(ConnectionOpenOk(Array(code=STR16)))
    connection.login.admit()


def close(connection: Connection, control: ConnectionClose) -> None:
    """Close the connection on the client's request."""
    connection.close()


def close_ok(connection: Connection, control: ConnectionCloseOk) -> None:
    """End the connection, which the broker has closed."""
    connection.end()


def heartbeat(connection: Connection, control: ConnectionHeartbeat) -> None:
    """Do nothing: the server counts the time since the last bytes."""


Step = Callable[[Any, Any], None]
_ALWAYS: Final[dict[type[Control], Step]] = {ConnectionClose: close, ConnectionHeartbeat: heartbeat}
STEPS: Final[Mapping[ConnectionState, Mapping[type[Control], Step]]] = {
    _State.START: {ConnectionStartOk: start_ok, **_ALWAYS},
    _State.SECURE: {ConnectionSecureOk: secure_ok, **_ALWAYS},
    _State.ACCEPTED: {ConnectionSecureOk: secure_ok, **_ALWAYS},
    _State.TUNE: {ConnectionTuneOk: tune_ok, **_ALWAYS},
    _State.OPEN: {ConnectionOpen: open_vhost, **_ALWAYS},
    _State.RUNNING: _ALWAYS,
    _State.CLOSING: {ConnectionCloseOk: close_ok, **_ALWAYS},
}
"""The controls of the class connection that are valid in each state. Any other one is a fault."""
