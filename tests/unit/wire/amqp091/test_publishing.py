"""Publishes that are read together give the same messages as publishes that are read individually."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.properties import Properties
from tests.unit.wire.amqp091.clients import consuming
from tests.unit.wire.amqp091.test_shape import lists

messages = st.lists(st.tuples(lists, st.binary(max_size=20)), max_size=12)


def frames(props: bytes, body: bytes, channel: int = 1) -> bytes:
    return method_frame(channel, spec.BasicPublish("", "q")) + content_frames(channel, props, body, 0)


def delivered(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], list[tuple[int, str]]]:
    """Return the messages that a consumer gets from these octets, and the errors that the publisher gets."""
    server, client = consuming()
    for piece in pieces:
        if not client.closed:
            client.send_bytes(piece)
    return [(m.header, m.body) for m in client.deliveries()], server.faults


def differing(number: int, channel: int) -> bytes:
    return frames(Properties(message_id=f"{number:04}", timestamp=number).encode(), b"%d" % number, channel)


@pytest.mark.parametrize("channel", [1, 2])
def test_differing_messages_may_be_cut_anywhere(channel: int) -> None:
    whole = [differing(n, channel) for n in range(6)]
    first, octets = b"".join(whole[:2]), b"".join(whole[2:])
    complete = delivered(whole)
    assert [body for _, body in complete[0]] == [b"%d" % n for n in range(6)]
    for cut in range(len(octets)):
        assert delivered([first, octets[:cut], octets[cut:]]) == complete, cut


@given(messages, st.integers(1, 3), st.data())
def test_any_segmentation_gives_the_same_messages(
    some: list[tuple[bytes, bytes]], times: int, data: st.DataObject
) -> None:
    whole = [frames(props, body) for props, body in some for _ in range(times)]
    octets = b"".join(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert delivered(pieces) == delivered(whole)


@pytest.mark.parametrize(("size", "large"), [(8191, False), (8192, True), (100_000, True)])
def test_the_server_is_told_whether_the_last_publish_had_a_large_body(size: int, large: bool) -> None:
    server, client = consuming()
    endpoint = client.port.endpoint
    for body, expected in ((bytes(size), large), (b"small", False), (bytes(size), large)):
        client.publish(1, "q", body)
        assert endpoint.large_bodies == expected
    assert not server.faults
