"""The latency of one client's steady traffic while half messages of another one fall due, all at once.

The half messages are stored, and their producer leaves. When the first check is due, there is nobody to ask. Then a
producer of the group appears, so the broker asks it about all of them as fast as it can.
"""

from __future__ import annotations

import json
import time
from typing import Final

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.neighbours import EVERY_SECONDS, Neighbour, Trip091
from bench.rocketmq_broker import RocketmqEscrowMQ
from bench.scenario import Figure, Scenario, Settings
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.rocketmq.properties import id_prefix
from escrowmq.perf.rocketmq.remoting.answers import CHECK_TRANSACTION, answers
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller
from escrowmq.perf.rocketmq.remoting.encoding import SendBlock, SendTarget
from escrowmq.perf.rocketmq.remoting.producer import HEARTBEAT
from escrowmq.perf.rocketmq.remoting.session import UPDATE_TOPIC
from escrowmq.perf.url import parse_url

DUE: Final = 100_000
P99_MS: Final = 50.0
SECONDS: Final = 30.0
_GROUP, _TOPIC = "bench-producers", "bench-half"
_IN_FLIGHT: Final = 500
_DISTINCT: Final = 2000
_TIMEOUT: Final = 60.0
_DUE_SECONDS: Final = 30.0
_CHUNK: Final = 1 << 20


class CheckingEscrowMQ(RocketmqEscrowMQ):
    """EscrowMQ that checks half messages when all of them are stored."""

    settings = f"[half_messages]\ntimeout_seconds = {_DUE_SECONDS}\ncheck_interval_seconds = 600\n"


class HalfDue(Scenario):
    """100,000 half messages fall due at once, beside 5,000 messages per second over AMQP 0-9-1."""

    fresh = True
    peers = ()
    alternations = 1
    own = CheckingEscrowMQ

    def __init__(self) -> None:
        super().__init__(
            "rocketmq-half-due",
            (
                Figure("rocketmq-half-due", "100,000 half messages fall due: all checked", "s", below=SECONDS),
                Figure("rocketmq-half-due.p99", "— latency p99 at 5,000/s meanwhile", "ms", below=P99_MS),
                Figure("rocketmq-half-due.worst", "— the longest", "ms"),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        if not isinstance(broker, RocketmqEscrowMQ):
            raise MeasureError(f"{broker.name} does not speak RocketMQ's protocols")
        count = max(int(DUE * settings.scale), _IN_FLIGHT)
        target = parse_url(broker.rocketmq_url)
        _store(RemotingCaller(target.host, target.port, _TIMEOUT), count - count % _IN_FLIGHT)
        time.sleep(_DUE_SECONDS + 1)
        with Neighbour(Trip091(broker), EVERY_SECONDS) as neighbour:
            time.sleep(0.5)
            begin = time.monotonic()
            _take_checks(RemotingCaller(target.host, target.port, _TIMEOUT), count - count % _IN_FLIGHT)
            seconds = time.monotonic() - begin
        found = neighbour.latencies
        return Measurement(
            {
                self.name: seconds,
                f"{self.name}.p99": found.percentile(99) / 1e6,
                f"{self.name}.worst": found.maximum / 1e6,
            }
        )


def _store(caller: RemotingCaller, count: int) -> None:
    """Store half messages, and leave."""
    fields = {
        "topic": _TOPIC,
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "attributes": "+message.type=TRANSACTION",
    }
    caller.call(UPDATE_TOPIC, fields)
    made = list(messages(Variety(message_ids=True), 100, _DISTINCT))
    block = SendBlock(made, SendTarget(_TOPIC, 4, _GROUP, transactional=True), id_prefix(32))
    for number in range(0, count, _IN_FLIGHT):
        caller.socket.sendall(block.take(number, _IN_FLIGHT, None))
        _receive(caller, _IN_FLIGHT, 0)
    caller.close()


def _take_checks(caller: RemotingCaller, count: int) -> None:
    """Appear as a producer of the group, and read until all half messages were checked."""
    data = json.dumps({"clientID": "bench", "producerDataSet": [{"groupName": _GROUP}]}).encode()
    caller.call(HEARTBEAT, {}, data)
    _receive(caller, count, CHECK_TRANSACTION)
    caller.close()


def _receive(caller: RemotingCaller, count: int, code: int) -> None:
    """Read this number of answers, or of requests with this code."""
    kept = caller.rest
    while count > 0:
        used = [0]
        for answer in answers(kept, len(kept), used):
            if answer.code != code:
                raise MeasureError(f"the broker sent {answer.code}: {answer.remark}")
            count -= 1
        del kept[: used[0]]
        if count > 0:
            data = caller.socket.recv(_CHUNK)
            if not data:
                raise MeasureError("the broker closed the connection")
            kept += data
