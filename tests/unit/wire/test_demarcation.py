"""A channel that works for branches: the operations that belong to them, those that do not, and the end of the
channel.
"""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.demarcation import Demarcation
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import Server, bodies, fails_channel, pair

X = Xid(7, b"g", b"b")
NAME = X.encode()


def working(**limits: int) -> tuple[Server, SimClient]:
    """Return a client whose channel 1 works for X, with a queue."""
    server, client = pair(**limits)
    client.declare(1, "q")
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(1, spec.DtxDemarcationStart(NAME), spec.DtxDemarcationStartOk)
    return server, client


def demarcation(client: SimClient) -> Demarcation:
    found = client.port.endpoint.channels[1].demarcation
    assert found is not None
    return found


@pytest.mark.rule("DTX-2")
def test_the_branch_of_a_channel_is_its_associated_one() -> None:
    _, client = working()

    def associated() -> bool:
        return client.port.endpoint.channels[1].branch is not None

    assert associated()
    assert demarcation(client).end(X, fail=False, suspend=False) is XaStatus.OK
    assert not associated()
    assert demarcation(client).start(X, join=True, resume=False) is XaStatus.OK
    assert associated()


def test_operators_see_the_workers_of_a_branch() -> None:
    server, client = working()
    (view,) = server.broker.branches.views()
    assert view.owner == f"guest from {client.port.endpoint.label}, channel 1"
    assert view.xid == X


@pytest.mark.rule("DTX-12", "DTX-14", "DTX-2")
def test_after_a_timeout_work_has_no_effect_until_the_end() -> None:
    server, client = working()
    client.open_channel(2)
    client.publish(2, "q", b"1", b"2")
    assert client.get(1, "q") is not None
    client.send(1, spec.BasicAck(1))
    client.publish(1, "q", b"dropped")
    server.after(60_001)
    assert bodies(server) == [b"1", b"2"]
    client.publish(1, "q", b"dropped as well")
    message = client.get(1, "q")
    assert message is not None
    assert message.body == b"1"
    client.send(1, spec.BasicAck(2))
    assert bodies(server) == [b"1", b"2"], "the message acknowledged in vain is ready again"
    assert client.call(1, spec.DtxDemarcationEnd(NAME), spec.DtxDemarcationEndOk).flags == XaStatus.RB_TIMEOUT
    client.publish(1, "q", b"3")
    assert bodies(server) == [b"1", b"2", b"3"]


@pytest.mark.rule("DTX-7", "DTX-14")
@pytest.mark.parametrize("how", ["close the channel", "close the connection", "lose it", "make an error"])
@pytest.mark.parametrize("suspended", [False, True])
def test_any_end_of_the_channel_undoes_its_work(how: str, suspended: bool) -> None:
    server, client = working()
    client.open_channel(2)
    client.publish(2, "q", b"1")
    assert client.get(1, "q") is not None
    client.send(1, spec.BasicAck(1))
    client.publish(1, "q", b"dropped")
    if suspended:
        client.call(1, spec.DtxDemarcationEnd(NAME, suspend=True), spec.DtxDemarcationEndOk)
    match how:
        case "close the channel":
            client.send(1, spec.ChannelClose(200, ""))
        case "close the connection":
            client.send(0, spec.ConnectionClose(200, ""))
        case "lose it":
            client.lose()
        case _:
            client.send(1, spec.QueueDeclare("none", passive=True))
    assert bodies(server) == [b"1"]
    assert not server.broker.directory.vhost("/").queue("q").unsettled
    (view,) = server.broker.branches.views()
    assert (view.state, view.workers) == ("rollback_only", 0)
    assert server.broker.coordinator.prepare(X).status is XaStatus.RB_ROLLBACK


@pytest.mark.rule("DTX-7")
def test_an_ended_branch_outlives_its_channel() -> None:
    server, client = working()
    client.publish(1, "q", b"kept")
    client.call(1, spec.DtxDemarcationEnd(NAME), spec.DtxDemarcationEndOk)
    client.lose()
    assert server.broker.coordinator.commit(X, one_phase=True).status is XaStatus.OK
    server.end_turn()
    server.run_disk()
    assert bodies(server) == [b"kept"]


@pytest.mark.rule("DTX-6", "DTX-14")
def test_unacknowledged_deliveries_stay_with_the_channel() -> None:
    server, client = working()
    client.open_channel(2)
    client.publish(2, "q", b"1", b"2")
    for _ in range(2):
        assert client.get(1, "q") is not None
    client.send(1, spec.BasicAck(2))
    client.call(1, spec.DtxDemarcationEnd(NAME), spec.DtxDemarcationEndOk)
    client.call(1, spec.DtxCoordinationRollback(NAME), spec.DtxCoordinationRollbackOk)
    assert bodies(server) == [b"2"]
    client.send(1, spec.BasicNack(1, False, True))
    assert bodies(server) == [b"1", b"2"]


@pytest.mark.rule("DTX-14")
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_rejections_belong_to_the_branch(outcome: str) -> None:
    server, client = working()
    client.declare(1, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare(1, "work", arguments=arguments)
    client.open_channel(2)
    client.publish(2, "work", b"bad", b"later")
    for _ in range(2):
        assert client.get(1, "work") is not None
    client.send(1, spec.BasicReject(1, False), spec.BasicReject(2, True))
    assert bodies(server, "work") == bodies(server, "dead") == []
    client.call(1, spec.DtxDemarcationEnd(NAME), spec.DtxDemarcationEndOk)
    if outcome == "commit":
        client.call(1, spec.DtxCoordinationCommit(NAME, True), spec.DtxCoordinationCommitOk)
        assert (bodies(server, "work"), bodies(server, "dead")) == ([b"later"], [b"bad"])
    else:
        client.call(1, spec.DtxCoordinationRollback(NAME), spec.DtxCoordinationRollbackOk)
        assert (bodies(server, "work"), bodies(server, "dead")) == ([b"bad", b"later"], [])


@pytest.mark.rule("DTX-14", "TX-13")
def test_settlements_beyond_the_limits_are_requeued_for_all_consumers() -> None:
    server, client = pair(transaction=Limits(operations=3))
    client.open_channel(2)
    for queue, contents in (("q", (b"1", b"2", b"3", b"4")), ("r", (b"5", b"6"))):
        client.declare(1, queue)
        client.publish(2, queue, *contents)
        client.send(1, spec.BasicConsume(queue))
        client.expect(1, spec.BasicConsumeOk)
        assert client.bodies() == list(contents)
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(1, spec.DtxDemarcationStart(NAME), spec.DtxDemarcationStartOk)
    client.send(1, spec.BasicAck(0, multiple=True))
    fails_channel(client, 1, 506)
    assert (bodies(server, "q"), bodies(server, "r")) == ([b"1", b"2", b"3", b"4"], [b"5", b"6"])
    assert [server.broker.directory.vhost("/").queue(name).unsettled for name in "qr"] == [0, 0]
