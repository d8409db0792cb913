"""A scripted peer of the AMQP 1.0 client's pure endpoint: it decodes its frames, and answers as the test says."""

from __future__ import annotations

from typing import Any

from escrowmq.amqp10.endpoint.connection import Endpoint
from escrowmq.amqp10.endpoint.events import Event
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.message import Message
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Transfer,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.types import Symbol

BODY = Message(b"body").encode()


class Peer:
    """The other side of an endpoint. `sent` are the performatives that the endpoint sent, with their payloads."""

    def __init__(self, endpoint: Endpoint, *, max_frame_size: int = 65536, idle_time_out: int | None = None) -> None:
        self.endpoint = endpoint
        self.sent: list[tuple[Any, bytes]] = []
        self.events: list[Event] = []
        self.headers: list[bytes] = []
        self.max_frame_size = max_frame_size
        self.idle_time_out = idle_time_out
        self._reader = frames.FrameReader(2**31)
        self._expects_header = True

    def read(self) -> list[Any]:
        """Take the endpoint's output, and return its new performatives."""
        self._reader.feed(self.endpoint.output())
        found = []
        while True:
            if self._expects_header:
                header = self._reader.take(8)
                if header is None:
                    break
                self.headers.append(header)
                self._expects_header = False
                continue
            frame = self._reader.next()
            if frame is None:
                break
            _, _, data, at, end = frame
            if at == end:
                self.sent.append((None, b""))
                continue
            performative, at = decode_performative(data, at, end)
            self.sent.append((performative, data[at:end]))
            found.append(performative)
            self._expects_header = type(performative).__name__ == "SaslInit"
        return found

    def send(self, performative: Any, payload: bytes = b"", channel: int = 0, type: int = frames.AMQP) -> list[Event]:
        """Give the endpoint a frame."""
        return self.octets(frames.frame(channel, encode_performative(performative), payload, type=type))

    def octets(self, data: bytes) -> list[Event]:
        """Give the endpoint octets."""
        events = self.endpoint.receive(data)
        self.events += events
        return events

    def last(self, kind: type) -> Any:
        """Return the last performative of a kind that the endpoint sent."""
        self.read()
        return next(performative for performative, _ in reversed(self.sent) if isinstance(performative, kind))

    def all(self, kind: type) -> list[Any]:
        """Return the performatives of a kind that the endpoint sent."""
        self.read()
        return [performative for performative, _ in self.sent if isinstance(performative, kind)]

    def payloads(self) -> list[bytes]:
        """Return the payloads of the transfers that the endpoint sent."""
        self.read()
        return [payload for performative, payload in self.sent if isinstance(performative, Transfer)]

    # -- the usual answers

    def log_in(self) -> None:
        """Answer the login (SASL ANONYMOUS) and open."""
        self.octets(frames.SASL_HEADER)
        self.send(SaslMechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),)), type=frames.SASL)
        self.read()
        self.send(SaslOutcome(code=0), type=frames.SASL)
        self.octets(frames.PROTOCOL_HEADER)
        self.open()

    def open(self) -> None:
        """Answer open."""
        self.send(Open("peer", max_frame_size=self.max_frame_size, idle_time_out=self.idle_time_out))
        self.read()

    def begin(self, window: int = 1000, channel: int = 0) -> None:
        """Answer begin."""
        answer = Begin(remote_channel=channel, next_outgoing_id=0, incoming_window=window, outgoing_window=1000)
        self.send(answer, channel=channel)

    def attach(self, link: OutgoingLink | IncomingLink, credit: int = 100, **changes: Any) -> None:
        """Answer the attach of a link as it was asked for, and give a sending link credit."""
        asked = next(each for each in reversed(self.all(Attach)) if each.name == link.name)
        fields: dict[str, Any] = {
            "role": not asked.role,
            "handle": asked.handle,
            "snd_settle_mode": asked.snd_settle_mode,
            "rcv_settle_mode": asked.rcv_settle_mode,
            "source": asked.source,
            "target": asked.target,
            "unsettled": None if asked.unsettled is None else {},
            "initial_delivery_count": 0 if asked.role == RECEIVER else None,
        }
        self.send(Attach(asked.name, **{**fields, **changes}))
        if asked.role == SENDER and credit:
            self.credit(link, credit)
        self.read()

    def credit(self, link: OutgoingLink | IncomingLink, credit: int, *, seen: int = 0, **changes: Any) -> None:
        """Give a sending link credit."""
        fields: dict[str, Any] = {
            "next_incoming_id": seen,
            "incoming_window": 1000,
            "next_outgoing_id": 0,
            "outgoing_window": 1000,
            "handle": link.handle,
            "delivery_count": seen,
            "link_credit": credit,
        }
        self.send(Flow(**{**fields, **changes}))

    def deliver(self, link: OutgoingLink | IncomingLink, number: int, payload: bytes = BODY, **changes: Any) -> None:
        """Send a message on a receiving link. The tag is one octet, its number."""
        fields: dict[str, Any] = {"delivery_id": number, "delivery_tag": bytes((number,)), "message_format": 0}
        self.send(Transfer(link.handle, **{**fields, "settled": False, **changes}), payload)

    def settle(self, role: bool, first: int, last: int | None = None, **changes: Any) -> None:
        """Send a disposition."""
        self.send(Disposition(role, first, last, **changes))


def connected(**options: Any) -> tuple[Endpoint, Peer, SessionEndpoint]:
    """Return an open connection with a session."""
    endpoint = Endpoint("me")
    session = endpoint.session()
    peer = Peer(endpoint, **options)
    endpoint.start(Parameters())
    peer.log_in()
    peer.begin()
    return endpoint, peer, session


def reconnected(peer: Peer) -> Peer:
    """Lose the connection, and return the peer of the next one, whose session has begun."""
    endpoint = peer.endpoint
    endpoint.lost("the test cut the connection")
    again = Peer(endpoint, max_frame_size=peer.max_frame_size)
    endpoint.start(Parameters())
    again.log_in()
    again.begin()
    return again


def sending(peer: Peer, session: SessionEndpoint, credit: int = 100, **options: Any) -> OutgoingLink:
    """Return an attached sending link."""
    link = session.outgoing_link("out", LinkOptions("q", **options))
    session.attach(link)
    peer.attach(link, credit)
    return link


def receiving(peer: Peer, session: SessionEndpoint, window: int = 10, **options: Any) -> IncomingLink:
    """Return an attached receiving link."""
    link = session.incoming_link("in", LinkOptions("q", **options), window)
    session.attach(link)
    peer.attach(link)
    return link
