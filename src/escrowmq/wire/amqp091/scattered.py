"""Reading of publishes to many queues through the default exchange, with equal properties."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.properties import REPLY_TO
from escrowmq.wire.amqp091.publication import Form, Forms

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.channel import Channel

_END: Final = codes.FRAME_END
_SIZE: Final = struct.Struct(">Q")
_FRAME_SIZE: Final = struct.Struct(">I")
_LEAST: Final = 48  # octets of the shortest publish that has a body
_TO_QUEUE: Final = b"\x00\x3c\x00\x28\x00\x00\x00"  # a publish to the default exchange, up to the routing key


class Scattered:
    """Reads publishes to the default exchange on one channel, with the same properties as the last one.

    It knows the forms of these publishes by their method frames, for one version of the topology and of the access
    rules. All of them are plain and not mandatory. Each has its own queue, which refuses no messages.
    """

    __slots__ = ("_channel", "_forms", "_head", "_middle", "_versions")

    def __init__(self, forms: Forms) -> None:
        self._forms = forms.by_frame
        self._channel: Channel | None = None
        self._head = b""  # of the header frame: up to the body's size
        self._middle = b""  # from there up to the size of the body frame
        self._versions = (-1, -1)

    def learn(self, channel: Channel, form: Form, frame: bytes, head: bytes, middle: bytes) -> None:
        """Remember the form of a publish whose method frame is `frame`, if such publishes can be read here.

        `head` and `middle` are the octets of the other frames before and behind the size of the body.
        """
        if not frame.startswith(_TO_QUEUE, 7) or frame[-2]:  # other octets could stand for the same queue
            return
        if not form.plain or form.found.reply_to == REPLY_TO or len(form.queues) != 1 or form.queues[0].refuses:
            return
        versions = (form.version, form.allowed)
        if (channel, versions, head, middle) != (self._channel, self._versions, self._head, self._middle):
            self._forms.clear()
            self._channel, self._versions, self._head, self._middle = channel, versions, head, middle
        self._forms[frame] = form

    def read(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Read publishes from `at` on. Returns the position of the first one that is not known or is incomplete.

        The messages for one queue form a run, in their order. There is no order among messages for different queues.
        """
        if channel is not self._channel or channel.branch is not None or not self._forms:
            return at
        if self._versions != (channel.vhost.version, channel.broker.access.version):
            return at
        find, startswith, frame_size = self._forms.get, buf.startswith, _FRAME_SIZE.unpack_from
        last = end - _LEAST
        size, same = 0, b"\x00"  # of the last body, and the octets between its message's method frame and it
        publishes: list[tuple[Envelope, list[bytes], Sequence[Queue]]] = []
        runs: dict[Form, list[bytes]] = {}
        count = 0
        while at <= last:
            begin = at + 8 + frame_size(buf, at + 3)[0]
            form = find(buf[at:begin])
            if form is None:
                break
            if not startswith(same, begin):
                size = self._body_size(buf, begin, end)
                if not 0 < size <= channel.connection.most_body:
                    break
                same = buf[begin : begin + len(self._head) + len(self._middle) + 12]
            begin += len(same)
            stop = begin + size
            if stop >= end or buf[stop] != _END:
                break
            bodies = runs.get(form)
            if bodies is None:
                runs[form] = bodies = []
                publishes.append((form.envelope, bodies, form.queues))
            bodies.append(buf[begin:stop])
            count += 1
            at = stop + 1
        if publishes:
            channel.publish_each(publishes, count)
        return at

    def _body_size(self, buf: bytes, at: int, end: int) -> int:
        """Return the body size from the header frame at `at`; 0 if it has other properties, or is incomplete."""
        head, middle = self._head, self._middle
        size_at = at + len(head)
        frame_at = size_at + 8 + len(middle)
        if frame_at + 4 > end or not buf.startswith(head, at) or not buf.startswith(middle, size_at + 8):
            return 0
        size: int = _SIZE.unpack_from(buf, size_at)[0]
        return size if _FRAME_SIZE.unpack_from(buf, frame_at)[0] == size else 0
