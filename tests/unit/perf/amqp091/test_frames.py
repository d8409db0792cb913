"""The load tool's encoder, compared with pamqp, which implements the whole specification."""

from __future__ import annotations

import pytest
from pamqp import base, commands, frame

from escrowmq.perf.amqp091 import frames


def decoded(data: bytes) -> tuple[int, base.Frame]:
    """Return channel and method of data that is a single frame."""
    used, channel, method = frame.unmarshal(data)
    assert used == len(data)
    assert isinstance(method, base.Frame)
    return channel, method


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (frames.tune_ok(2047, 131072), commands.Connection.TuneOk(2047, 131072, 0)),
        (frames.connection_open("a/b"), commands.Connection.Open("a/b")),
        (frames.queue_declare(3, "q", durable=True), commands.Queue.Declare(queue="q", durable=True, arguments={})),
        (
            frames.queue_declare(3, "q", durable=False, passive=True),
            commands.Queue.Declare(queue="q", passive=True, arguments={}),
        ),
        (frames.queue_bind(3, "q", "x"), commands.Queue.Bind(queue="q", exchange="x", arguments={})),
        (
            frames.queue_declare(3, "q", durable=True, arguments={"x-max-priority": 10}),
            commands.Queue.Declare(queue="q", durable=True, arguments={"x-max-priority": 10}),
        ),
        (
            frames.queue_bind(3, "q", "x", "a.*"),
            commands.Queue.Bind(queue="q", exchange="x", routing_key="a.*", arguments={}),
        ),
        (frames.basic_get(3, "q", auto_ack=False), commands.Basic.Get(queue="q", no_ack=False)),
        (frames.basic_get(3, "q", auto_ack=True), commands.Basic.Get(queue="q", no_ack=True)),
        (frames.queue_purge(3, "q"), commands.Queue.Purge(queue="q")),
        (frames.queue_delete(3, "q"), commands.Queue.Delete(queue="q")),
        (
            frames.exchange_declare(3, "x", "fanout", durable=True),
            commands.Exchange.Declare(exchange="x", exchange_type="fanout", durable=True, arguments={}),
        ),
        (frames.exchange_delete(3, "x"), commands.Exchange.Delete(exchange="x")),
        (frames.basic_qos(3, 1000), commands.Basic.Qos(prefetch_count=1000)),
        (
            frames.basic_consume(3, "q", "t", auto_ack=True),
            commands.Basic.Consume(queue="q", consumer_tag="t", no_ack=True, arguments={}),
        ),
        (
            frames.basic_consume(3, "q", "t", auto_ack=False),
            commands.Basic.Consume(queue="q", consumer_tag="t", arguments={}),
        ),
        (frames.basic_ack(3, 2**40, multiple=True), commands.Basic.Ack(2**40, multiple=True)),
        (frames.basic_ack(3, 1, multiple=False), commands.Basic.Ack(1, multiple=False)),
        (frames.confirm_select(3), commands.Confirm.Select()),
        (frames.tx_select(3), commands.Tx.Select()),
        (frames.tx_commit(3), commands.Tx.Commit()),
    ],
)
def test_pamqp_reads_the_methods(data: bytes, expected: base.Frame) -> None:
    channel, method = decoded(data)
    assert channel == (0 if expected.name.startswith("Connection") else 3)
    assert method.name == expected.name
    assert dict(method) == dict(expected)


def test_start_ok_contains_the_credentials_and_capabilities() -> None:
    _, method = decoded(frames.start_ok("user", "pässword", "me"))
    assert isinstance(method, commands.Connection.StartOk)
    assert method.mechanism == "PLAIN"
    assert method.response == "\0user\0pässword"
    properties = method.client_properties
    assert properties["connection_name"] == "me"
    capabilities = properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["connection.blocked"] is True


def test_channel_open_has_an_empty_reserved_string() -> None:
    assert frame.unmarshal(frames.channel_open(3))[1] == 3
    assert frames.channel_open(3)[-2:] == b"\0\xce"


def test_connection_close_has_the_code_200() -> None:
    _, method = decoded(frames.connection_close())
    assert isinstance(method, commands.Connection.Close)
    assert (method.reply_code, method.class_id, method.method_id) == (200, 0, 0)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (name, value)
        for name, value in vars(frames).items()
        if name.partition("_")[0] in {"CONNECTION", "CHANNEL", "EXCHANGE", "QUEUE", "BASIC", "CONFIRM", "TX"}
    ],
)
def test_method_numbers_are_those_of_the_specification(name: str, number: int) -> None:
    assert commands.INDEX_MAPPING[number].__qualname__.replace(".", "").upper() == name.replace("_", "")


def test_single_acks_are_one_frame_for_each_tag() -> None:
    assert frames.single_acks(3, 5, 7) == b"".join(frames.basic_ack(3, tag, multiple=False) for tag in (5, 6, 7))


def test_short_strings_have_a_limit() -> None:
    with pytest.raises(ValueError, match="255"):
        frames.shortstr("x" * 256)
