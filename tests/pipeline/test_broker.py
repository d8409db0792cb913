"""The audit of a real broker that used all features, and was killed in between, reports every outcome correctly."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq.client as mq
from escrowmq.client import Channel, Connection, Properties, Xid
from escrowmq.client.escrow import Escrow, Settle
from escrowmq.pipeline.audit import audit
from escrowmq.pipeline.options import Options
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.pipeline.direct import Audited, audited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = """
[memory]
queue_resident_bytes = "64KiB"
[journal]
segment_bytes = "1MiB"
snapshot_bytes = "1MiB"
detail = "deliveries"
retain_bytes = "{retain}"
"""
DURABLE = Properties(delivery_mode=2)
PHASES = 3
BULK = 3000
QUEUES: dict[str, dict[str, str | int]] = {
    "plain": {},
    "moved": {},
    "withheld": {},
    "held": {},
    "purged": {},
    "bulk": {},
    "dead": {},
    "source": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "short": {"x-max-length": 2},
    "ranked": {"x-max-priority": 5},
}


def publish(channel: Channel, queue: str, *bodies: bytes, properties: Properties = DURABLE) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, properties)


def take(channel: Channel, queue: str) -> tuple[int, bytes]:
    """Get the next message. Returns its delivery tag and body."""
    method, _, body = channel.basic_get(queue)
    assert method is not None, f"{queue} is empty"
    assert body is not None
    return method.delivery_tag, body


def xid(phase: int, name: str) -> Xid:
    return Xid(1, name.encode(), b"%d" % phase)


class Phase:
    """The work between two kills. Each phase publishes the same number of messages to each queue."""

    def __init__(self, number: int, broker: BrokerProcess) -> None:
        self.number = number
        self.broker = broker

    def run(self) -> None:
        with mq.connect(self.broker.url, timeout=20) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            publish(channel, "plain", b"1", b"2", b"3", b"4")
            self.requeue(channel)
            self.transactions(connection)
            self.dead_letters(channel)
            self.drops_and_priorities(channel)
            self.bulk(channel)
            self.holds(connection, channel)
            self.branches()

    def requeue(self, channel: Channel) -> None:
        """Requeue the first message of `plain` twice, then accept it."""
        for _ in range(2):
            tag, body = take(channel, "plain")
            assert body == b"1"
            channel.basic_nack(tag, requeue=True)
        channel.basic_ack(take(channel, "plain")[0])

    def transactions(self, connection: Connection) -> None:
        """Move the second message of `plain` in a transaction, and roll another transaction back."""
        channel = connection.channel()
        channel.tx_select()
        channel.basic_ack(take(channel, "plain")[0])
        publish(channel, "moved", b"2")
        channel.tx_commit()
        publish(channel, "moved", b"never")
        channel.tx_rollback()
        channel.close()

    def dead_letters(self, channel: Channel) -> None:
        """Let one message be rejected and one expire, so that both are dead-lettered to `dead`."""
        publish(channel, "source", b"rejected")
        channel.basic_reject(take(channel, "source")[0], requeue=False)
        publish(channel, "source", b"expires", properties=Properties(delivery_mode=2, expiration="1"))
        wait_until(lambda: channel.message_count("dead") == 2 * (self.number + 1), what="the dead letters")

    def drops_and_priorities(self, channel: Channel) -> None:
        publish(channel, "short", b"1", b"2", b"3")
        for priority in (1, 5, 3):
            publish(channel, "ranked", b"%d" % priority, properties=Properties(delivery_mode=2, priority=priority))
        for expected in (b"5", b"3", b"1"):
            tag, body = take(channel, "ranked")
            assert body == expected
            channel.basic_ack(tag)
        publish(channel, "purged", b"1", b"2")
        assert channel.queue_purge("purged").method.message_count == 2
        channel.queue_declare("gone", durable=True)
        publish(channel, "gone", b"1", b"2")
        channel.queue_delete("gone")

    def bulk(self, channel: Channel) -> None:
        """Publish and settle many messages but keep a few, so that segments can be compacted."""
        channel.publish_many("", "bulk", [b"x" * 1000] * BULK, b"\x10\x00\x02")
        tags = [take(channel, "bulk")[0] for _ in range(BULK)]
        channel.ack_many(tag for i, tag in enumerate(tags) if i % 100)
        channel.basic_nack(0, multiple=True, requeue=True)

    def holds(self, connection: Connection, channel: Channel) -> None:
        """Reserve ten messages for a group, settle five with a decision that also publishes one, release the rest."""
        publish(channel, "held", *[b"%d" % i for i in range(10)])
        escrow = Escrow(connection)
        group = f"group {self.number}"
        held = escrow.hold("held", group, 1000)
        assert (held.first, held.added) == (1, 10 + 5 * self.number)
        part, settle = xid(self.number, "decided"), Xid(1, b"decided", b"settle%d" % self.number)
        publish(escrow.start(part, 60), "moved", b"by decision")
        escrow.end(part)
        assert escrow.prepare(part)
        assert escrow.enlist(settle, [Settle("held", group, held.first + 5)], 60)
        assert escrow.prepare(settle)
        escrow.decide(1, b"decided", [part.bqual, settle.bqual], "application", self.number)
        escrow.release("held", group)

    def branches(self) -> None:
        """Move the third message of `plain` by two-phase commit; lock the fourth in a branch in doubt at the kill."""
        for name in ("committed", "rolled back", "forced", "in doubt"):
            with mq.connect(self.broker.url, timeout=20) as connection:
                connection.tpc_begin(xid(self.number, name), transaction_timeout=600)
                channel = connection.channel()
                if name in ("committed", "in doubt"):
                    channel.basic_ack(take(channel, "plain")[0])
                publish(channel, "withheld", name.encode())
                assert connection.tpc_prepare()
                if name == "committed":
                    connection.tpc_commit()
                elif name == "rolled back":
                    connection.tpc_rollback()

    def after_the_kill(self) -> None:
        """Let an operator and the transaction manager decide, and compact the journal."""
        self.command("tx", "rollback", str(xid(self.number, "forced")), "--reason", "a test", "--yes")
        with mq.connect(self.broker.url, timeout=20) as connection:
            connection.tpc_commit(xid(self.number, "in doubt"))
            connection.tpc_forget(xid(self.number, "forced"))
        self.command("journal", "snapshot")
        self.command("journal", "compact")

    def command(self, *words: str) -> None:
        command = [sys.executable, "-m", "escrowmq", *words, "--data-dir", str(self.broker.data_dir)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


OPEN = {
    "moved": 2 * PHASES,
    "withheld": 2 * PHASES - 1,
    "held": 5 * PHASES,
    "dead": 2 * PHASES,
    "short": 2,
    "bulk": 30 * PHASES,
    "plain": 1,
}
GONE = {
    "plain": ["accepted"] * 4,
    "held": ["accepted"] * 5,
    "source": ["rejected", "expired"],
    "ranked": ["accepted"] * 3,
    "purged": ["purged"] * 2,
    "gone": ["queue deleted"] * 2,
    "bulk": ["accepted"] * (BULK - 30),
}


def check_messages(found: Audited) -> None:
    """Check that every message has the right outcome and history."""
    ended: dict[str, Counter[str]] = {}
    for row in found.messages:
        if row["outcome"] is not None:
            ended.setdefault(row["queue"], Counter())[row["outcome"]] += 1
    expected = {queue: Counter(outcomes * PHASES) for queue, outcomes in GONE.items()}
    expected["plain"]["accepted"] -= 1  # the last message is locked by a branch in doubt
    assert ended == {**expected, "short": Counter(dropped=3 * PHASES - 2)}
    rows = {(row["queue"], row["position"]): row for row in found.messages}
    for first in range(1, 4 * PHASES, 4):
        requeued, moved, branched, doubted = (rows["plain", first + i] for i in range(4))
        assert (requeued["deliveries"], requeued["redeliveries"]) == (3, 2)
        assert requeued["published_at"] is not None
        assert (requeued["committed_at"], requeued["settle_branch"]) == (None, None)
        assert requeued["confirmed_at"] < requeued["settled_at"]
        for row, to in ((moved, "moved"), (branched, "withheld"), (doubted, "withheld")):
            if row["outcome"] is None:
                continue
            (came,) = [each for each in rows.values() if each["publish_branch"] == row["settle_branch"]]
            assert came["queue"] == to
            assert came["committed_at"] == came["confirmed_at"] == row["settled_at"]


def check_open(found: Audited) -> None:
    """Check the messages that the audit reports as still in their queues."""
    assert Counter(row["queue"] for row in found.messages if row["outcome"] is None) == OPEN


def check_branches(found: Audited) -> None:
    outcomes = {row["xid"]: row["outcome"] for row in found.branches if row["kind"] == "distributed"}
    for number in range(PHASES):
        expected = {
            "committed": "committed",
            "rolled back": "rolled back",
            "forced": "heuristically rolled back" if number < PHASES - 1 else "prepared",
            "in doubt": "committed" if number < PHASES - 1 else "prepared",
            "decided": "committed",
        }
        assert {name: outcomes[str(xid(number, name))] for name in expected} == expected
    assert len([row for row in found.branches if row["kind"] == "transaction"]) == PHASES


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("retain", ["1GiB", "0"], ids=["all history", "gaps"])
def test_a_broker_that_used_all_features_and_was_killed_is_clean(
    retain: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = tmp_path / "escrowmq.toml"
    config.write_text(CONFIG.format(retain=retain), encoding="utf-8")
    with running_broker(tmp_path, "--config", str(config)) as broker:
        with mq.connect(broker.url) as connection:
            for name, arguments in QUEUES.items():
                connection.channel().queue_declare(name, durable=True, arguments=arguments)
        for number in range(PHASES):
            phase = Phase(number, broker)
            phase.run()
            if number == PHASES - 1:
                assert broker.terminate() == 0
            else:
                broker.kill()
                assert audited(broker.data_dir).wrong == []
                broker.start()
                phase.after_the_kill()
    found = audited(broker.data_dir)
    assert found.wrong == []
    if retain == "0":
        assert found.plan.start > 0, "compaction deleted no segment"
        return
    check_messages(found)
    check_open(found)
    check_branches(found)
    spark: SparkSession = request.getfixturevalue("spark")
    verdict = audit(broker.data_dir, tmp_path / "out", spark=spark, options=Options(routing=1.0))
    assert (verdict.clean, verdict.messages, verdict.undecided) == (True, len(found.messages), 2)
