"""The connection class: logging in, tuning, opening (section 2.2.4)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from escrowmq import __version__
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.table import FieldTable, decode_fields
from escrowmq.wire.amqp091.versions import Version

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.connection import Connection

CAPABILITIES: Final[FieldTable] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
    "dtx": True,
}
_PROPERTIES: Final[FieldTable] = {
    "product": "EscrowMQ",
    "version": __version__,
    "platform": "Python",
    "copyright": "The EscrowMQ authors",
    "information": "Licensed under the Apache License 2.0",
    "capabilities": CAPABILITIES,
}


class State(Enum):
    """The state of a connection."""

    HEADER = auto()
    START = auto()
    SECURE = auto()
    """The mechanism has further steps, and the client's answer to `connection.secure` is next."""
    AUTHENTICATING = auto()
    ACCEPTED = auto()
    """The login is accepted, and the client's answer to the last data of the mechanism is next."""
    TUNE = auto()
    OPEN = auto()
    RUNNING = auto()
    CLOSING = auto()
    CLOSED = auto()


def start(connection: Connection) -> None:
    """Offer mechanisms in answer to the protocol header."""
    connection.put(0, _start_frame(tuple(connection.login.mechanisms), connection.version))
    connection.state = State.START


@lru_cache(maxsize=16)
def _start_frame(mechanisms: tuple[str, ...], version: Version) -> bytes:
    """Return the frame that offers `mechanisms`. Encoding it takes longer than everything else before a login."""
    start = spec.ConnectionStart(
        version.major, version.minor, dict(_PROPERTIES), " ".join(mechanisms).encode(), b"en_US"
    )
    return method_frame(0, start)


def start_ok(connection: Connection, method: spec.ConnectionStartOk) -> None:
    """Log the client in. The verdict arrives later; until then nothing more is read."""
    _introduce(connection, method.client_properties)
    connection.state = State.AUTHENTICATING

    def done(accepted: bool) -> None:
        if connection.state is not State.AUTHENTICATING:
            return
        if not accepted:
            connection.login_refused(
                f"Login was refused using authentication mechanism {method.mechanism}. "
                "For details see the broker logfile."
            )
            return
        if connection.login.final:
            challenge(connection.login.final, State.ACCEPTED)
        else:
            _tune(connection)
        connection.resume()

    def challenge(data: bytes, state: State = State.SECURE) -> None:
        connection.send(spec.ConnectionSecure(data))
        connection.state = state

    connection.login.authenticate(method.mechanism, method.response, done, challenge, decode_fields)


def secure_ok(connection: Connection, method: spec.ConnectionSecureOk) -> None:
    """Go on with the login."""
    if connection.state is State.ACCEPTED:
        _tune(connection)
    else:
        connection.state = State.AUTHENTICATING
        connection.login.respond(method.response)


def _tune(connection: Connection) -> None:
    limits = connection.limits
    connection.send(spec.ConnectionTune(limits.channels, limits.frame_max, limits.heartbeat))
    connection.state = State.TUNE


def _introduce(connection: Connection, client: FieldTable) -> None:
    """Store the client's properties, its name and its capabilities."""
    connection.client = client
    capabilities = client.get("capabilities")
    if isinstance(capabilities, dict):
        connection.cancel_notify = capabilities.get("consumer_cancel_notify") is True
        connection.blocked_notify = capabilities.get("connection.blocked") is True
    name = client.get("connection_name")
    if isinstance(name, str):
        connection.label = f"{connection.peer} ({name})"


def tune_ok(connection: Connection, method: spec.ConnectionTuneOk) -> None:
    """Apply the client's limits, which must not exceed the broker's. 0 means the broker's limit."""
    limits = connection.limits
    frame_max = _agreed("frame_max", method.frame_max, limits.frame_max, codes.FRAME_MIN_SIZE)
    channel_max = _agreed("channel_max", method.channel_max, limits.channels, 1)
    connection.tuned(frame_max, channel_max, method.heartbeat)
    connection.state = State.OPEN


def _agreed(name: str, wanted: int, limit: int, least: int) -> int:
    if not wanted:
        return limit
    if limit and wanted > limit:
        raise SyntaxFault(
            codes.NOT_ALLOWED, f"negotiated {name} = {wanted} is higher than the maximum allowed value ({limit})"
        )
    if wanted < least:
        raise SyntaxFault(
            codes.NOT_ALLOWED, f"negotiated {name} = {wanted} is lower than the minimum allowed value ({least})"
        )
    return wanted


def open_vhost(connection: Connection, method: spec.ConnectionOpen) -> None:
    """Enter the virtual host that the client names."""
    try:
        connection.vhost = connection.login.enter(method.virtual_host)
        connection.door = connection.login.door()
    except BrokerError as error:
        raise SyntaxFault(codes.NOT_ALLOWED, error.text) from None
    connection.state = State.RUNNING
    connection.send(spec.ConnectionOpenOk())
    connection.opened()


def update_secret(connection: Connection, method: spec.ConnectionUpdateSecret) -> None:
    """Take a new token. The connection ends if it is refused."""

    def done(refusal: str) -> None:
        if connection.state is not State.RUNNING:
            return
        if refusal:
            connection.fail(codes.NOT_ALLOWED, refusal, spec.ConnectionUpdateSecret.INDEX)
            return
        connection.send(spec.ConnectionUpdateSecretOk())

    connection.login.renew(method.new_secret, done)


def close(connection: Connection, method: spec.ConnectionClose) -> None:
    """Close the connection on the client's request."""
    connection.close()


def close_ok(connection: Connection, method: spec.ConnectionCloseOk) -> None:
    connection.end()


Handler = Callable[[Any, Any], None]

# The methods of the connection class that are valid in each state; any other is refused with 503 COMMAND_INVALID.
HANDLERS: Final[dict[State, dict[int, Handler]]] = {
    State.START: {spec.ConnectionStartOk.INDEX: start_ok, spec.ConnectionClose.INDEX: close},
    State.SECURE: {spec.ConnectionSecureOk.INDEX: secure_ok, spec.ConnectionClose.INDEX: close},
    State.ACCEPTED: {spec.ConnectionSecureOk.INDEX: secure_ok, spec.ConnectionClose.INDEX: close},
    State.TUNE: {
        spec.ConnectionTuneOk.INDEX: tune_ok,
        spec.ConnectionClose.INDEX: close,
    },
    State.OPEN: {spec.ConnectionOpen.INDEX: open_vhost, spec.ConnectionClose.INDEX: close},
    State.RUNNING: {spec.ConnectionClose.INDEX: close, spec.ConnectionUpdateSecret.INDEX: update_secret},
    State.CLOSING: {spec.ConnectionClose.INDEX: close, spec.ConnectionCloseOk.INDEX: close_ok},
}
