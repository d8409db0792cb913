"""Branches in doubt on the real process: killed, restarted, decided by a transaction manager or by an operator."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import frames, spec
from escrowmq.wire.amqp091.method import Method
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.harness.client import PERSISTENT
from tests.harness.frames import FrameReader, Message, publish_frames

M = TypeVar("M", bound=Method)
X = Xid(1, b"order-7", b"mq")
NAME = str(X)
TIMEOUT = 20.0


class WireClient:
    """A blocking client over a socket, with channel 1 open."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._inbox: list[Message] = []
        response = b"\0guest\0guest"
        sock.sendall(frames.PROTOCOL_HEADER)
        start = self.expect(spec.ConnectionStart)
        self.capabilities: Any = start.server_properties["capabilities"]
        self.send(0, spec.ConnectionStartOk({}, "PLAIN", response, "en_US"))
        self.expect(spec.ConnectionTune)
        self.send(0, spec.ConnectionTuneOk(0, 0, 0), spec.ConnectionOpen("/"))
        self.expect(spec.ConnectionOpenOk)
        self.call(spec.ChannelOpen(), spec.ChannelOpenOk)

    def send(self, channel: int, *methods: Method) -> None:
        self._sock.sendall(b"".join(frames.method_frame(channel, method) for method in methods))

    def next(self) -> Message:
        while not self._inbox:
            data = self._sock.recv(65536)
            assert data, "the broker has closed the connection"
            self._inbox += self._reader.feed(data)
        return self._inbox.pop(0)

    def expect(self, kind: type[M]) -> M:
        method = self.next().method
        assert isinstance(method, kind), method
        return method

    def call(self, method: Method, answer: type[M]) -> M:
        self.send(1, method)
        return self.expect(answer)

    def publish(self, queue: str, body: bytes) -> None:
        self._sock.sendall(publish_frames(1, spec.BasicPublish("", queue), PERSISTENT, body))

    def get(self, queue: str) -> bytes | None:
        """Return the body of the next message, acknowledged at once."""
        self.send(1, spec.BasicGet(queue, True))
        message = self.next()
        return message.body if isinstance(message.method, spec.BasicGetOk) else None

    def recover(self) -> list[Xid]:
        answer = self.call(spec.DtxCoordinationRecover(True, 1), spec.DtxCoordinationRecoverOk)
        found: Any = answer.xids["xids"]
        return [Xid.decode(name.encode() if isinstance(name, str) else name) for name in found]


@contextmanager
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT) as sock:
        yield WireClient(sock)


def prepare(broker: BrokerProcess) -> None:
    """Make a branch that takes an order from `in` and publishes a bill to `out`; its worker disconnects."""
    with client(broker) as worker:
        assert worker.capabilities["dtx"] is True
        for queue in ("in", "out"):
            worker.call(spec.QueueDeclare(queue, durable=True), spec.QueueDeclareOk)
        worker.publish("in", b"order")
        worker.publish("in", b"next order")
        worker.call(spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        worker.call(spec.DtxDemarcationStart(X.encode()), spec.DtxDemarcationStartOk)
        worker.send(1, spec.BasicGet("in"))
        assert worker.next().body == b"order"
        worker.send(1, spec.BasicAck(1))
        worker.publish("out", b"bill")
        worker.call(spec.DtxDemarcationEnd(X.encode()), spec.DtxDemarcationEndOk)
        answer = worker.call(spec.DtxCoordinationPrepare(X.encode()), spec.DtxCoordinationPrepareOk)
        assert answer.flags == XaStatus.OK


def escrowmq(broker: BrokerProcess, *args: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", *args, "--data-dir", str(broker.data_dir)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr.strip() if code else done.stdout


def as_json(broker: BrokerProcess, *args: str) -> Any:
    return json.loads(escrowmq(broker, *args, "--json"))


@pytest.mark.rule("DTX-8", "DTX-9", "DTX-10", "DTX-14")
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prepared_branch_survives_kill_and_so_does_its_outcome(tmp_path: Path, outcome: str) -> None:
    with running_broker(tmp_path) as broker:
        prepare(broker)
        broker.kill()
        broker.start()
        with client(broker) as manager:
            assert manager.recover() == [X]
            assert manager.get("out") is None
            if outcome == "commit":
                manager.call(spec.DtxCoordinationCommit(X.encode()), spec.DtxCoordinationCommitOk)
            else:
                manager.call(spec.DtxCoordinationRollback(X.encode()), spec.DtxCoordinationRollbackOk)
        broker.kill()
        broker.start()
        with client(broker) as reader:
            assert reader.recover() == []
            orders = [reader.get("in"), reader.get("in"), reader.get("in")]
            bill = reader.get("out")
        if outcome == "commit":
            assert (orders, bill) == ([b"next order", None, None], b"bill")
        else:
            assert (orders, bill) == ([b"order", b"next order", None], None)


@pytest.mark.rule("DTX-11")
def test_an_operator_finds_and_decides_branches_in_doubt(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        prepare(broker)
        broker.kill()
        broker.start()
        assert "1 transaction branch is in doubt" in broker.log()
        (branch,) = as_json(broker, "tx", "list", "--in-doubt", "--queue", "out")
        assert (branch["xid"], branch["gtrid"], branch["state"]) == (NAME, "order-7", "prepared")
        assert branch["owner"].startswith("guest from 127.0.0.1:")
        assert [(tally["queue"], tally["messages"]) for tally in branch["settled"]] == [("in", 1)]
        assert [(tally["queue"], tally["messages"]) for tally in branch["published"]] == [("out", 1)]
        assert as_json(broker, "tx", "list", "--state", "active") == []
        for age in ("100000", "5m", "1h"):
            assert as_json(broker, "tx", "list", "--older-than", age) == []
        assert as_json(broker, "tx", "list", "--queue", "another") == []
        assert [each["xid"] for each in as_json(broker, "tx", "list", "--vhost", "/")] == [NAME]
        assert as_json(broker, "tx", "show", NAME)["xid"] == NAME
        queues = {queue["name"]: (queue["locked"], queue["withheld"]) for queue in as_json(broker, "queues")}
        assert queues == {"in": (1, 0), "out": (0, 1)}
        assert as_json(broker, "status")["transactions"]["in_doubt"] == 1
        assert "1 in doubt" in escrowmq(broker, "status")
        assert NAME in escrowmq(broker, "tx", "list")
        assert "1 of queue 'in' in vhost '/'" in escrowmq(broker, "tx", "show", NAME)

        assert "Forget it" not in escrowmq(
            broker, "tx", "forget", NAME, "--reason", "a test", stdin="y\n", code=1
        )  # refused, not asked
        refused = escrowmq(broker, "tx", "commit", NAME, "--reason", "a test", stdin="n\n", code=1)
        assert "would take 1 of queue 'in' in vhost '/'" in refused
        assert refused.endswith("escrowmq: nothing was changed")
        assert escrowmq(broker, "tx", "commit", NAME, "--reason", "a test", "--yes") == f"{NAME}: committed\n"
        assert f"warning admin: an operator has committed branch {NAME}" in broker.log()
        assert f"info admin: tx.commit xid='{NAME}'" in broker.log()
        broker.kill()
        broker.start()
        with client(broker) as manager:
            assert manager.get("out") == b"bill"
            assert manager.recover() == [X]
            answer = manager.call(spec.DtxCoordinationRollback(X.encode()), spec.DtxCoordinationRollbackOk)
            assert answer.flags == XaStatus.HEUR_COM
        assert "is already heuristic" in escrowmq(broker, "tx", "rollback", NAME, "--reason", "a test", "--yes", code=1)
        assert "Forget it" in escrowmq(broker, "tx", "forget", NAME, "--reason", "a test", stdin="n\n", code=1)
        escrowmq(broker, "tx", "forget", NAME, "--reason", "a test", "--yes")
        assert as_json(broker, "tx", "list") == []
        assert escrowmq(broker, "tx", "show", NAME, code=1).startswith(f"escrowmq: no branch {NAME}")
        assert "xid is malformed" in escrowmq(broker, "tx", "show", "x", code=1)


@pytest.mark.rule("DTX-7", "DTX-14")
def test_the_work_of_a_client_that_dies_is_undone(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        with client(broker) as worker:
            worker.call(spec.QueueDeclare("in", durable=True), spec.QueueDeclareOk)
            worker.publish("in", b"order")
            worker.call(spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
            worker.call(spec.DtxDemarcationStart(X.encode()), spec.DtxDemarcationStartOk)
            worker.send(1, spec.BasicGet("in"))
            assert worker.next().body == b"order"
            worker.send(1, spec.BasicAck(1))
            worker.publish("in", b"dropped")
        wait_until(lambda: as_json(broker, "tx", "list")[0]["state"] == "rollback_only")
        with client(broker) as reader:
            assert [reader.get("in"), reader.get("in")] == [b"order", None]
