"""Deliveries of an earlier link are sent again, before anything new. Each row is tested in `test_resuming`."""

from __future__ import annotations

from escrowmq.wire.amqp10.codec.performatives import Transfer
from tests.unit.wire.amqp10.test_resuming import delivered, interrupted, receiving


def test_credit_is_granted_bit_by_bit() -> None:
    made, client, tags = delivered(b"a", b"b", b"c")
    made, client = interrupted(made, client, 1, "drop")
    receiving(client, unsettled={})
    for count, tag in enumerate(tags):
        client.flow(1, 1, delivery_count=count)
        transfer = client.expect(Transfer)
        assert (transfer.delivery_tag, transfer.delivery_id, transfer.resume) == (tag, count, False)
        assert client.idle()


def test_a_delivery_that_was_settled_by_an_operator_meanwhile_is_left_out() -> None:
    made, client, tags = delivered(b"a", b"b")
    made, client = interrupted(made, client, 1, "drop")
    receiving(client, unsettled={})
    (terminus,) = [each for key, each in made.broker.termini.by_key.items() if key.link == "l"]
    terminus.deliveries.take(1, 1)
    client.flow(1, 10)
    assert client.expect(Transfer).delivery_tag == tags[1]
    assert client.idle()
