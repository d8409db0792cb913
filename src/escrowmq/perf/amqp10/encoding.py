"""Messages of the load as transfers of AMQP 1.0, with the places that are written when they are sent."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, pack, pack_into
from typing import Final

from escrowmq.perf.block import PublishBlock
from escrowmq.perf.messages import LoadMessage
from escrowmq.wire.amqp10.codec import frames, hot, sections
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, Header, Properties
from escrowmq.wire.amqp10.codec.states import TransactionalState

_NUMBER: Final = 0xFFFFFFFF  # a delivery-id that takes four bytes
_TAG: Final = b"\xff\xff\xff\xff"
_ID_MARK: Final = b"\x70\xff\xff\xff\xff"
_TAG_CODE: Final = b"\xa0\x04"
_TAG_MARK: Final = _TAG_CODE + _TAG
_NUMBERED: Final = Struct(">I2sI")


def sections_of(message: LoadMessage, *, durable: bool) -> tuple[bytes, int]:
    """Return the message's sections, and where its body begins in them."""
    found = [
        sections.encode_header(Header(durable=durable, priority=4 if message.priority is None else message.priority))
    ]
    if message.message_id or message.correlation_id or message.timestamp is not None:
        found.append(
            encode_composite(
                Properties(
                    message_id=message.message_id,
                    correlation_id=message.correlation_id,
                    creation_time=None if message.timestamp is None else message.timestamp * 1000,
                )
            )
        )
    if message.headers:
        found.append(sections.encode_section(APPLICATION_PROPERTIES, dict(message.headers)))
    size = len(message.body)
    data = b"\xa0" + bytes((size,)) if size < 256 else b"\xb0" + size.to_bytes(4, "big")
    found.append(b"\x00\x53\x75" + data)
    head = b"".join(found)
    return head + message.body, len(head)


class Counters:
    """The delivery-id and the transfer-id that come next in a session."""

    __slots__ = ("deliveries", "transfers")

    def __init__(self) -> None:
        self.deliveries = 0
        self.transfers = 0


class TransferBlock(PublishBlock):
    """Encoded transfers. Their delivery-ids, tags and transaction are written when they are taken."""

    __slots__ = ("_counters", "_ids_at", "_tags_at", "_transactions_at", "frames", "transaction")

    def __init__(
        self,
        made: Iterable[LoadMessage],
        counters: Counters,
        *,
        handle: int,
        durable: bool,
        settled: bool,
        frame_max: int,
        transaction: bytes = b"",
    ) -> None:
        """`transaction` is a transaction's id, whose length all others have; empty: none."""
        state = encode_composite(TransactionalState(txn_id=transaction)) if transaction else b""
        first = hot.encode_transfer(handle, _NUMBER, _TAG, settled, False, state)
        units, bodies = [], []
        self.frames = 1
        for message in made:
            payload, at = sections_of(message, durable=durable)
            unit, count = _unit(first, payload, handle, settled, state, frame_max)
            units.append(unit)
            bodies.append(unit.index(payload[: at + 1], len(first)) + at if count == 1 else 8 + len(first) + at)
            self.frames = max(self.frames, count)
        super().__init__(units, bodies)
        self._counters = counters
        begin = 8 + units[0][8:].index(_ID_MARK)
        self._ids_at = begin + 1
        self._tags_at = 8 + units[0][8:].index(_TAG_MARK) + 2
        self._transactions_at = 8 + units[0][8:].index(state) + state.rindex(transaction) if transaction else 0
        self.transaction = transaction

    def slice(self, first: int, number: int) -> memoryview:
        counters, data, offsets, unit = self._counters, self._data, self._offsets, self._unit
        number_of_first = counters.deliveries
        counters.deliveries += number
        counters.transfers += number * self.frames
        numbers = pack(f">{number}I", *range(number_of_first, number_of_first + number))
        if unit:
            for begin in (first * unit + self._ids_at, first * unit + self._tags_at):
                for octet in range(4):
                    at = begin + octet
                    data[at : at + (number - 1) * unit + 1 : unit] = numbers[octet::4]
            for octet, value in enumerate(self.transaction):
                at = first * unit + self._transactions_at + octet
                data[at : at + (number - 1) * unit + 1 : unit] = bytes((value,)) * number
            return super().slice(first, number)
        ids_at, tags_at, size = self._ids_at, self._tags_at, len(self.transaction)
        if tags_at == ids_at + 4 + len(_TAG_CODE):
            write = _NUMBERED.pack_into
            for each, at in enumerate(offsets[first : first + number], number_of_first):
                write(data, at + ids_at, each, _TAG_CODE, each)
        else:
            for each, at in enumerate(offsets[first : first + number], number_of_first):
                pack_into(">I", data, at + ids_at, each)
                pack_into(">I", data, at + tags_at, each)
        if size:
            transactions_at, transaction = self._transactions_at, self.transaction
            for at in offsets[first : first + number]:
                data[at + transactions_at : at + transactions_at + size] = transaction
        return super().slice(first, number)


def _unit(first: bytes, payload: bytes, handle: int, settled: bool, state: bytes, frame_max: int) -> tuple[bytes, int]:
    """Return the frames of one message, and their number."""
    room = frame_max - 8
    if len(first) + len(payload) <= room:
        return frames.frame(0, first, payload), 1
    begin = hot.encode_transfer(handle, _NUMBER, _TAG, settled, True, state)
    parts = [frames.frame(0, begin, payload[: room - len(begin)])]
    at = room - len(begin)
    more = hot.encode_transfer(handle, _NUMBER, _TAG, settled, True, state)
    while at < len(payload):
        last = len(payload) - at <= room - len(first)
        body = first if last else more
        end = len(payload) if last else at + room - len(more)
        parts.append(frames.frame(0, _continued(body), payload[at:end]))
        at = end
    return b"".join(parts), len(parts)


def _continued(transfer: bytes) -> bytes:
    """Return the transfer of a further frame, which names neither delivery-id nor tag."""
    found = hot.decode_transfer(transfer, 0, len(transfer))
    assert found is not None
    again = found[0]
    again.delivery_id = again.delivery_tag = again.message_format = again.state = None
    return encode_composite(again)
