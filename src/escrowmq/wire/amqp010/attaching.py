"""session.attach: a session begins on a channel, or one that was kept is attached again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp010.codec.spec import DetachCode, SessionAttached, SessionCommandPoint
from escrowmq.wire.amqp010.faults import SessionFault
from escrowmq.wire.amqp010.names import SessionNames
from escrowmq.wire.amqp010.session import Session
from escrowmq.wire.amqp010.states import SessionPhase

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.spec import SessionAttach
    from escrowmq.wire.amqp010.connection import Connection

LONGEST_NAME: Final = 1024
"""The longest name of a session, in octets."""


def attach(connection: Connection, channel: int, control: SessionAttach) -> None:
    """Attach a session to a channel that has none, as the client asks, or refuse it with `session.detached`.

    A session that is kept goes on. A user's name that another channel has is refused as busy; with `force`, the other
    channel loses the session, which goes on here if it would have been kept.
    """
    name = control.name or b""
    names = connection.host.common(SessionNames)
    other = names.find(connection.user, connection.vhost.name, name)
    if len(name) > LONGEST_NAME or not name:
        _refuse(connection, channel, name, DetachCode.NOT_ATTACHED, f"the name of a session has {len(name)} octets")
        return
    if other is not None:
        if other.state is not SessionPhase.DETACHED:
            if not control.force:
                text = f"the session is attached by {other.label}"
                _refuse(connection, channel, name, DetachCode.SESSION_BUSY, text)
                return
            _take_over(other, connection)
        if not other.ending:
            if other.vhost is connection.vhost:
                connection.sessions[channel] = other
                other.resume(connection, channel)
                return
            other.expire()  # its virtual host was deleted, and this is another one
    _begin(connection, channel, name)


def _begin(connection: Connection, channel: int, name: bytes) -> None:
    """Begin a session, if the user may have another one."""
    user = connection.user
    try:
        connection.broker.access.check_channels(user, connection.broker.engine.channels[user])
    except BrokerError as error:
        _refuse(connection, channel, name, DetachCode.TRANSPORT_BUSY, error.text)
        return
    session = connection.sessions[channel] = Session(connection, channel, name)
    connection.host.common(SessionNames).add(user, connection.vhost.name, name, session)
    session.send_control(SessionAttached(name))
    session.send_control(SessionCommandPoint(0, 0))


def _refuse(connection: Connection, channel: int, name: bytes, code: DetachCode, text: str) -> None:
    connection.failed(int(code), f"channel {channel}: {text}")
    connection.detached(channel, name, code)


def _take_over(session: Session, taker: Connection) -> None:
    """Take a session from the channel that has it. Unless it is kept, it ends."""
    text = f"the session was taken over by {taker.label}"
    session.flush_parts()
    loser, channel = session.connection, session.channel
    if loser.part_with(session):
        loser.failed(int(DetachCode.SESSION_BUSY), f"channel {channel}: {text}")
        loser.detached(channel, session.name, DetachCode.SESSION_BUSY)
    else:
        session.lose(SessionFault(DetachCode.SESSION_BUSY, text))
