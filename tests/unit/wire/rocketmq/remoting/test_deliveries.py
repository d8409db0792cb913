"""Many entries at a time have the form of each single one."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.content import BORN_HOST_V6, MessageContent, envelope_of
from escrowmq.wire.rocketmq.remoting.deliveries import encode_entries
from escrowmq.wire.rocketmq.remoting.messages import StoredAt, content_for, encode_stored

IPV4, IPV6 = bytes((10, 0, 0, 1)), bytes(range(16))
CONTENTS = [
    MessageContent(b"KEYS\x01k\x02", b"body", 7, 8, 123, 3, 2, IPV4, 4321),
    MessageContent(b"", b"", host=b""),
    MessageContent(b"a\x01b\x02", b"x" * 5000, -1, BORN_HOST_V6, -5, host=IPV6, port=9),
]


def entries(*contents: bytes, envelope: Envelope | None = None) -> list[Entry]:
    run = Run(envelope or envelope_of("t", "a"), 0, 999, 0)
    return [Entry(number, content, run) for number, content in enumerate(contents, 41)]


@pytest.mark.parametrize("host", [IPV4, IPV6])
@pytest.mark.parametrize("topic", ["t", "t" * 200])
@pytest.mark.parametrize("stream", [5, 1 << 30])
def test_each_entry_is_encoded_as_by_itself(host: bytes, topic: str, stream: int) -> None:
    found = entries(*(content.pack() for content in CONTENTS))
    assert encode_entries(found, topic, 3, stream, (host, 10911)) == b"".join(
        encode_stored(
            content,
            StoredAt(
                topic,
                3,
                entry.position - 1,
                ids.place_offset(ids.StreamPlace(stream, entry.position)),
                999,
                host,
                10911,
            ),
        )
        for entry, content in zip(found, CONTENTS, strict=True)
    )


@pytest.mark.parametrize("stream", [5, 1 << 30])
@pytest.mark.parametrize("host", [b"", IPV4])
def test_neighbours_that_are_mostly_alike_are_encoded_as_by_themselves(host: bytes, stream: int) -> None:
    like = MessageContent(b"KEYS\x01k\x02", b"body", 7, 8, 123, 3, 2, host, 4321)
    others = [
        like._replace(body=b"BODY", born_ms=-1),
        like._replace(properties=b"KEYS\x01l\x02"),
        like._replace(flag=8),
        like._replace(system_flag=BORN_HOST_V6),
        like._replace(failures=3),
        like._replace(port=1),
        like._replace(properties=b"KEYS\x01", body=b"k\x02body"),
        like._replace(body=b"longer"),
    ]
    contents = [each for other in others for each in (like, like, other, other)]
    found = entries(*(content.pack() for content in contents))
    later = Run(envelope_of("t", "b"), 0, 1000, 0)
    foreign = Run(Envelope("t", "a", Properties(message_id="m").encode(), protocol=PROTOCOL), 0, 1001, 0)
    found += [Entry(100 + i, like.pack(), run) for i, run in enumerate((later, later, foreign, foreign, later))]
    together = encode_entries(found, "t", 3, stream, (IPV4, 10911))
    assert together == b"".join(encode_entries([entry], "t", 3, stream, (IPV4, 10911)) for entry in found)


def test_messages_of_other_protocols_are_translated() -> None:
    plain = Envelope("t", "a", Properties(message_id="m").encode(), protocol=PROTOCOL)
    (entry,) = found = entries(b"body", envelope=plain)
    at = StoredAt("t", 0, 40, ids.place_offset(ids.StreamPlace(5, 41)), 999, IPV4, 1)
    expected = encode_stored(content_for(plain, entry.content), at)
    assert encode_entries(found, "t", 0, 5, (IPV4, 1)) == expected
