"""Reading of publishes: the messages of a run together, and their destinations. This is the hot path of the broker."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.keyed_publishing import FEW, read_keyed, read_together
from escrowmq.wire.amqp091.packed import CHANNEL, properties, with_reply_address
from escrowmq.wire.amqp091.publication import Address, Form, Forms
from escrowmq.wire.amqp091.scattered import Scattered
from escrowmq.wire.amqp091.shape import Shape, Shapes, Survey, Values
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.connection import Connection

_END: Final = codes.FRAME_END
_BASIC: Final = 60 << 16
_SIZE: Final = struct.Struct(">Q")
_FRAME_SIZE: Final = struct.Struct(">I")
_HEADER_HEAD: Final = struct.Struct(">III")  # size, class and weight, upper half of the body's size
_AROUND_BODY: Final = 8  # octets from the end of the header frame to the body
_LEAST_CONTENT: Final = 4 + 14 + _AROUND_BODY + 2
LONGEST_RUN: Final = 2048
"""Property lists of more octets do not make runs: each channel keeps its last one, and a connection has many."""
_LARGE_BODY: Final = 8192
"""Octets from which on a body is large for the server's reads: a read of 2 MiB has at most 256 of them."""
_CHANNEL: Final = CHANNEL.to_bytes(2, "big")
_NO_VALUES: Final = Values(durable=False, priority=0, expiration=b"")


class PublishReader:
    """Reads the publishes of one connection that arrive complete, in three frames each.

    Publishes with the same method and the same property list form a run of bodies. Publishes with the same method and
    different property lists form a run of packed content. Publishes with different routing keys form a run of keyed
    content (`keyed_publishing`).
    """

    __slots__ = ("_connection", "_shapes", "forms", "scattered", "shape")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.forms = Forms()
        self.scattered = Scattered(self.forms)
        self._shapes = Shapes()
        self.shape: Shape | None = None  # of the last property list, if it is known

    def go_on(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Read publishes that continue the last run of `channel`. Returns the position of the first frame that does
        not.
        """
        if buf.startswith(channel.prefix, at):
            behind = self.read_run(channel, buf, at, end)
            if behind != at:
                return behind
        behind = self.scattered.read(channel, buf, at, end)
        if behind != at:
            return behind
        if channel.address is not None and buf.startswith(channel.address.start, at):
            return self._read_packed(channel, channel.address, buf, at, end)
        return read_keyed(self, channel, buf, at, end) if channel.lone else at

    def return_to(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Read publishes that continue the last run of a channel behind those of another one. Returns the same as
        `go_on`.
        """
        if channel.form is not None and buf.startswith(channel.prefix, at):
            return self.read_run(channel, buf, at, end)
        if channel.address is not None and buf.startswith(channel.address.start, at):
            return self._read_packed(channel, channel.address, buf, at, end)
        return at

    @property
    def most_body(self) -> int:
        """The longest body, in bytes, that fits into one frame and is not too large for a message."""
        return self._connection.most_body

    @property
    def most_header(self) -> int:
        """The longest payload of a content header frame, in octets."""
        return self._connection.limits.header_size

    def read_first(self, channel: Channel, start: bytes, buf: bytes, at: int, end: int) -> int:
        """Read publishes of which the first begins with `start` and does not continue the last run. Returns the same as
        `_read_packed`.
        """
        address = self.forms.addresses.get(start)
        if address is not None:
            behind = self._read_packed(channel, address, buf, at, end)
            if behind != at:
                channel.address = address
                return behind
        return read_keyed(self, channel, buf, at, end) if channel.lone else at

    def read_run(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Read publishes with the method and the properties of the channel's last one; their bodies may differ, also in
        size.

        Returns the position of the first publish that differs or is incomplete. The reading loop continues there.
        """
        form = channel.form
        if form is None:
            return at
        end = min(end, at + read_together(form.queues))
        prefix, middle, startswith = channel.prefix, channel.middle, buf.startswith
        size_at = len(prefix)
        frame_at = size_at + 8 + len(middle)
        body_at = frame_at + 4
        last = end - body_at - 2
        most = self._connection.most_body
        read_size, read_frame_size = _SIZE.unpack_from, _FRAME_SIZE.unpack_from
        bodies: list[bytes] = []
        while at <= last and startswith(prefix, at) and startswith(middle, at + size_at + 8):
            (size,) = read_size(buf, at + size_at)
            stop = at + body_at + size
            if (
                not 0 < size <= most
                or stop >= end
                or buf[stop] != _END
                or read_frame_size(buf, at + frame_at)[0] != size
            ):
                break
            head, step = buf[at : at + body_at], body_at + size
            bodies.append(buf[at + body_at : stop])
            at = stop + 1
            while startswith(head, at):  # a body of the same size needs no further checks
                stop = at + step
                if stop >= end or buf[stop] != _END:
                    break
                bodies.append(buf[at + body_at : stop])
                at = stop + 1
        if bodies:
            channel.lone = len(bodies) < FEW
            self.publish(channel, form, bodies)
        return at

    def _read_packed(self, channel: Channel, address: Address, buf: bytes, at: int, end: int) -> int:
        """Read publishes to `address` that differ in their properties. Each keeps its properties with its body
        (`packed`).

        Returns the position of the first publish that cannot be read in this way or is incomplete.
        """
        start, middle, shape = address.start, channel.body_start, self.shape
        startswith, unpack, skip = buf.startswith, _FRAME_SIZE.unpack_from, len(address.start)
        most, last = min(self._connection.most_body, LARGE - 1), end - len(address.start) - _LEAST_CONTENT
        last_stop = end - _AROUND_BODY - 2  # where a header frame ends behind which there is room for a body
        canonical = channel.number == CHANNEL
        requests = self._connection.broker.engine.requests
        form: Form | None = None
        values: Values | None = None
        reply_to = 0  # the offset of a reply-to that asks for a direct reply
        contents: list[bytes] = []
        while at <= last and startswith(start, at):
            header = at + skip
            if (
                shape is not None
                and header + shape.length <= last_stop
                and shape.literals(buf, header) == shape.expected
                and b"".join(shape.texts(buf, header)).isascii()
            ):
                length, found, reply_to = shape.length, shape.values, shape.reply_to
            else:
                length, found, reply_to, shape = self.survey(buf, header, last_stop)
            stop = header + length
            if not length or not startswith(middle, stop):
                break
            (size,) = unpack(buf, stop + 4)
            finish = stop + 8 + size
            if finish >= end or not 0 < size <= most or buf[finish] != _END or unpack(buf, header + 12)[0] != size:
                break
            if found is not values and found != values:
                if form is not None and contents:
                    self.publish(channel, form, contents)
                    contents = []
                    if requests.left <= 0:
                        break  # each of these runs is charged
                values, form = found, self._packed_form(channel, address, found)
                if form is None:
                    break
                last = min(last, at + read_together(form.queues))
            if reply_to:
                if channel.reply_address is None:
                    break  # this publish is refused when it is read separately
                contents.append(with_reply_address(buf[header : finish + 1], reply_to, channel.reply_address.encoded))
            elif canonical:
                contents.append(buf[header : finish + 1])
            else:
                contents.append(buf[header : stop + 2] + _CHANNEL + buf[stop + 4 : finish + 1])
            at = finish + 1
        self.shape = shape
        if form is not None and contents:
            channel.lone = len(contents) < FEW
            self.publish(channel, form, contents)
            if not reply_to and len(contents) > 1 and properties(contents[-1]) == properties(contents[-2]):
                self._expect_run(channel, address, contents[-1])
        return at

    def survey(self, buf: bytes, header: int, last_stop: int) -> tuple[int, Values, int, Shape | None]:
        """Return length, values, offset of a reply-to that asks for a direct reply (or 0), and shape (if known) of the
        header frame whose size field is at `header`.

        The length is 0 if the frame ends after `last_stop`, or its properties have to be decoded.
        """
        size, basic, upper = _HEADER_HEAD.unpack_from(buf, header)
        length = 4 + size
        allowed = 14 <= size <= self._connection.limits.header_size
        if not allowed or basic != _BASIC or upper or header + length > last_stop:
            return 0, _NO_VALUES, 0, None
        shape = self._shapes.find(buf, header)
        if (
            shape is not None
            and shape.literals(buf, header) == shape.expected
            and b"".join(shape.texts(buf, header)).isascii()
        ):
            return length, shape.values, shape.reply_to, shape
        survey = Survey(buf, header + 16, header + length)
        if survey.values is None:
            return 0, _NO_VALUES, 0, None
        shape = self._shapes.learn(buf, header, survey, survey.values)
        return length, survey.values, survey.reply_to and survey.reply_to - header, shape

    def _packed_form(self, channel: Channel, address: Address, values: Values) -> Form | None:
        """Return the form of packed publishes. None if they have to be read apart, or if reading them apart will refuse
        them.
        """
        try:
            form = self.forms.packed(address, values)
            channel.resolve(form)
        except BrokerError:
            return None
        return None if form.apart else form

    def _expect_run(self, channel: Channel, address: Address, content: bytes) -> None:
        """Prepare to read the next messages as a run, since the last two had the same properties."""
        props = properties(content)
        if len(props) > LONGEST_RUN:
            return
        form = self.find_form(channel, address.method, props)
        if form is not None:
            channel.prefix = address.start + content[:8]
            channel.middle = props + channel.body_start
            channel.form = form

    def find_form(self, channel: Channel, method: bytes, props: bytes) -> Form | None:
        try:
            return self.forms.find(channel.number, method, props)
        except BrokerError as error:
            channel.refuse(error, spec.BasicPublish())
            return None

    def publish(self, channel: Channel, form: Form, bodies: list[bytes]) -> None:
        if channel.closing:
            return
        self._connection.large_bodies = len(bodies[-1]) >= _LARGE_BODY
        try:
            channel.publish(form, bodies)
        except BrokerError as error:
            channel.refuse(error, spec.BasicPublish())
