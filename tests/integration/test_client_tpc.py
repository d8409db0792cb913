"""Two-phase commit as in PEP 249, against a real broker that is killed in between."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import escrowmq.client as mq
from escrowmq.admin.socket.client import ask
from escrowmq.client import Channel, Connection, Properties, Xid
from tests.broker import BrokerProcess, running_broker, wait_until

PERSISTENT = Properties(delivery_mode=2)
XID = mq.xid(7, "global", "branch")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with mq.connect(broker.url, timeout=20) as connection:
        yield connection
        if connection.is_open:
            assert connection.tpc_recover() == [], "a test has left a branch behind"


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def watcher(broker: BrokerProcess) -> Iterator[Channel]:
    """A channel of another connection, which sees what is committed."""
    with mq.connect(broker.url, timeout=20) as other:
        yield other.channel()


@pytest.fixture
def queue(watcher: Channel) -> Iterator[str]:
    name = watcher.queue_declare("", durable=True).method.queue
    yield name
    if watcher.is_open:
        watcher.queue_delete(name)


def ready(watcher: Channel, queue: str) -> int:
    return watcher.message_count(queue)


def settled(broker: BrokerProcess, queue: str, messages: int) -> None:
    def count() -> int:
        (row,) = [row for row in ask(broker.data_dir, "queue.list") if row["name"] == queue]
        return sum(int(row[column]) for column in ("ready", "unsettled", "locked"))

    wait_until(lambda: count() == messages, what=f"{messages} messages in {queue}")


def test_xids_are_tuples_of_number_and_bytes(connection: Connection) -> None:
    xid = connection.xid(1, "gtrid", b"bqual")
    assert xid == (1, b"gtrid", b"bqual")
    assert (xid.format_id, xid.gtrid, xid.bqual) == (1, b"gtrid", b"bqual")
    assert xid == mq.xid(1, b"gtrid", "bqual")


@pytest.mark.rule("DTX-2")
@pytest.mark.rule("DTX-8")
def test_prepare_and_commit(connection: Connection, channel: Channel, watcher: Channel, queue: str) -> None:
    connection.tpc_begin(XID)
    channel.publish_many("", queue, [b"%d" % i for i in range(10)], PERSISTENT)
    assert connection.tpc_prepare() is True
    assert ready(watcher, queue) == 0
    assert connection.tpc_recover() == [XID]
    connection.tpc_commit()
    assert ready(watcher, queue) == 10
    channel.basic_publish("", queue, b"outside")
    channel.basic_qos(prefetch_count=1)
    assert ready(watcher, queue) == 11


def test_commit_without_prepare_is_one_phase(
    connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    for i in range(3):
        connection.tpc_begin((1, f"global {i}", "branch"))
        channel.basic_publish("", queue, b"", PERSISTENT)
        connection.tpc_commit()
        assert ready(watcher, queue) == i + 1


@pytest.mark.rule("DTX-14")
@pytest.mark.parametrize("prepare", [False, True])
def test_rollback_drops_publishes_and_brings_deliveries_back(
    connection: Connection, channel: Channel, watcher: Channel, queue: str, prepare: bool
) -> None:
    watcher.publish_many("", queue, [b"1", b"2"], PERSISTENT)
    wait_until(lambda: ready(watcher, queue) == 2)
    connection.tpc_begin(XID)
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    channel.basic_ack(method.delivery_tag)
    channel.basic_publish("", queue, b"3")
    if prepare:
        assert connection.tpc_prepare()
    connection.tpc_rollback()
    method, _, body = watcher.basic_get(queue)
    assert method is not None
    assert (body, method.redelivered, method.message_count) == (b"1", True, 1)


def test_consumed_and_published_together(
    broker: BrokerProcess, connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    target = watcher.queue_declare("", durable=True).method.queue
    watcher.publish_many("", queue, [b"%d" % i for i in range(100)], PERSISTENT)
    consumer = channel.subscribe(queue)
    connection.tpc_begin(XID)
    batch = consumer.fetch(100, least=100)
    channel.publish_many("", target, [b"<" + body for body in batch.bodies], PERSISTENT)
    channel.ack_many(batch.tags)
    connection.tpc_prepare()
    connection.tpc_commit()
    settled(broker, queue, 0)
    settled(broker, target, 100)
    watcher.queue_delete(target)


@pytest.mark.rule("DTX-4")
def test_channels_opened_before_and_after_begin_take_part(
    connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    before = connection.channel()
    connection.tpc_begin(XID)
    after = connection.channel()
    for part in (channel, before, after):
        part.basic_publish("", queue, b"", PERSISTENT)
    before.close()  # its work stays in the branch
    assert ready(watcher, queue) == 0
    connection.tpc_prepare()
    connection.tpc_commit()
    assert ready(watcher, queue) == 3


@pytest.mark.rule("DTX-8")
def test_a_branch_without_work_has_nothing_to_commit(connection: Connection) -> None:
    connection.tpc_begin(XID)
    assert connection.tpc_prepare() is False
    assert connection.tpc_recover() == []
    connection.tpc_commit()
    connection.tpc_begin(XID)
    assert connection.tpc_prepare() is False
    connection.tpc_rollback()


class Misuse(NamedTuple):
    """Calls that bring the connection into a state, and the call that is refused in it."""

    before: tuple[str, ...]
    call: str


MISUSE = [
    Misuse((), "tpc_prepare()"),
    Misuse((), "tpc_commit()"),
    Misuse((), "tpc_rollback()"),
    Misuse(("tpc_begin(XID)",), "tpc_begin(XID)"),
    Misuse(("tpc_begin(XID)",), "commit()"),
    Misuse(("tpc_begin(XID)",), "rollback()"),
    Misuse(("tpc_begin(XID)",), "tpc_commit(XID)"),
    Misuse(("tpc_begin(XID)",), "tpc_rollback(XID)"),
    Misuse(("tpc_begin(XID)", "tpc_prepare()"), "tpc_prepare()"),
    Misuse(("tpc_begin(XID)", "tpc_prepare()"), "tpc_begin(XID)"),
    Misuse(("tpc_begin(XID)", "tpc_prepare()"), "commit()"),
    Misuse(("tpc_begin(XID)", "tpc_prepare()"), "tpc_commit(XID)"),
]


@pytest.mark.parametrize("case", MISUSE, ids=lambda case: " ".join([*case.before, case.call]))
def test_misuse_is_a_programming_error_and_changes_nothing(
    connection: Connection, channel: Channel, watcher: Channel, queue: str, case: Misuse
) -> None:
    def call(text: str) -> None:
        eval(f"connection.{text}", {"connection": connection, "XID": XID})

    for text in case.before:
        call(text)
        if text == "tpc_begin(XID)":
            channel.basic_publish("", queue, b"", PERSISTENT)
    with pytest.raises(mq.ProgrammingError):
        call(case.call)
    if case.before:
        connection.tpc_commit()
        assert ready(watcher, queue) == 1


def test_nothing_can_be_published_or_settled_while_prepared(
    connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    watcher.publish_many("", queue, [b"", b""])
    wait_until(lambda: ready(watcher, queue) == 2)
    connection.tpc_begin(XID)
    channel.basic_get(queue)
    channel.basic_get(queue)
    channel.basic_ack(1)
    connection.tpc_prepare()
    for refused in (
        lambda: channel.basic_publish("", queue, b""),
        lambda: channel.publish_many("", queue, [b""]),
        lambda: channel.basic_ack(2),
        lambda: channel.ack_many([2]),
        lambda: channel.basic_nack(2),
        lambda: channel.basic_reject(2),
    ):
        with pytest.raises(mq.ProgrammingError, match="not possible after tpc_prepare"):
            refused()
    connection.tpc_commit()
    channel.basic_ack(2)


@pytest.mark.rule("DTX-3")
def test_an_xid_in_use_is_refused_and_costs_no_channel(
    broker: BrokerProcess, connection: Connection, channel: Channel
) -> None:
    with mq.connect(broker.url) as other:
        other.tpc_begin(XID)
        with pytest.raises(mq.ProgrammingError) as caught:
            connection.tpc_begin(XID)
        assert isinstance(caught.value, mq.NotAllowed)
        other.tpc_rollback()
    assert channel.is_open
    connection.tpc_begin(XID)
    connection.tpc_rollback()


@pytest.mark.parametrize("mode", ["tx", "confirm"])
def test_channels_of_another_mode_are_in_no_branch(connection: Connection, channel: Channel, mode: str) -> None:
    if mode == "tx":
        channel.tx_select()
    else:
        channel.confirm_delivery()
    with pytest.raises(mq.ProgrammingError, match=f"is in {mode} mode"):
        connection.tpc_begin(XID)
    assert channel.is_open
    channel.close()
    connection.tpc_begin(XID)
    connection.tpc_rollback()


@pytest.mark.rule("DTX-13")
@pytest.mark.parametrize("call", ["tpc_commit", "tpc_rollback", "tpc_forget"])
def test_an_unknown_xid(connection: Connection, channel: Channel, call: str) -> None:
    with pytest.raises(mq.ProgrammingError) as caught:
        getattr(connection, call)((7, "nobody's", ""))
    assert isinstance(caught.value, mq.NotFound)
    assert channel.is_open


@pytest.mark.parametrize("xid", [(1, "x" * 65, ""), (-1, "x", ""), (1, "", ""), (1, "x"), None, "nonsense", (1, 2, 3)])
def test_what_is_no_xid(connection: Connection, xid: object) -> None:
    with pytest.raises(mq.ProgrammingError):
        connection.tpc_begin(xid)


def test_a_failed_channel_rolls_its_branch_back(
    connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    other = connection.channel()
    connection.tpc_begin(XID)
    other.basic_publish("", queue, b"", PERSISTENT)
    channel.basic_publish("no such exchange", "", b"")
    with pytest.raises(mq.RolledBack, match="rolled back") as caught:
        connection.tpc_prepare()
    assert (caught.value.xid, caught.value.timed_out) == (XID, False)
    with pytest.raises(mq.ProgrammingError, match="was rolled back"):
        connection.tpc_commit()
    connection.tpc_rollback()
    assert channel.is_closed
    assert ready(watcher, queue) == 0
    connection.tpc_begin(XID)
    other.basic_publish("", queue, b"", PERSISTENT)
    connection.tpc_commit()
    assert ready(watcher, queue) == 1


def test_a_failed_channel_rolls_back_a_one_phase_commit(connection: Connection, channel: Channel) -> None:
    connection.tpc_begin(XID)
    channel.basic_publish("no such exchange", "", b"")
    with pytest.raises(mq.RolledBack):
        connection.tpc_commit()
    connection.tpc_begin(XID)
    connection.tpc_rollback()


@pytest.mark.rule("DTX-12")
def test_a_branch_that_is_open_too_long(
    broker: BrokerProcess, connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    connection.tpc_begin(XID, transaction_timeout=1)
    channel.basic_publish("", queue, b"", PERSISTENT)
    channel.basic_qos(prefetch_count=1)

    def state() -> list[str]:
        return [row["state"] for row in ask(broker.data_dir, "tx.list")]

    wait_until(lambda: state() != ["active"], what="the end of the branch")
    with pytest.raises(mq.RolledBack, match="because its timeout expired") as caught:
        connection.tpc_prepare()
    assert caught.value.timed_out
    connection.tpc_rollback()
    assert ready(watcher, queue) == 0


@pytest.mark.rule("DTX-7")
def test_a_lost_connection_rolls_back_an_unprepared_branch(broker: BrokerProcess, watcher: Channel, queue: str) -> None:
    lost = mq.connect(broker.url)
    channel = lost.channel()
    lost.tpc_begin(XID)
    channel.basic_publish("", queue, b"", PERSISTENT)
    lost._transport.close()
    with mq.connect(broker.url) as other:
        wait_until(lambda: [row["state"] for row in ask(broker.data_dir, "tx.list")] == ["rollback_only"])
        with pytest.raises(mq.RolledBack):
            other.tpc_commit(XID)
        with pytest.raises(mq.NotFound):  # the client has received the outcome, so the broker has forgotten the branch
            other.tpc_rollback(XID)
    assert ready(watcher, queue) == 0


def test_closing_rolls_back_and_frees_the_xid(broker: BrokerProcess, watcher: Channel, queue: str) -> None:
    for _ in range(2):
        with mq.connect(broker.url) as closed:
            channel = closed.channel()
            closed.tpc_begin(XID)
            channel.basic_publish("", queue, b"", PERSISTENT)
    assert ready(watcher, queue) == 0


@pytest.mark.rule("TX-11")
def test_mandatory_messages_without_a_queue_come_back_with_the_commit(
    connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    connection.tpc_begin(XID)
    channel.basic_publish("", queue, b"comes back", mandatory=True)
    connection.tpc_prepare()
    watcher.queue_delete(queue)
    connection.tpc_commit()
    (returned,) = connection.take_returned()
    assert (returned.body, returned.method.routing_key) == (b"comes back", queue)
    assert connection.take_returned() == []


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize(
    ("forced", "asked", "outcome"),
    [
        ("commit", "commit", "committed"),
        ("commit", "rollback", "committed"),
        ("rollback", "commit", "rolled back"),
        ("rollback", "rollback", "rolled back"),
    ],
)
def test_a_heuristic_outcome_is_named_until_it_is_forgotten(
    broker: BrokerProcess,
    connection: Connection,
    channel: Channel,
    watcher: Channel,
    queue: str,
    forced: str,
    asked: str,
    outcome: str,
) -> None:
    connection.tpc_begin(XID)
    channel.basic_publish("", queue, b"", PERSISTENT)
    connection.tpc_prepare()
    ask(broker.data_dir, f"tx.{forced}", xid=str(XID), why="a test")
    with pytest.raises(mq.HeuristicOutcome, match=outcome) as caught:
        connection.tpc_commit() if asked == "commit" else connection.tpc_rollback()
    assert isinstance(caught.value, mq.IntegrityError)
    assert caught.value.as_asked is (forced == asked)
    assert connection.tpc_recover() == [XID]
    with pytest.raises(mq.HeuristicOutcome):
        connection.tpc_commit(XID)
    connection.tpc_forget(XID)
    assert connection.tpc_recover() == []
    assert ready(watcher, queue) == (forced == "commit")


@pytest.mark.rule("DTX-10")
def test_many_branches_are_recovered_by_another_connection(
    broker: BrokerProcess, connection: Connection, channel: Channel, watcher: Channel, queue: str
) -> None:
    xids = [mq.xid(1, b"%060d" % i, b"\xff" * 64) for i in range(1200)]  # more than fit into one frame
    for xid in xids:
        connection.tpc_begin(xid)
        channel.basic_publish("", queue, b"", PERSISTENT)
        connection.tpc_prepare()
        connection._tpc._end()  # simulates a lost connection without opening a thousand of them
    with mq.connect(broker.url) as other:
        assert sorted(other.tpc_recover()) == xids
        for number, xid in enumerate(xids):
            other.tpc_commit(xid) if number % 3 else other.tpc_rollback(xid)
        assert other.tpc_recover() == []
    assert ready(watcher, queue) == 800


@pytest.mark.rule("DTX-8")
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prepared_branch_survives_kill_9(tmp_path: Path, outcome: str) -> None:
    with running_broker(tmp_path) as broker:
        connection = mq.connect(broker.url)
        channel = connection.channel()
        channel.queue_declare("in", durable=True)
        channel.queue_declare("out", durable=True)
        channel.basic_publish("", "in", b"order", PERSISTENT)
        connection.tpc_begin(XID)
        method = None
        while method is None:
            method, _, _ = channel.basic_get("in")
        channel.basic_ack(method.delivery_tag)
        channel.publish_many("", "out", [b"%d" % i for i in range(1000)], PERSISTENT)
        connection.tpc_prepare()
        broker.kill()
        with pytest.raises(mq.ConnectionClosed):
            connection.tpc_commit()
        connection.close()
        broker.start()
        with mq.connect(broker.url) as again:
            watcher = again.channel()
            assert (watcher.message_count("in"), watcher.message_count("out")) == (0, 0)
            (xid,) = again.tpc_recover()
            assert xid == XID
            again.tpc_commit(xid) if outcome == "commit" else again.tpc_rollback(xid)
            assert again.tpc_recover() == []
        broker.kill()
        broker.start()
        with mq.connect(broker.url) as again:
            watcher = again.channel()
            counts = (watcher.message_count("in"), watcher.message_count("out"))
            assert counts == ((0, 1000) if outcome == "commit" else (1, 0))
            assert again.tpc_recover() == []


def test_an_unprepared_branch_does_not_survive_kill_9(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = mq.connect(broker.url)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        connection.tpc_begin(XID)
        channel.basic_publish("", "q", b"", PERSISTENT)
        broker.kill()
        connection.close()
        broker.start()
        with mq.connect(broker.url) as again:
            assert again.tpc_recover() == []
            assert again.channel().message_count("q") == 0
            again.tpc_begin(Xid(*XID))
            again.tpc_rollback()


def test_a_broker_without_distributed_transactions_is_told(connection: Connection) -> None:
    connection.server_properties = {"product": "RabbitMQ"}
    for call in (lambda: connection.tpc_begin(XID), connection.tpc_recover):
        with pytest.raises(mq.NotSupportedError, match="RabbitMQ does not support distributed transactions"):
            call()
    assert connection.is_open
    connection.server_properties = {}


@pytest.mark.rule("DTX-13")
@pytest.mark.parametrize("then", [Connection.tpc_commit, Connection.tpc_rollback])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_late_commit_is_not_taken_for_a_rollback(
    broker: BrokerProcess,
    connection: Connection,
    channel: Channel,
    queue: str,
    then: Callable[[Connection], None],
    prepared: bool,
) -> None:
    connection.tpc_begin(XID)
    channel.basic_publish("", queue, b"late", PERSISTENT)
    if prepared:
        connection.tpc_prepare()
    broker.signal(signal.SIGSTOP)
    try:
        with pytest.raises(mq.Timeout):
            connection.tpc_commit(timeout=0.2)
    finally:
        broker.signal(signal.SIGCONT)
    with pytest.raises(mq.NotFound):
        then(connection)
    assert channel.message_count(queue) == 1
    connection.tpc_begin(XID)
    channel.basic_publish("", queue, b"next", PERSISTENT)
    connection.tpc_commit()
    assert channel.message_count(queue) == 2


@pytest.mark.parametrize("seconds", [-1, 1 << 32])
def test_a_timeout_out_of_range_begins_nothing(connection: Connection, seconds: int) -> None:
    with pytest.raises(mq.ProgrammingError, match="timeout"):
        connection.tpc_begin(XID, transaction_timeout=seconds)
    connection.tpc_begin(XID)
    connection.tpc_rollback()


@pytest.mark.parametrize("select", [Channel.tx_select, Channel.confirm_delivery])
def test_no_other_mode_for_a_channel_of_a_branch(
    connection: Connection, channel: Channel, queue: str, select: Callable[[Channel], object]
) -> None:
    connection.tpc_begin(XID)
    channel.basic_publish("", queue, b"kept", PERSISTENT)
    with pytest.raises(mq.ProgrammingError, match="branch"):
        select(channel)
    assert connection.tpc_prepare()
    connection.tpc_commit()
    assert channel.message_count(queue) == 1
