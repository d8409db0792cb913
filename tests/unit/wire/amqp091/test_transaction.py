"""Transactions of channels, large ones in pieces."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import Server, bodies, message, pair, queue

HEADERS = [Properties(delivery_mode=2, priority=priority).encode() for priority in (0, 1)]


class TestLargeTransactions:
    """A client's large transaction is committed and rolled back in pieces, with turns for other clients in between."""

    COUNT = 3000

    def transaction(self, *, settling: bool = False) -> tuple[Server, SimClient, SimClient]:
        """Return a client with an open transaction of messages that differ, or of settlements; and another client."""
        made, client = pair()
        queue(client)
        client.open_channel(2, mode="tx")
        if settling:
            client.publish(1, "q", *[b"%d" % i for i in range(self.COUNT)])
            client.call(2, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
            client.deliveries()
            client.send(2, *[spec.BasicAck(i) for i in range(1, self.COUNT + 1)])
        else:
            for i in range(self.COUNT):
                client.publish(2, "q", b"%d" % i, header=HEADERS[i % 2], disk=False)
        other = SimClient(made)
        other.open_channel(1)
        queue(other, "other")
        return made, client, other

    def step(self, made: Server, client: SimClient) -> bool:
        """Do one turn of the client's request. Return whether it is finished."""
        made.broker.engine.turn.end()
        client.port.endpoint.receive(b"")
        return not client.port.endpoint._reader._busy

    @pytest.mark.rule("FAIR-1")
    @pytest.mark.rule("TX-8")
    @pytest.mark.parametrize("method", [spec.TxCommit(), spec.TxRollback()])
    @pytest.mark.parametrize("settling", [False, True])
    def test_others_are_served_in_between(self, method: Method, settling: bool) -> None:
        made, client, other = self.transaction(settling=settling)
        made.broker.engine.requests.turn = 10
        made.broker.engine.requests.renew()
        client.port.endpoint.receive(method_frame(2, method) + method_frame(2, spec.BasicQos(0, 7)))
        turns = 1
        while not self.step(made, client):
            other.port.endpoint.receive(b"".join(message(1, b"%d" % turns, key="other")))
            turns += 1
            assert bodies(made, "other") == [b"%d" % i for i in range(1, turns)]
        assert turns >= 2
        made.end_turn()
        made.run_disk()
        client.expect(2, spec.TxCommitOk if isinstance(method, spec.TxCommit) else spec.TxRollbackOk)
        client.expect(2, spec.BasicQosOk)
        committed = isinstance(method, spec.TxCommit) and not settling
        assert bodies(made) == ([b"%d" % i for i in range(self.COUNT)] if committed else [])
        client.call(2, spec.TxCommit(), spec.TxCommitOk)
        client.send(2, spec.ChannelClose(200, "", 0, 0))
        while made.broker.engine.turn.unfinished:
            made.end_turn()
        left = [b"%d" % i for i in range(self.COUNT)]
        rolled_back = isinstance(method, spec.TxRollback)
        assert bodies(made) == (left if rolled_back is settling else [])

    @pytest.mark.rule("TX-5")
    @pytest.mark.rule("TX-10")
    @pytest.mark.parametrize("method", [spec.TxCommit(), spec.TxRollback()])
    @pytest.mark.parametrize("settling", [False, True])
    @pytest.mark.parametrize("turns", [1, 2, 5, 50, 500, 900, 1000, 1200])
    def test_a_client_that_goes_leaves_all_of_it_or_nothing(self, method: Method, settling: bool, turns: int) -> None:
        made, client, other = self.transaction(settling=settling)
        made.broker.engine.requests.turn = 10
        made.broker.engine.requests.renew()
        client.port.endpoint.receive(method_frame(2, method))
        for _ in range(turns):
            if self.step(made, client):
                break
        client.lose()
        while made.broker.engine.turn.unfinished:
            made.end_turn()
        made.run_disk()
        found, whole = bodies(made), [b"%d" % i for i in range(self.COUNT)]
        assert found in ([], whole)
        if isinstance(method, spec.TxRollback):
            assert found == (whole if settling else [])
        assert bodies(made) == found
        assert not made.broker.directory.vhost("/").queue("q").unsettled
        made.tidy()
        assert sum(segment.live for segment in made.journal._table) == len(found)
        other.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
