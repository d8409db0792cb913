"""AMQP over WebSocket (RFC 6455, subprotocol `amqp`): the upgrade, and the bytes within binary frames.

A WebSocket stands between a transport and an endpoint, as TLS does. Frames of AMQP need not begin with those of the
WebSocket. No extension is accepted, so nothing is compressed. The payload of a frame is passed on as it arrives, so a
frame of any size needs no memory.

A browser lets any page connect to any address, also to a broker on the same machine. It names the page's origin in the
request, and an origin must be permitted. Other clients send none, or the broker's own address (Netty). No page comes
from there, since the broker serves none. Only a page that has redirected its own name to the broker (DNS rebinding)
seems to, so a name is trusted only with TLS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from typing import Any, Final

START: Final = b"GET "
SUBPROTOCOL: Final = "amqp"
ANY_ORIGIN: Final = "*"
_CLOSE_NORMAL: Final = 1000
_CLOSE_TEXT: Final = 1003


class WebSocket:
    """The server's side of one WebSocket. `receive` takes what a client sends, `wrap` what it is to get."""

    def __init__(self, origins: Collection[str], *, tls: bool = False) -> None:
        """`origins` are those of permitted web pages."""
        from wsproto import ConnectionType, WSConnection

        self._protocol: Any = WSConnection(ConnectionType.SERVER)
        self._origins = origins
        self._tls = tls
        self._answers: list[bytes] = []
        self.ended = False
        """Whether the WebSocket is refused or closed, so that the connection is to be closed."""
        self.refusal = ""
        """The reason why the upgrade was refused or a frame was not understood; empty if there is none."""

    def receive(self, data: bytes) -> bytes:
        """Return the bytes for the endpoint that `data` contains. Afterwards there may be answers. Bytes behind the end
        are ignored.
        """
        return b"" if self.ended else self._read(data)

    def _read(self, data: bytes) -> bytes:
        from wsproto import events
        from wsproto.utilities import RemoteProtocolError

        payload: list[bytes] = []
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if self.ended:
                    break
                if isinstance(event, events.BytesMessage):
                    payload.append(bytes(event.data))
                elif isinstance(event, events.Request):
                    self._upgrade(event)
                elif isinstance(event, events.Ping):
                    self._answer(event.response())
                elif isinstance(event, events.CloseConnection):
                    self._end(event.response())
                elif isinstance(event, events.TextMessage):
                    self._end(events.CloseConnection(_CLOSE_TEXT), "a text frame; AMQP needs binary frames")
        except RemoteProtocolError as error:
            self._end(error.event_hint, str(error))
        return b"".join(payload)

    def answers(self) -> bytes:
        """Remove and return the bytes that answer what was received."""
        answers, self._answers = b"".join(self._answers), []
        return answers

    def wrap(self, pieces: Iterable[bytes | bytearray | memoryview]) -> bytes:
        """Return output of the endpoint as a binary frame, or nothing if the WebSocket is closed: a client may send a
        fault, or close, right behind bytes that the endpoint answers.
        """
        from wsproto.events import BytesMessage

        if not self.is_open:
            return b""
        return bytes(self._protocol.send(BytesMessage(b"".join(pieces))))

    def close(self) -> bytes:
        """End the WebSocket. Return the last frame, or nothing if it has ended already."""
        from wsproto.events import CloseConnection

        if self.ended or not self.is_open:
            return b""
        self.ended = True
        return bytes(self._protocol.send(CloseConnection(_CLOSE_NORMAL)))

    @property
    def is_open(self) -> bool:
        """Whether the upgrade is complete and neither side has closed the WebSocket."""
        return bool(self._protocol.state.name == "OPEN")

    def _upgrade(self, request: Any) -> None:
        from wsproto.events import AcceptConnection, RejectConnection

        origin = next((value.decode("latin-1") for name, value in request.extra_headers if name == b"origin"), "")
        if origin and not self._permits(origin, request.host):
            self._end(RejectConnection(status_code=403), f"origin {origin!r} is not in security.websocket_origins")
        elif SUBPROTOCOL not in request.subprotocols:
            self._end(RejectConnection(status_code=400), f"the subprotocol {SUBPROTOCOL!r} is not offered")
        else:
            self._answer(AcceptConnection(subprotocol=SUBPROTOCOL))

    def _permits(self, origin: str, host: str) -> bool:
        if origin in self._origins or ANY_ORIGIN in self._origins:
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return origin.partition("://")[2] == host and (self._tls or name == "localhost" or _is_address(name))

    def _answer(self, event: Any) -> None:
        self._answers.append(self._protocol.send(event))

    def _end(self, last: Any, refusal: str = "") -> None:
        """Send a last event, if there is one for the state in which the connection is, and end."""
        from wsproto.utilities import LocalProtocolError

        self.ended = True
        self.refusal = refusal
        if last is not None:
            try:
                self._answer(last)
            except LocalProtocolError:
                return


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
