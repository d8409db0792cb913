"""The class `tx` as clients see it: staged operations, commit, rollback, and errors that close the channel."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.method import Method
from tests.unit.wire.amqp091.clients import bodies, consuming, fails_channel, pair, queue


class TestTransactions:
    @pytest.mark.rule("TX-2")
    @pytest.mark.rule("TX-12")
    def test_commit_publishes_and_rollback_discards(self) -> None:
        made, client = pair()
        queue(client)
        client.open_channel(2, mode="tx")
        client.publish(2, "q", b"a", b"b")
        assert client.count(1, "q") == 0
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        client.publish(2, "q", b"dropped")
        client.call(2, spec.TxRollback(), spec.TxRollbackOk)
        client.publish(2, "q", b"c")
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        assert bodies(made) == [b"a", b"b", b"c"]

    @pytest.mark.rule("TX-8")
    def test_commit_ok_and_effects_wait_for_the_disk(self) -> None:
        made, client = pair()
        queue(client)
        client.open_channel(2, mode="tx")
        client.publish(2, "q", b"a")
        client.send(2, spec.TxCommit(), disk=False)
        assert not client.inbox
        assert client.server.broker.directory.vhost("/").queue("q").ready == 0
        made.run_disk()
        client.expect(2, spec.TxCommitOk)
        assert bodies(made) == [b"a"]

    @pytest.mark.rule("TX-7")
    @pytest.mark.rule("TX-11")
    def test_returns_come_with_the_commit_and_before_its_answer(self) -> None:
        _, client = pair()
        queue(client)
        queue(client, "gone")
        client.open_channel(2, mode="tx")
        client.publish(2, "nowhere", b"a", mandatory=True)
        client.publish(2, "gone", b"b", mandatory=True)
        client.publish(2, "q", b"c", mandatory=True)
        client.call(1, spec.QueueDelete("gone"), spec.QueueDeleteOk)
        assert not client.inbox
        client.send(2, spec.TxCommit())
        assert client.inbox[0].body == b"a"
        client.expect(2, spec.BasicReturn)
        assert client.inbox[0].body == b"b"
        client.expect(2, spec.BasicReturn)
        client.expect(2, spec.TxCommitOk)

    @pytest.mark.rule("TX-3")
    @pytest.mark.rule("TX-4")
    @pytest.mark.parametrize(
        "method", [spec.BasicAck(1), spec.BasicNack(1, False, False), spec.BasicReject(1, True), spec.BasicAck(0, True)]
    )
    def test_settlements_take_effect_on_commit(self, method: Method) -> None:
        made, client = consuming(1, b"1", b"2")
        client.deliveries()
        client.call(2, spec.TxSelect(), spec.TxSelectOk)
        client.send(2, method)
        assert not client.deliveries(), "a staged settlement must count against the prefetch limit"
        client.call(2, spec.TxRollback(), spec.TxRollbackOk)
        assert not client.deliveries(), "a rollback must not requeue"
        assert made.broker.directory.vhost("/").queue("q").unsettled == 1
        client.send(2, method)
        client.send(2, spec.TxCommit())
        expected = b"1" if isinstance(method, spec.BasicReject) else b"2"
        assert client.bodies() == [expected]
        client.expect(2, spec.TxCommitOk)

    @pytest.mark.rule("TX-6")
    def test_a_tag_cannot_be_settled_twice_in_one_transaction(self) -> None:
        made, client = consuming(0, b"1", b"2")
        client.deliveries()
        client.call(2, spec.TxSelect(), spec.TxSelectOk)
        client.send(2, spec.BasicAck(1))
        client.publish(2, "q", b"new")
        client.send(2, spec.BasicAck(1))
        fails_channel(client, 2, codes.PRECONDITION_FAILED, "unknown delivery tag 1")
        assert bodies(made) == [b"1", b"2"]

    def test_delivery_tags_can_be_settled_again_after_a_rollback(self) -> None:
        made, client = consuming(0, *[b"%d" % i for i in range(1, 6)])
        client.deliveries()
        client.call(2, spec.TxSelect(), spec.TxSelectOk)
        client.send(2, spec.BasicAck(2), spec.BasicAck(3, True), spec.BasicNack(5, False, True))
        client.call(2, spec.TxRollback(), spec.TxRollbackOk)
        client.send(2, spec.BasicAck(3, True), spec.BasicAck(5))
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        client.call(2, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
        assert bodies(made) == [b"4"]

    def test_a_reject_dead_letters_on_commit(self) -> None:
        made, client = pair()
        queue(client, "dead")
        queue(client, "q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        client.publish(1, "q", b"a")
        client.open_channel(2, mode="tx")
        assert client.get(2, "q") is not None
        client.send(2, spec.BasicReject(1, False))
        assert bodies(made, "dead") == []
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        assert bodies(made, "dead") == [b"a"]

    @pytest.mark.rule("TX-1")
    def test_a_channel_cannot_change_between_tx_and_confirm_mode(self) -> None:
        _, client = pair()
        client.send(1, spec.TxSelect(), spec.TxSelect(), spec.ConfirmSelect())
        client.expect(1, spec.TxSelectOk)
        client.expect(1, spec.TxSelectOk)
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        client.open_channel(1)
        client.send(1, spec.ConfirmSelect(), spec.ConfirmSelect(), spec.TxSelect())
        client.expect(1, spec.ConfirmSelectOk)
        client.expect(1, spec.ConfirmSelectOk)
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        for method in (spec.TxCommit(), spec.TxRollback()):
            client.open_channel(1)
            client.send(1, method)
            fails_channel(client, 1, codes.PRECONDITION_FAILED, "channel is not transactional")

    @pytest.mark.rule("TX-13")
    @pytest.mark.parametrize(
        ("limits", "words"),
        [
            (Limits(operations=3), "more than 3 operations"),
            (Limits(bytes=6), "more than 6 bytes"),  # the header counts three
            (Limits(age=5000), "older than 5 s"),
        ],
    )
    def test_a_transaction_beyond_a_limit_closes_the_channel(self, limits: Limits, words: str) -> None:
        made, client = pair(transaction=limits)
        queue(client)
        client.open_channel(2, mode="tx")
        client.publish(2, "q", b"1", b"2", b"3")
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        made.after(4000)
        client.publish(2, "q", b"4", b"5", b"6")
        made.after(4000)
        client.collect()
        assert not client.inbox, "the age must be counted for each transaction separately"
        if limits.age:
            made.after(1000)
        else:
            client.publish(2, "q", b"7")
        fails_channel(client, 2, codes.RESOURCE_ERROR, words)
        assert bodies(made) == [b"1", b"2", b"3"]
        made.after(100_000)

    def test_a_full_queue_refuses_the_whole_transaction(self) -> None:
        made, client = consuming(1, b"1")
        client.deliveries()
        queue(client, "full", {"x-max-length": 1, "x-overflow": "reject-publish"})
        client.call(2, spec.TxSelect(), spec.TxSelectOk)
        client.publish(2, "full", b"a", b"b")
        client.publish(2, "q", b"2")
        client.send(2, spec.BasicAck(1), spec.TxCommit())
        fails_channel(client, 2, codes.RESOURCE_ERROR, "queue 'full'", "nothing of it was applied")
        assert (bodies(made), bodies(made, "full")) == ([b"1"], [])

    @pytest.mark.rule("TX-9")
    def test_a_rollback_does_not_undo_get_and_declare(self) -> None:
        made, client = pair()
        queue(client)
        client.publish(1, "q", b"a")
        client.open_channel(2, mode="tx")
        assert client.get(2, "q", no_ack=True) is not None
        client.declare(2, "other")
        client.call(2, spec.TxRollback(), spec.TxRollbackOk)
        assert bodies(made) == []
        assert "other" in made.broker.directory.vhost("/").queues
