"""The client's answers to connection.start and connection.tune."""

from __future__ import annotations

import pytest

from escrowmq.client import handshake
from escrowmq.client.errors import AuthenticationError, ConnectionClosed, NotSupportedError
from escrowmq.client.handshake import Tuned
from escrowmq.client.parameters import Parameters
from escrowmq.wire.amqp091 import spec


def test_the_login_is_answered() -> None:
    start = spec.ConnectionStart(0, 9, {}, b"AMQPLAIN PLAIN EXTERNAL")
    wanted = Parameters(user="ü", password="p", name="n", client_properties={"product": "mine", "x": 1})
    answer = handshake.start_ok(start, wanted, "1.2")
    assert answer.response == b"\0\xc3\xbc\0p"
    assert answer.client_properties["connection_name"] == "n"
    assert answer.client_properties["product"] == "mine"
    assert answer.client_properties["x"] == 1
    assert answer.client_properties["capabilities"] == handshake.CAPABILITIES
    assert handshake.start_ok(start, Parameters(mechanism="EXTERNAL"), "").response == b""
    with pytest.raises(NotSupportedError, match="not ANONYMOUS"):
        handshake.start_ok(start, Parameters(mechanism="ANONYMOUS"), "")


@pytest.mark.parametrize(
    ("offered", "wanted", "agreed"),
    [
        ((2047, 131072, 60), {}, (2047, 131072, 60)),
        ((0, 0, 0), {}, (0, 0, 0)),
        ((0, 0, 60), {"channel_max": 9, "frame_max": 4096, "heartbeat": 5}, (9, 4096, 5)),
        ((5, 5000, 60), {"channel_max": 9, "frame_max": 8000, "heartbeat": 90}, (5, 5000, 60)),
        ((5, 5000, 60), {"heartbeat": 0}, (5, 5000, 0)),
        ((5, 5000, 0), {"heartbeat": 7}, (5, 5000, 7)),
    ],
)
def test_the_lower_limits_are_chosen(
    offered: tuple[int, int, int], wanted: dict[str, int], agreed: tuple[int, int, int]
) -> None:
    assert handshake.tune_ok(spec.ConnectionTune(*offered), Parameters(**wanted)) == Tuned(*agreed)  # type: ignore[arg-type]


def test_refusals_become_exceptions() -> None:
    wanted = Parameters(user="ada")
    login = handshake.refused(spec.ConnectionClose(403, "ACCESS_REFUSED - no", 0, 0), wanted)
    assert isinstance(login, AuthenticationError)
    assert (login.text, login.user) == ("ACCESS_REFUSED - no", "ada")
    vhost = handshake.refused(spec.ConnectionClose(530, "NOT_ALLOWED - no", 0, 0), wanted)
    assert (type(vhost), vhost.code) == (ConnectionClosed, 530)
    assert "connection.secure" in str(handshake.refused(spec.ConnectionSecure(), wanted))
