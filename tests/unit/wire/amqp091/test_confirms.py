"""Publishes are confirmed together, in order, once they are on disk."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import codes, spec
from tests.unit.wire.amqp091.clients import PERSISTENT, bodies, fails_channel, pair, queue


class TestConfirms:
    @pytest.mark.rule("DUR-1")
    def test_confirms_wait_for_the_disk_and_are_combined(self) -> None:
        made, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", b"b", b"c", disk=False)
        assert not client.inbox
        made.run_disk()
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(3, True)
        client.publish(1, "q", b"d")
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(4, False)

    def test_transient_and_unroutable_messages_are_confirmed_immediately(self) -> None:
        _, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", header=b"\x00\x00", disk=False)
        assert client.expect(1, spec.BasicAck).delivery_tag == 1
        client.publish(1, "nowhere", b"b", disk=False)
        assert client.expect(1, spec.BasicAck).delivery_tag == 2

    def test_the_server_is_told_that_publishes_are_answered(self) -> None:
        _, client = pair()
        assert not client.port.endpoint.answered
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        assert client.port.endpoint.answered

    def test_a_return_precedes_its_confirm(self) -> None:
        _, client = pair()
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "nowhere", b"a", b"", mandatory=True)
        for body in (b"a", b""):
            returned = client.inbox.popleft()
            assert returned.method == spec.BasicReturn(312, "NO_ROUTE", "", "nowhere")
            assert (returned.header, returned.body) == (PERSISTENT, body)
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(2, True)

    @pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
    def test_refused_messages_are_nacked(self, overflow: str) -> None:
        made, client = pair()
        queue(client, "dead")
        queue(
            client,
            "q",
            {
                "x-max-length": 3,
                "x-overflow": overflow,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "dead",
            },
        )
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", *[b"%d" % i for i in range(5)])
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(3, True)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(4, False, False)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(5, False, False)
        client.get(1, "q", no_ack=True)
        client.publish(1, "q", b"5", b"6")
        assert client.expect(1, spec.BasicAck) == spec.BasicAck(6, False)
        assert client.expect(1, spec.BasicNack) == spec.BasicNack(7, False, False)
        assert bodies(made) == [b"1", b"2", b"5"]
        assert bodies(made, "dead") == ([b"3", b"4", b"6"] if overflow.endswith("dlx") else [])

    def test_acks_and_nacks_that_alternate_are_sent_in_order(self) -> None:
        _, client = pair()
        queue(client, "q", {"x-max-length-bytes": 4, "x-overflow": "reject-publish"})
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"12", b"1234", b"1", b"12", b"1", b"1")
        client.collect()
        answers = [
            (said.method.NAME, said.method.delivery_tag, said.method.multiple)  # type: ignore[attr-defined]
            for said in client.inbox
        ]
        assert answers == [
            ("basic.ack", 1, False),
            ("basic.nack", 2, False),
            ("basic.ack", 3, False),
            ("basic.nack", 4, False),
            ("basic.ack", 5, False),
            ("basic.nack", 6, False),
        ]

    def test_an_error_does_not_drop_earlier_confirms(self) -> None:
        made, client = pair()
        queue(client)
        client.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        client.publish(1, "q", b"a", disk=False)
        client.publish(1, "q", b"b", exchange="nowhere", disk=False)
        assert not client.inbox
        made.run_disk()
        assert client.expect(1, spec.BasicAck).delivery_tag == 1
        fails_channel(client, 1, codes.NOT_FOUND, "no exchange 'nowhere'")
