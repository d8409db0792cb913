"""The classic remoting side of a run: the topic, its route, and the connections."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.layout import layout_of
from escrowmq.perf.peer import Consumer, Producer
from escrowmq.perf.rocketmq.properties import id_prefix, load_messages
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller
from escrowmq.perf.rocketmq.remoting.consumer import PullingConsumer
from escrowmq.perf.rocketmq.remoting.encoding import ID_LENGTH, SendBlock, SendTarget
from escrowmq.perf.rocketmq.remoting.producer import RemotingSender
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target
from escrowmq.perf.workload import Workload

UPDATE_TOPIC: Final = 17
MAX_OFFSET: Final = 30
MIN_OFFSET: Final = 31
ROUTE: Final = 105
CLUSTER: Final = 106
DELETE_GROUP: Final = 207
DELETE_TOPIC: Final = 215
DELETE_TOPIC_ROUTE: Final = 216
READ_WRITE: Final = "6"
PULLED: Final = 32
"""The messages that clients ask for at a time unless they are configured otherwise."""
_UNKNOWN_TOPIC: Final = 17
_CALL_TIMEOUT: Final = 20.0
_ROUTED_WITHIN: Final = 30.0


class RemotingSession:
    """The connections of producers and consumers, and those to name server and broker for declarations."""

    product = "RocketMQ remoting"
    version = ""

    def __init__(self, target: Target, workload: Workload, totals: Totals) -> None:
        """Connect to the name server and to the first broker that it knows. Raises PerfError."""
        self._workload = workload
        self._totals = totals
        self._contents = PublishedContents()
        self._name_server = RemotingCaller(target.host, target.port, _CALL_TIMEOUT)
        try:
            host, port = self._find_broker()
            self._address = host, port
            self._broker = RemotingCaller(host, port, _CALL_TIMEOUT)
        except PerfError:
            self._name_server.close()
            raise
        self._callers: list[RemotingCaller] = []
        self.topic = layout_of(workload).queues[0]
        self._group = f"GID-{secrets.token_hex(6)}"
        self._offsets: dict[int, int] = {}

    def _find_broker(self) -> tuple[str, int]:
        table = json.loads(_quoted(self._name_server.call(CLUSTER, {}).body))["brokerAddrTable"]
        for broker in table.values():
            host, _, port = str(broker["brokerAddrs"]["0"]).rpartition(":")
            return host, int(port)
        raise PerfError(f"the name server at {self._name_server.address} knows no broker")

    def declare(self) -> int:
        """See `RunSession.declare`. The topic is created for messages of the load's type."""
        workload = self._workload
        kind = "TRANSACTION" if workload.tx_size else "NORMAL"
        fields = {
            "topic": self.topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(workload.queues),
            "writeQueueNums": str(workload.queues),
            "perm": READ_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": f"+message.type={kind}",
        }
        if workload.producers:
            self._broker.call(UPDATE_TOPIC, fields)
        self._await_route()
        begins = {queue: self._offset(MIN_OFFSET, queue) for queue in range(workload.queues)}
        self._offsets = begins
        backlog = self.depth()
        self._contents.enabled = not backlog
        return backlog

    def _await_route(self) -> None:
        """Wait until the name server knows the topic, as clients need it."""
        give_up = time.monotonic() + _ROUTED_WITHIN
        while (answer := self._name_server.try_call(ROUTE, {"topic": self.topic})).code:
            if answer.code != _UNKNOWN_TOPIC or time.monotonic() > give_up:
                raise PerfError(f"the name server does not know topic {self.topic}: {answer.remark}")
            time.sleep(0.1)

    def _offset(self, code: int, queue: int) -> int:
        return int(self._broker.call(code, {"topic": self.topic, "queueId": str(queue)}).fields["offset"])

    def depth(self) -> int:
        return sum(self._offset(MAX_OFFSET, queue) - begin for queue, begin in self._offsets.items())

    def producers(self) -> list[Producer]:
        return [self._producer(number) for number in range(self._workload.producers)]

    def _producer(self, number: int) -> Producer:
        workload = self._workload
        made = load_messages(workload, number)
        for message in made:
            self._contents.add(message.message_id, None, message.body)
        group = f"PID-{secrets.token_hex(6)}"
        target = SendTarget(self.topic, workload.queues, group, bool(workload.tx_size), workload.batch)
        count, total = workload.count, workload.producers
        return RemotingSender(
            self._connect(),
            self._totals,
            f"producer {number}",
            SendBlock(made, target, id_prefix(ID_LENGTH)),
            target,
            count=None if count is None else count // total + (number < count % total),
            window=workload.window,
            stamped=workload.stamped,
        )

    def consumers(self) -> list[Consumer]:
        workload = self._workload
        if not workload.producers:
            self._contents.enabled = False
        queues = sorted(self._offsets)
        return [
            PullingConsumer(
                self._connect(),
                self._totals,
                f"consumer {number}",
                self._contents,
                topic=self.topic,
                group=self._group,
                offsets={queue: self._offsets[queue] for queue in queues[number :: workload.consumers]},
                batch=workload.batch or PULLED,
                stamped=workload.stamped,
            )
            for number in range(workload.consumers)
        ]

    def _connect(self) -> RemotingCaller:
        caller = RemotingCaller(*self._address, _CALL_TIMEOUT)
        self._callers.append(caller)
        return caller

    def close(self, *, abruptly: bool) -> None:
        for caller in self._callers:
            caller.close()
        with contextlib.suppress(PerfError):
            if not abruptly and not self._workload.keep:
                self._broker.try_call(DELETE_TOPIC, {"topic": self.topic})
                self._name_server.try_call(DELETE_TOPIC_ROUTE, {"topic": self.topic})
            if not abruptly and self._workload.consumers:
                self._broker.try_call(DELETE_GROUP, {"groupName": self._group, "removeOffset": "true"})
        self._broker.close()
        self._name_server.close()


def _quoted(document: bytes) -> bytes:
    """Return a document as JSON. RocketMQ writes numbers as names of members without quotes."""
    return document.replace(b"{0:", b'{"0":')
