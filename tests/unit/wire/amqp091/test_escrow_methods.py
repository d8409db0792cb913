"""Bulk reading as a client sees it (PIPE-1)."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import bulk, codes, spec
from escrowmq.wire.amqp091.bulk import Bulk
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import fails_channel, pair, server

GROUP = "etl"


def filled(count: int = 6) -> SimClient:
    _, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", *[b"%d" % i for i in range(count)])
    return client


def hold(client: SimClient, most: int = 0, until: int = 0) -> tuple[int, int, int, int]:
    answer = client.call(1, spec.EscrowHold("q", GROUP, most, until), spec.EscrowHoldOk)
    return answer.first, answer.end, answer.count, answer.settled


def read(client: SimClient, first: int, end: int = 0, *, queue: str = "q", most_bytes: int = 0) -> tuple[int, Bulk]:
    client.send(1, spec.EscrowRead(queue, GROUP, first, end, most_bytes))
    message = client.inbox.popleft()
    assert isinstance(message.method, spec.EscrowReadOk)
    found = bulk.decode(message.body)
    assert (message.method.first, message.method.count) == (found.first, found.count)
    return message.method.next, found


def bodies(client: SimClient, first: int, end: int = 0, *, queue: str = "q") -> list[bytes]:
    return [message.body for message in read(client, first, end, queue=queue)[1].messages()]


@pytest.mark.rule("PIPE-1")
class TestHolding:
    def test_messages_are_reserved_read_and_settled(self) -> None:
        client = filled()
        assert hold(client, 4) == (1, 5, 4, 1)
        assert client.count(1, "q") == 2
        assert bodies(client, 1, 5) == bodies(client, 1) == [b"0", b"1", b"2", b"3"]
        assert bodies(client, 2, 4) == [b"1", b"2"]
        client.call(1, spec.EscrowSettle("q", GROUP, 3), spec.EscrowSettleOk)
        client.call(1, spec.EscrowSettle("q", GROUP, 3), spec.EscrowSettleOk)
        assert hold(client) == (3, 5, 0, 3)
        assert hold(client, until=6) == (3, 6, 1, 3)
        next_, found = read(client, 1)
        assert (next_, found.first, found.count) == (6, 3, 3)

    def test_a_message_has_the_properties_of_a_delivery(self) -> None:
        client = filled(1)
        hold(client, 1)
        (message,) = read(client, 1)[1].messages()
        assert (message.number, message.position, message.exchange, message.routing_key) == (1, 1, b"", b"q")
        assert (message.redelivered, message.body) == (False, b"0")

    def test_answers_wait_for_the_disk(self) -> None:
        client = filled()
        asked = (
            spec.EscrowHold("q", GROUP, 4),
            spec.EscrowHold("q", GROUP, 0, 5),
            spec.EscrowSettle("q", GROUP, 3),
            spec.EscrowSettle("q", GROUP, 3),
            spec.EscrowRelease("q", GROUP),
        )
        for method in asked:
            client.send(1, method, disk=False)
        assert not client.inbox
        client.server.run_disk()
        client.collect()
        assert [message.method.NAME for message in client.inbox] == [f"{method.NAME}-ok" for method in asked]

    def test_an_answer_may_have_many_frames(self) -> None:
        _, client = pair()
        client.declare(1, "q")
        client.publish(1, "q", *[bytes((i,)) * 100_000 for i in range(5)])
        hold(client, 5)
        next_, found = read(client, 1, most_bytes=350_000)
        assert next_ == 4
        assert [body[:1] for *_, body in found.messages()] == [b"\0", b"\1", b"\2"]
        assert bodies(client, 4) == [bytes((i,)) * 100_000 for i in (3, 4)]

    def test_a_reservation_outlives_the_connection(self) -> None:
        client = filled()
        hold(client, 4)
        client.call(1, spec.ChannelClose(), spec.ChannelCloseOk)
        other = SimClient(client.server)
        other.open_channel(1)
        assert bodies(other, 1) == [b"0", b"1", b"2", b"3"]

    def test_released_messages_are_ready_again(self) -> None:
        client = filled(2)
        hold(client, 2)
        assert client.call(1, spec.EscrowRelease("q", GROUP), spec.EscrowReleaseOk).count == 2
        client.send(1, spec.BasicGet("q", True))
        answer = client.inbox.popleft()
        assert isinstance(answer.method, spec.BasicGetOk)
        assert (answer.method.redelivered, answer.body) == (True, b"0")


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("TX-4")
def test_a_transaction_settles_when_it_commits() -> None:
    client = filled()
    hold(client, 4)
    client.call(1, spec.TxSelect(), spec.TxSelectOk)
    client.call(1, spec.EscrowSettle("q", GROUP, 3), spec.EscrowSettleOk)
    client.call(1, spec.TxRollback(), spec.TxRollbackOk)
    assert hold(client) == (1, 5, 0, 1)
    client.call(1, spec.EscrowSettle("q", GROUP, 3), spec.EscrowSettleOk)
    assert hold(client) == (1, 5, 0, 1)
    client.call(1, spec.TxCommit(), spec.TxCommitOk)
    assert hold(client) == (3, 5, 0, 3)


class TestStreams:
    def test_streams_are_read_without_a_reservation(self) -> None:
        _, client = pair()
        client.declare(1, "s", arguments={"x-queue-type": "stream"})
        client.publish(1, "s", b"a", b"b", b"c")
        assert bodies(client, 2, queue="s") == [b"b", b"c"]
        answer = client.call(1, spec.EscrowDescribe("s"), spec.EscrowDescribeOk)
        assert (answer.kind, answer.first, answer.next, answer.ready) == ("stream", 1, 4, 3)
        client.send(1, spec.EscrowHold("s", GROUP, 1))
        fails_channel(client, 1, codes.PRECONDITION_FAILED, "is a stream, which is read without holding it")

    def test_a_classic_queue_is_described(self) -> None:
        answer = filled().call(1, spec.EscrowDescribe("q"), spec.EscrowDescribeOk)
        assert (answer.kind, answer.next, answer.ready) == ("classic", 7, 6)


def test_the_partitions_of_a_topic_are_counted() -> None:
    _, client = pair()
    topic = spec.ExchangeDeclare("t", "x-partitioned", durable=True, arguments={"x-partitions": 3})
    client.call(1, topic, spec.ExchangeDeclareOk)
    counts = [client.call(1, spec.EscrowPartitions(name), spec.EscrowPartitionsOk).count for name in ("t", "none", "")]
    assert counts == [3, 0, 0]


@pytest.mark.rule("SEC-1")
def test_the_partitions_are_told_to_users_that_may_read_the_streams() -> None:
    made, client = pair()
    topic = spec.ExchangeDeclare("t", "x-partitioned", durable=True, arguments={"x-partitions": 3})
    client.call(1, topic, spec.ExchangeDeclareOk)
    made.broker.access.set_permission("guest", "/", "^$", "^$", "^t-[0-9]+$")
    assert client.call(1, spec.EscrowPartitions("t"), spec.EscrowPartitionsOk).count == 3
    made.broker.access.set_permission("guest", "/", "^$", "^$", "^other$")
    client.send(1, spec.EscrowPartitions("t"))
    fails_channel(client, 1, codes.ACCESS_REFUSED, "access to exchange 't'")


class TestRefusals:
    @pytest.mark.parametrize(
        "method",
        [
            spec.EscrowHold("q", GROUP, 1),
            spec.EscrowRead("q", GROUP, 1),
            spec.EscrowSettle("q", GROUP, 1),
            spec.EscrowRelease("q", GROUP),
            spec.EscrowDescribe("q"),
        ],
        ids=lambda method: method.NAME,
    )
    def test_permissions_and_ownership_are_checked(self, method: Method) -> None:
        made = server(users=("guest", "other"))
        client = SimClient(made)
        client.open_channel(1)
        client.send(1, method)
        fails_channel(client, 1, codes.NOT_FOUND, "no queue 'q' in vhost '/'")
        client.open_channel(2)
        client.declare(2, "q", exclusive=True)
        other = SimClient(made, user="other")
        other.open_channel(1)
        other.send(1, method)
        fails_channel(other, 1, codes.RESOURCE_LOCKED, "locked queue 'q'")
        made.broker.access.set_permission("other", "/", ".*", ".*", "")
        other.open_channel(2)
        other.send(2, method)
        fails_channel(other, 2, codes.ACCESS_REFUSED, "queue 'q' in vhost '/' refused")

    @pytest.mark.parametrize(
        ("method", "text"),
        [
            (spec.EscrowHold("q", "", 1), "the name of the group is empty"),
            (spec.EscrowSettle("q", "", 1), "the name of the group is empty"),
            (spec.EscrowRelease("q", ""), "the name of the group is empty"),
            (spec.EscrowSettle("q", GROUP, 9), "cannot settle below 9"),
            (spec.EscrowDecide(1, b"g", {}, "app", 1), "winners must have one field, bqual"),
            (spec.EscrowDecide(1, b"g", {"bqual": b"x"}, "app", 1), "winners must have one field, bqual"),
            (spec.EscrowDecide(1, b"g", {"bqual": [1]}, "app", 1), "branch qualifiers must be byte strings"),
            (spec.EscrowDecide(1, b"g", {"bqual": []}, "app", 1 << 63), "the epoch must be below"),
        ],
        ids=lambda value: value.NAME if isinstance(value, Method) else "",
    )
    def test_invalid_arguments_are_refused(self, method: Method, text: str) -> None:
        client = filled()
        client.send(1, method)
        fails_channel(client, 1, codes.PRECONDITION_FAILED, text)


def begin(client: SimClient, channel: int, bqual: bytes) -> Xid:
    """Begin a branch of a global transaction on a channel of its own."""
    xid = Xid(1, b"query:7", bqual)
    client.open_channel(channel)
    client.call(channel, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(channel, spec.DtxDemarcationStart(xid.encode()), spec.DtxDemarcationStartOk)
    return xid


def prepare(client: SimClient, channel: int, xid: Xid) -> None:
    client.call(channel, spec.DtxDemarcationEnd(xid.encode()), spec.DtxDemarcationEndOk)
    answer = client.call(channel, spec.DtxCoordinationPrepare(xid.encode()), spec.DtxCoordinationPrepareOk)
    assert answer.flags == codes.XA_OK


@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("DTX-8")
class TestDecisions:
    def test_consume_transform_produce_is_one_decision(self) -> None:
        client = filled(3)
        client.declare(1, "out")
        hold(client, 3)
        first, second, loser = (begin(client, number, name) for number, name in ((2, b"0"), (3, b"1"), (4, b"0.lost")))
        client.publish(2, "out", b"a")
        client.publish(3, "out", b"b")
        client.publish(4, "out", b"a again")
        client.call(3, spec.EscrowSettle("q", GROUP, 4), spec.EscrowSettleOk)
        for channel, xid in ((2, first), (3, second), (4, loser)):
            prepare(client, channel, xid)
        client.send(1, spec.EscrowRelease("q", GROUP))
        fails_channel(client, 1, codes.RESOURCE_LOCKED, "a prepared transaction settles")
        client.open_channel(5)
        assert not client.call(5, spec.EscrowProgress("app"), spec.EscrowProgressOk).known
        decide = spec.EscrowDecide(1, b"query:7", {"bqual": [b"0", b"1"]}, "app", 7)
        for _ in range(2):
            assert client.call(5, decide, spec.EscrowDecideOk).flags == codes.XA_OK
        answer = client.call(5, spec.EscrowProgress("app"), spec.EscrowProgressOk)
        assert (answer.known, answer.epoch) == (True, 7)
        assert client.count(5, "out") == 2
        state = client.call(5, spec.EscrowHold("q", GROUP), spec.EscrowHoldOk)
        assert (state.first, state.end, state.settled) == (4, 4, 4)

    def test_branches_and_applications_belong_to_their_virtual_host(self) -> None:
        client = filled(1)
        broker = client.server.broker
        broker.directory.add_vhost("other")
        broker.access.set_permission("guest", "other", ".*", ".*", ".*")
        xid = begin(client, 2, b"0")
        client.publish(2, "q", b"x")
        prepare(client, 2, xid)
        other = SimClient(client.server, vhost="other")
        other.open_channel(1)
        other.call(1, spec.EscrowDecide(1, b"query:7", {"bqual": []}, "app", 9), spec.EscrowDecideOk)
        other.send(1, spec.EscrowDecide(1, b"query:7", {"bqual": [b"0"]}, "app", 10))
        fails_channel(other, 1, codes.NOT_FOUND, "no branch 30 of")
        assert not client.call(1, spec.EscrowProgress("app"), spec.EscrowProgressOk).known
        client.call(1, spec.EscrowDecide(1, b"query:7", {"bqual": [b"0"]}, "app", 1), spec.EscrowDecideOk)
        assert client.count(1, "q") == 2

    def test_a_branch_that_is_not_prepared_cannot_win(self) -> None:
        client = filled()
        client.send(1, spec.EscrowDecide(1, b"query:7", {"bqual": [b"0"]}, "app", 7))
        fails_channel(client, 1, codes.NOT_FOUND, "no branch 30 of")

    def test_a_single_transaction_has_no_application(self) -> None:
        client = filled(0)
        for number, name in ((2, b"0"), (3, b"1")):
            xid = begin(client, number, name)
            client.publish(number, "q", name)
            prepare(client, number, xid)
            decide = spec.EscrowDecide(1, b"query:7", {"bqual": [name]}, "", 7)
            assert client.call(1, decide, spec.EscrowDecideOk).flags == codes.XA_OK
            assert not client.call(1, spec.EscrowProgress(""), spec.EscrowProgressOk).known
        assert client.count(1, "q") == 2


class TestListing:
    def names(self, client: SimClient, after: str = "") -> list[object]:
        found = client.call(1, spec.EscrowList(after), spec.EscrowListOk).queues["name"]
        assert isinstance(found, list)
        return list(found)

    def test_names_are_listed_in_order_after_a_given_one(self) -> None:
        client = filled(0)
        for name in ("b", "a", "z"):
            client.declare(1, name)
        assert self.names(client) == ["a", "b", "q", "z"]
        assert self.names(client, "b") == ["q", "z"]
        assert self.names(client, "z") == []

    def test_a_list_has_as_many_names_as_fit_into_a_frame(self) -> None:
        client = filled(0)
        many = sorted(f"{'n' * 200}{i:04}" for i in range(1000))
        for name in many:
            client.declare(1, name)
        found: list[object] = []
        rounds = 0
        while some := self.names(client, str(found[-1]) if found else ""):
            found += some
            rounds += 1
        assert found == [*many, "q"]
        assert rounds > 1

    def test_queues_that_the_user_cannot_read_are_not_listed(self) -> None:
        made = server(users=("guest", "other"))
        one = SimClient(made)
        one.open_channel(1)
        one.declare(1, "mine", exclusive=True)
        one.declare(1, "hidden")
        one.declare(1, "shown")
        other = SimClient(made, user="other")
        other.open_channel(1)
        made.broker.directory.record_access(made.broker.access.set_permission("other", "/", "", "", "shown|mine"))
        assert self.names(other) == ["shown"]
