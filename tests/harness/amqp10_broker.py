"""A small broker in a thread that resumes links, and cuts connections where a test says. It keeps all state in memory.

It shares the codec with the client, but none of the rules of resuming: it keeps, for each link, the tags of messages
that it took, and the messages that it gave away and that are not settled.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslInit, SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.ports import reserve_port

_CREDIT = 1000


class Cut(Exception):  # noqa: N818 - what the test does
    """The connection is dropped without a word."""


@dataclass
class Kept:
    """What outlives a link: tags that were taken, and messages that were given away, by tag."""

    taken: set[bytes] = field(default_factory=set)
    given: dict[bytes, bytes] = field(default_factory=dict)
    owner: Any = None  # the connection that attached the link last


class ResumingBroker:
    """Listens on `url`. `on_frame` is called with each performative before it takes effect or is sent; it may Cut."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[bytes]] = {}
        self.kept: dict[tuple[str, str, bool], Kept] = {}
        self.on_frame: Callable[[str, Any], object] = lambda *_: None
        self.refuses = False  # new connections, after their login
        self._next_tag = 0
        self.port = reserve_port(self)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._connections: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def queue(self, name: str) -> deque[bytes]:
        return self.queues.setdefault(name, deque())

    def new_tag(self) -> bytes:
        self._next_tag += 1
        return self._next_tag.to_bytes(4, "big")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was closed before
            self._listener.shutdown(socket.SHUT_RDWR)  # accept() does not notice close()
        self._acceptor.join()
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Drop all connections without a word."""
        for sock in self._connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._connections.append(sock)
                threading.Thread(target=_Served(self, sock).run, daemon=True).start()


class _Served:
    """One connection with one session."""

    def __init__(self, broker: ResumingBroker, sock: socket.socket) -> None:
        self.broker = broker
        self.sock = sock
        self.reader = frames.FrameReader(2**31)
        self.container = ""
        self.links: dict[int, tuple[Attach, Kept]] = {}
        self.arrived: dict[int, int] = {}
        self.frames = 0
        self.ids: dict[int, tuple[Kept, bytes]] = {}
        self.credit: dict[int, int] = {}
        self.next_id = 0
        self.parts: list[bytes] = []

    def run(self) -> None:
        with contextlib.suppress(Cut, OSError), self.sock:
            self._log_in()
            for performative, payload in self._frames():
                self.broker.on_frame("in", performative)
                self._take(performative, payload)

    def _log_in(self) -> None:
        self._octets(8)
        self.sock.sendall(frames.SASL_HEADER)
        self._write(SaslMechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),)), type=frames.SASL)
        for performative, _ in self._frames():
            if isinstance(performative, SaslInit):
                break
        self._write(SaslOutcome(code=0), type=frames.SASL)
        self._octets(8)
        self.sock.sendall(frames.PROTOCOL_HEADER)

    def _octets(self, size: int) -> None:
        while self.reader.take(size) is None:
            self._receive()

    def _receive(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise Cut
        self.reader.feed(data)

    def _frames(self) -> Iterator[tuple[Any, bytes]]:
        while True:
            frame = self.reader.next()
            if frame is None:
                self._receive()
            elif frame[3] != frame[4]:
                _, _, data, at, end = frame
                performative, at = decode_performative(data, at, end)
                yield performative, data[at:end]

    def _write(self, performative: Any, payload: bytes = b"", type: int = frames.AMQP) -> None:
        self.broker.on_frame("out", performative)
        self.sock.sendall(frames.frame(0, encode_performative(performative), payload, type=type))

    def _take(self, performative: Any, payload: bytes) -> None:
        match performative:
            case Open():
                self.container = performative.container_id
                if self.broker.refuses:
                    self._refuse()
                self._write(Open("test"))
            case Begin():
                self._write(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=5000, outgoing_window=5000))
            case Attach():
                self._attach(performative)
            case Flow(handle=int(handle)):
                if performative.link_credit is not None and self.links[handle][0].role == RECEIVER:
                    self.credit[handle] = performative.link_credit
                    self._deliver(handle)
            case Transfer():
                self._arrive(performative, payload)
            case Disposition():
                self._settle(performative)
            case Detach():
                self._write(Detach(performative.handle, performative.closed))
            case End():
                self._write(End())
            case Close():
                self._write(Close())
                raise Cut

    def _refuse(self) -> None:
        self._write(Open("test", properties={Symbol("amqp:connection-establishment-failed"): True}))
        self._write(Close(Error(condition=Symbol("amqp:not-allowed"), description="no such virtual host")))
        next(self._frames())  # the client's close
        raise Cut

    def _attach(self, asked: Attach) -> None:
        kept = self.broker.kept.setdefault((self.container, asked.name, asked.role), Kept())
        kept.owner = self
        theirs = asked.unsettled or {}
        self.links[asked.handle] = (asked, kept)
        mine: dict[bytes, Any] = {}
        if asked.role == SENDER:
            if not asked.incomplete_unsettled:
                kept.taken.intersection_update(theirs)
            mine = {tag: Accepted() for tag in kept.taken if tag in theirs}
        else:
            mine = dict.fromkeys(kept.given, None)
        self._write(
            Attach(
                asked.name,
                asked.handle,
                not asked.role,
                asked.snd_settle_mode,
                asked.rcv_settle_mode,
                source=asked.source,
                target=asked.target,
                unsettled=mine,
                initial_delivery_count=0 if asked.role == RECEIVER else None,
            )
        )
        if asked.role == SENDER:
            self.arrived[asked.handle] = 0
            self._grant(asked.handle)
            return
        for tag, message in list(kept.given.items()):
            if tag in theirs and isinstance(theirs[tag], Accepted):
                del kept.given[tag]
                self._transfer(asked.handle, kept, tag, b"", settled=True, resume=True, state=theirs[tag])
            else:
                self._transfer(asked.handle, kept, tag, message, resume=tag in theirs)

    def _grant(self, handle: int) -> None:
        self._write(
            Flow(
                next_incoming_id=self.frames,
                incoming_window=5000,
                next_outgoing_id=0,
                outgoing_window=5000,
                handle=handle,
                delivery_count=self.arrived[handle],
                link_credit=_CREDIT,
            )
        )

    def _transfer(self, handle: int, kept: Kept, tag: bytes, payload: bytes, **fields: Any) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        self.ids[number] = (kept, tag)
        fields = {"settled": False, "message_format": 0, **fields}
        self._write(Transfer(handle, delivery_id=number, delivery_tag=tag, **fields), payload)

    def _deliver(self, handle: int) -> None:
        attach, kept = self.links[handle]
        assert attach.source is not None
        queue = self.broker.queue(str(attach.source.address))
        while queue and self.credit[handle] > 0:
            self.credit[handle] -= 1
            message, tag = queue.popleft(), self.broker.new_tag()
            kept.given[tag] = message
            self._transfer(handle, kept, tag, message)

    def _arrive(self, transfer: Transfer, payload: bytes) -> None:
        attach, kept = self.links[transfer.handle]
        self.frames += 1
        self.parts.append(payload)
        if transfer.more:
            return
        self.arrived[transfer.handle] += 1
        if self.arrived[transfer.handle] % (_CREDIT // 2) == 0:
            self._grant(transfer.handle)
        message, self.parts = b"".join(self.parts), []
        assert transfer.delivery_tag is not None
        assert transfer.delivery_id is not None
        tag = transfer.delivery_tag
        if transfer.settled:
            kept.taken.discard(tag)
            return
        if tag not in kept.taken:
            assert not transfer.resume, "a resumed message must have arrived before"
            kept.taken.add(tag)
            assert attach.target is not None
            self.broker.queue(str(attach.target.address)).append(message)  # type: ignore[union-attr]
        self.ids[-1 - transfer.delivery_id] = (kept, tag)
        second = attach.rcv_settle_mode == SECOND
        self._write(Disposition(RECEIVER, transfer.delivery_id, settled=not second, state=Accepted()))
        for handle in self.credit:
            self._deliver(handle)

    def _settle(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        for number in range(disposition.first, last + 1):
            if disposition.role == SENDER:
                kept, tag = self.ids[-1 - number]
                kept.taken.discard(tag)
            elif number in self.ids:
                kept, tag = self.ids[number]
                if kept.owner is not self:
                    continue
                message = kept.given.pop(tag, None)
                if not isinstance(disposition.state, Accepted) and message is not None:
                    name = next(str(attach.source.address) for attach, each in self.links.values() if each is kept)
                    self.broker.queue(name).appendleft(message)
                if not disposition.settled:
                    self._write(Disposition(SENDER, number, settled=True, state=disposition.state))
