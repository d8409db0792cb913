"""The gRPC side of a run. The topic is declared by classic remoting, because gRPC cannot."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Consumer, Producer
from escrowmq.perf.rocketmq.grpc.caller import GrpcCaller
from escrowmq.perf.rocketmq.grpc.consumer import GrpcReceiver
from escrowmq.perf.rocketmq.grpc.producer import GrpcSender
from escrowmq.perf.rocketmq.properties import load_messages
from escrowmq.perf.rocketmq.remoting.session import PULLED, RemotingSession
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.perf.url import Target, parse_url
from escrowmq.perf.workload import Workload

_CALL_TIMEOUT: Final = 20.0


class GrpcRunSession:
    """The connections of producers and consumers, and the session of classic remoting for declarations."""

    product = "RocketMQ gRPC"
    version = ""

    def __init__(self, target: Target, workload: Workload, totals: Totals) -> None:
        """Connect to the name server. Raises PerfError."""
        self._target = target
        self._workload = workload
        self._totals = totals
        self._contents = PublishedContents()
        name_server = parse_url(f"rocketmq://{workload.name_server or target.host}")
        self._declarer = RemotingSession(name_server, replace(workload, consumers=0), totals)
        self._group = f"GID-{secrets.token_hex(6)}"
        self._callers: list[GrpcCaller] = []

    def declare(self) -> int:
        backlog = self._declarer.declare()
        self._contents.enabled = not backlog
        return backlog

    def depth(self) -> int:
        return self._declarer.depth()

    def producers(self) -> list[Producer]:
        return [self._producer(number) for number in range(self._workload.producers)]

    def _producer(self, number: int) -> Producer:
        workload = self._workload
        made = load_messages(workload, number)
        for message in made:
            self._contents.add(message.message_id, None, message.body)
        count, total = workload.count, workload.producers
        return GrpcSender(
            self._connect(""),
            self._totals,
            f"producer {number}",
            made,
            self._declarer.topic,
            transactional=bool(workload.tx_size),
            count=None if count is None else count // total + (number < count % total),
            window=workload.window,
            stamped=workload.stamped,
        )

    def consumers(self) -> list[Consumer]:
        workload = self._workload
        if not workload.producers:
            self._contents.enabled = False
        return [
            GrpcReceiver(
                self._connect(self._group),
                self._totals,
                f"consumer {number}",
                self._contents,
                topic=self._declarer.topic,
                group=self._group,
                queues=list(range(number, workload.queues, workload.consumers)),
                batch=workload.batch or PULLED,
                stamped=workload.stamped,
            )
            for number in range(workload.consumers)
        ]

    def _connect(self, group: str) -> GrpcCaller:
        try:
            caller = GrpcCaller(self._target, self._declarer.topic, group, _CALL_TIMEOUT)
        except TimeoutError:
            raise PerfError(f"the broker at {self._target.address} did not answer in time") from None
        self._callers.append(caller)
        return caller

    def close(self, *, abruptly: bool) -> None:
        for caller in self._callers:
            caller.close()
        self._declarer.close(abruptly=abruptly)
