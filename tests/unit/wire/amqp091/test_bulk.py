"""Messages in columns: valid ones are decoded as they were encoded, and all others are refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.reservations.reading import Batch, Shared
from escrowmq.wire.amqp091 import bulk
from escrowmq.wire.amqp091.bulk import BulkError, Message
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties, scan
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, DATA, encode_section
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS

PLAIN = Properties(content_type="text/plain", delivery_mode=2).encode()
ENVELOPES = [
    Envelope(exchange, key, header, protocol=PROTOCOL)
    for exchange, key, header in (("", "q", PLAIN), ("amq.topic", "ä.b", b"\0\0"), ("x", "", PLAIN))
]
messages = st.lists(
    st.tuples(
        st.integers(1, 2**63),
        st.sampled_from(ENVELOPES),
        st.integers(0, 2**40),
        st.booleans(),
        st.binary(max_size=20),
    ),
    max_size=12,
)


def batch_of(first: int, content: list[tuple[int, Envelope, int, bool, bytes]]) -> Batch:
    """Return a batch; equal neighbours share a run."""
    runs: list[Shared] = []
    for i, (_, envelope, time, redelivered, _) in enumerate(content, 1):
        if runs and runs[-1][1:] == (envelope, time, redelivered):
            runs[-1] = runs[-1]._replace(end=i)
        else:
            runs.append(Shared(i, envelope, time, redelivered))
    return Batch(
        first,
        first + len(content),
        array("Q", [each[0] for each in content]),
        array("I", [len(each[4]) for each in content]),
        [each[4] for each in content],
        runs,
    )


@given(st.integers(1, 2**60), messages)
def test_a_batch_is_decoded_as_it_was_encoded(
    first: int, content: list[tuple[int, Envelope, int, bool, bytes]]
) -> None:
    found = bulk.decode(bulk.encode(batch_of(first, content)))
    assert list(found.messages()) == [
        Message(
            first + i, position, env.exchange.encode(), env.routing_key.encode(), env.header, time * 1000, again, body
        )
        for i, (position, env, time, again, body) in enumerate(content)
    ]
    assert (found.first, found.count) == (first, len(content))


def test_columns_are_views_of_the_bytes_and_aligned() -> None:
    data = bytearray(bulk.encode(batch_of(1, [(9, ENVELOPES[0], 3, True, b"body")])))
    found = bulk.decode(data)
    assert bytes(found.contents.data) == b"body"
    data[-4:] = b"BODY"
    assert found.contents[0] == b"BODY"
    assert (found.positions.tolist(), found.contents.offsets.tolist()) == ([9], [0, 4])
    assert len(bulk.encode(batch_of(1, [(9, ENVELOPES[0], 3, True, b"")]))) % bulk.ALIGNMENT == 0


@given(st.lists(st.tuples(st.sampled_from([PLAIN, b"\0\0"]), st.binary(min_size=1, max_size=9), st.booleans())))
def test_packed_content_is_handed_out_as_it_is_stored(some: list[tuple[bytes, bytes, bool]]) -> None:
    packed = Envelope("", "q", protocol=PACKED)
    content = [
        (i, packed, 0, False, pack(props, body)) if packs else (i, ENVELOPES[0], 0, False, body)
        for i, (props, body, packs) in enumerate(some)
    ]
    encoded = bulk.decode(bulk.encode(batch_of(1, content)))
    expected = [(props if packs else PLAIN, body) for props, body, packs in some]
    assert [(message.properties, message.body) for message in encoded.messages()] == expected
    assert bytes(encoded.contents.data) == b"".join(each[4] for each in content)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b""]), st.sampled_from([PLAIN, b"\0\0"]))))
def test_keyed_content_is_handed_out_as_it_is_stored(some: list[tuple[bytes, bytes]]) -> None:
    keyed = Envelope("x", "", protocol=KEYED)
    content = [(i, keyed, 0, False, join(key, pack(props, b"body"))) for i, (key, props) in enumerate(some)]
    encoded = bulk.decode(bulk.encode(batch_of(1, content)))
    found = [(m.exchange, m.routing_key, m.properties, m.body) for m in encoded.messages()]
    assert found == [(b"x", key, props, b"body") for key, props in some]
    assert len(encoded.run_ends) == min(len(some), 1)


@pytest.mark.parametrize("form", [PACKED, SECTIONS])
def test_the_history_of_a_dead_letter_is_put_into_the_properties_of_each(form: int) -> None:
    death = Death("q", "expired", 1, 5000, "", ("k", "secret"), None)
    dead = Envelope("", "q", protocol=form, deaths=(death,), extra_keys=("secret",))
    contents = [
        pack(PLAIN, b"one") if form == PACKED else encode_section(DATA, b"one"),
        pack(b"\0\0", b"two") if form == PACKED else encode_section(DATA, b"two"),
    ]
    content = [(1, ENVELOPES[0], 0, False, b"live"), *((i, dead, 0, False, each) for i, each in enumerate(contents, 2))]
    data = bulk.encode(batch_of(1, content))
    found = list(bulk.decode(data).messages())
    assert [message.body for message in found] == [b"live", b"one", b"two"]
    assert [b"x-death" in message.properties for message in found] == [False, True, True]
    assert b"secret" not in data


@pytest.mark.rule("MSG-4")
def test_messages_of_amqp_10_have_the_same_columns() -> None:
    foreign = Envelope("e", "k", protocol=SECTIONS, durable=True, priority=4, ttl=1500)
    section = encode_section(APPLICATION_PROPERTIES, {"h": "v"})
    content: list[tuple[int, Envelope, int, bool, bytes]] = [
        (1, ENVELOPES[0], 5, False, b"plain"),
        (2, foreign, 5, False, section + encode_section(DATA, b"one")),
        (3, foreign, 5, False, section + encode_section(DATA, b"two")),
    ]
    found = list(bulk.decode(bulk.encode(batch_of(1, content))).messages())
    properties = Properties(headers={"h": "v"}, delivery_mode=2, expiration="1500").encode()
    assert [(each.exchange, each.routing_key, each.properties, each.body) for each in found] == [
        (b"", b"q", PLAIN, b"plain"),
        (b"e", b"k", properties, b"one"),
        (b"e", b"k", properties, b"two"),
    ]


def test_properties_are_those_of_a_delivery() -> None:
    dead = Envelope("", "q", PLAIN, protocol=PROTOCOL, deaths=(Death("q", "expired", 1, 5000, "", ("k",), None),))
    (message,) = bulk.decode(bulk.encode(batch_of(1, [(1, dead, 0, False, b"")]))).messages()
    assert message.properties != PLAIN
    assert b"x-death" in message.properties
    assert scan(message.properties).delivery_mode == 2


@given(st.binary(max_size=200))
def test_any_octets_are_refused_or_decoded(data: bytes) -> None:
    for given_ in (data, bulk.MAGIC + b"\2\0\0\0" + data):
        try:
            found = bulk.decode(given_)
        except BulkError:
            continue
        assert len(list(found.messages())) == found.count


@given(messages.filter(bool), st.data())
def test_damaged_octets_are_refused_or_decoded(
    content: list[tuple[int, Envelope, int, bool, bytes]], data: st.DataObject
) -> None:
    whole = bytearray(bulk.encode(batch_of(1, content)))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for damaged in (whole, cut):
        try:
            found = bulk.decode(damaged)
        except BulkError:
            continue
        assert len(list(found.messages())) == found.count


@given(messages, st.data())
def test_truncated_and_overlong_octets_are_refused(
    content: list[tuple[int, Envelope, int, bool, bytes]], data: st.DataObject
) -> None:
    whole = bulk.encode(batch_of(1, content))
    with pytest.raises(BulkError):
        bulk.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(BulkError, match="bytes follow"):
        bulk.decode(whole + b"\0" * data.draw(st.integers(1, 9)))


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, b"X", "begins with b'EMQB'"),
        (4, b"\1", "version 1"),
        (6, b"\1", "flags 0x1"),
        (20, b"\0", "ascend|cover|column|follow"),
        (16, b"\xff\xff\xff\xff", "in the middle of a column"),
    ],
)
def test_an_invalid_head_is_refused(at: int, value: bytes, text: str) -> None:
    data = bytearray(bulk.encode(batch_of(1, [(1, ENVELOPES[0], 0, False, b"x"), (2, ENVELOPES[0], 0, False, b"y")])))
    data[at : at + len(value)] = value
    with pytest.raises(BulkError, match=text):
        bulk.decode(data)
