"""The client's answers during login, to connection.start and connection.tune (specification, section 2.2.4)."""

from __future__ import annotations

from typing import Final, NamedTuple

from escrowmq.client.errors import AuthenticationError, ConnectionClosed, NotSupportedError
from escrowmq.client.parameters import Parameters
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.table import FieldTable

CAPABILITIES: Final[FieldTable] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Tuned(NamedTuple):
    """The limits that both sides have agreed on. 0 means no limit; the heartbeat is in seconds, 0 for none."""

    channel_max: int
    frame_max: int
    heartbeat: int


def start_ok(start: spec.ConnectionStart, wanted: Parameters, version: str) -> spec.ConnectionStartOk:
    """Return the answer to connection.start, which logs in. `version` is the client's.

    Raises:
        NotSupportedError: The broker does not offer the mechanism.
    """
    offered = start.mechanisms.decode("ascii", "replace").split()
    if wanted.mechanism not in offered:
        raise NotSupportedError(
            f"{wanted.address} offers the mechanisms {', '.join(offered)}, but not {wanted.mechanism}"
        )
    properties: FieldTable = {
        "product": "escrowmq.client",
        "version": version,
        "platform": "Python",
        "capabilities": dict(CAPABILITIES),
        **wanted.client_properties,
    }
    if wanted.name:
        properties["connection_name"] = wanted.name
    response = b""
    if wanted.mechanism == "PLAIN":
        response = b"\0" + wanted.user.encode() + b"\0" + wanted.password.encode()
    return spec.ConnectionStartOk(properties, wanted.mechanism, response)


def tune_ok(tune: spec.ConnectionTune, wanted: Parameters) -> Tuned:
    """Return the smaller of the two sides' limits, where 0 means no limit.

    A heartbeat of 0 from either side means no heartbeats.
    """
    heartbeat = tune.heartbeat if wanted.heartbeat is None else wanted.heartbeat
    return Tuned(
        _smaller(tune.channel_max, wanted.channel_max),
        _smaller(tune.frame_max, wanted.frame_max),
        min(heartbeat, tune.heartbeat) if tune.heartbeat else heartbeat,
    )


def refused(method: Method, wanted: Parameters) -> ConnectionClosed:
    """Return the exception for a broker that answered the login with `method`."""
    where = wanted.address
    if not isinstance(method, spec.ConnectionClose):
        return ConnectionClosed(0, f"unexpected {method.NAME} during login", where=where)
    if method.reply_code == codes.ACCESS_REFUSED:
        return AuthenticationError(method.reply_code, method.reply_text, where=where, user=wanted.user)
    return ConnectionClosed(method.reply_code, method.reply_text, where=where)


def _smaller(offered: int, wanted: int) -> int:
    return min(offered, wanted) if offered and wanted else offered or wanted
