"""Channels in lists: their mode, and what waits on them."""

from __future__ import annotations

from typing import Any

from escrowmq.wire.amqp091 import spec
from tests.unit.wire.amqp091.clients import pair


def test_a_channel_is_listed_with_its_mode_and_its_unsettled_deliveries() -> None:
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"1", b"2", b"3")
    client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    client.send(1, spec.BasicQos(0, 2, False), spec.BasicConsume("q", "t", no_wait=True))
    endpoint = client.port.endpoint
    endpoint.tick(server.broker.engine.now, 0, 0)
    server.broker.engine.now += 2500
    assert list(endpoint.channel_rows()) == [
        {
            "number": 1,
            "state": "running",
            "confirms": True,
            "transactional": False,
            "consumers": 1,
            "prefetch": 2,
            "global_prefetch": 0,
            "unsettled": 2,
            "age_ms": 2500,
            "uncommitted": 0,
        }
    ]


def test_the_work_of_an_open_transaction_is_counted() -> None:
    _, client = pair()
    client.declare(1, "q")
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    client.publish(1, "q", b"1", b"2")
    (row,) = client.port.endpoint.channel_rows()
    assert (row["transactional"], row["uncommitted"], row["age_ms"]) == (True, 2, None)


def test_a_channel_that_closes_while_the_list_is_made_is_left_out() -> None:
    _, client = pair()
    client.call(2, spec.ChannelOpen(), spec.ChannelOpenOk)
    rows: Any = client.port.endpoint.channel_rows()
    assert next(rows)["number"] == 1
    client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
    assert list(rows) == []
