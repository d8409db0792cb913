"""The load to put on the broker, and the named scenarios."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from escrowmq.perf.errors import WrongUsage
from escrowmq.perf.messages import Variety

KB = 1024
MAX_SIZE = 64 * 1024 * 1024
DEFAULT_DURATION = 10.0
DEFAULT_BINDINGS = 1000
AMQP091, AMQP010, AMQP10 = "amqp091", "amqp010", "amqp10"
ROCKETMQ, ROCKETMQ_GRPC = "rocketmq", "rocketmq-grpc"
"""The protocols. Those of RocketMQ are classic remoting and gRPC."""
MAX_ROCKETMQ_SIZE = 256 * KB
PRESETTLED, FIRST, SECOND = "presettled", "first", "second"
"""The settlement modes of AMQP 1.0."""
COMPLETION, EXPLICIT = "completion", "explicit"
"""What confirms a message in AMQP 0-10: the completion of its transfer, or its acceptance."""
TWO_PHASE = "two-phase"
ONE_PHASE = "one-phase"


@dataclass(frozen=True, slots=True)
class Workload:
    """A load. `check` checks every figure."""

    size: int = 100
    """Body bytes."""
    spread: int = 0
    """Body sizes are spread evenly over this many bytes on either side of `size`."""
    ids: bool = False
    """Each message has a unique message-id."""
    correlation_ids: bool = False
    """Each message has a unique correlation-id."""
    timestamps: bool = False
    """Each message has a timestamp."""
    headers: bool = False
    """Each message has a header table, of which two of three entries differ."""
    priorities: int = 0
    """Each message has a random priority below this, and the queues have as many; 0: no priorities."""
    count: int | None = None
    """Messages to publish in all."""
    duration: float | None = None
    """Seconds to publish for."""
    producers: int = 1
    """Publishing connections."""
    channels: int = 1
    """Channels on each of them."""
    consumers: int = 1
    """Consuming connections, of one channel each."""
    queues: int = 1
    random: bool = False
    """Whether the queue, or the routing key, of each message is picked at random; otherwise they are used in turn."""
    keys: int = 0
    """Routing keys of a topic exchange, instead of the default one; 0: the default one."""
    bindings: int | None = None
    """Bindings of the topic exchange to the queues; None: `DEFAULT_BINDINGS`, or as many as keys if these are fewer."""
    fanout: int = 0
    """Queues bound to one fanout exchange, instead of `queues` on the default one."""
    persistent: bool = False
    confirms: bool = False
    window: int = 2000
    """Unconfirmed messages a channel may have, with confirms. With RocketMQ, also transactions in flight."""
    batch: int = 0
    """With RocketMQ: messages in one send, and at most in one answer to a consumer; 0: single sends."""
    tx_size: int = 0
    """Publishes in a transaction; 0: no transactions."""
    name_server: str = ""
    """With RocketMQ's gRPC: host and port of the name server, by which the topic is declared; empty: the same host."""
    protocol: str = AMQP091
    mode: str = ""
    """The settlement mode of AMQP 1.0; empty: `first` for what is confirmed or acknowledged, otherwise presettled. For
    AMQP 0-10, what confirms a message; empty: its completion.
    """
    xa: str = ""
    """How branches of distributed transactions (dtx) are committed: "two-phase" or "one-phase"; empty: `tx`."""
    ack_every: int = 100
    """0: auto-ack."""
    prefetch: int = 1000
    subscriptions: int = 1
    """How often each consuming connection subscribes to each of its queues."""
    get: int = 0
    """Outstanding requests of a consumer that fetches messages one by one; 0: messages are pushed."""
    rpc: int = 0
    """Outstanding requests of a producer if consumers reply to each message; 0: there are no replies."""
    rate: float | None = None
    """Messages/s over all producers; None: without limit."""
    latency: bool = False
    """Measure from publish to delivery."""
    queue: str | None = None
    """Name of the queue, or prefix of the names if there are several; None: new names."""
    arguments: dict[str, int | str] = field(default_factory=dict)
    """Arguments that the queues are declared with."""
    keep: bool = False
    """Whether to keep the queues and their messages."""

    @property
    def queue_count(self) -> int:
        """The number of queues."""
        return self.fanout or self.queues

    @property
    def regions(self) -> int:
        """The number of bindings of the topic exchange."""
        return min(DEFAULT_BINDINGS, self.keys) if self.bindings is None else self.bindings

    @property
    def copies(self) -> int:
        """The number of deliveries for one publish."""
        return self.fanout or 1

    @property
    def publishers(self) -> int:
        """The number of publishing channels of all producers."""
        return self.producers * self.channels

    @property
    def variety(self) -> Variety:
        """The ways in which messages differ from each other."""
        return Variety(
            spread=self.spread,
            message_ids=self.ids,
            correlation_ids=self.correlation_ids or bool(self.rpc),
            timestamps=self.timestamps,
            headers=self.headers,
            priorities=self.priorities,
        )

    @property
    def stamped(self) -> bool:
        """Whether bodies contain the time."""
        return self.latency or self.rate is not None

    def check(self) -> None:
        """Raise WrongUsage if figures contradict each other."""
        if not 0 <= self.size <= MAX_SIZE:
            raise WrongUsage(f"--size must be from 0 to {MAX_SIZE} bytes")
        if not 0 <= self.spread <= self.size or self.size + self.spread > MAX_SIZE:
            raise WrongUsage(
                "--size-spread must not exceed --size, and both together must not exceed the maximum body size"
            )
        if not self.producers and not self.consumers:
            raise WrongUsage("there are neither producers nor consumers, so there is nothing to do")
        if self.stamped and self.size - self.spread < 8:
            raise WrongUsage("latency needs bodies of at least 8 bytes, which contain the time")
        if self.ack_every and self.prefetch and self.ack_every > self.prefetch:
            raise WrongUsage(
                "--ack-every must not exceed --prefetch: the broker and the consumer would wait for each other"
            )
        if self.confirms and self.tx_size:
            raise WrongUsage("--confirms and --tx-size exclude each other: a channel has one mode or the other")
        if self.xa and not self.tx_size:
            raise WrongUsage("--xa needs --tx-size, the number of publishes in a branch")
        if self.fanout and self.queues != 1:
            raise WrongUsage("--fanout and --queues exclude each other")
        if not self.producers and self.queue is None:
            raise WrongUsage("consumers without producers need --queue, because a new queue is empty")
        if self.queue_count > 1 and self.queue is not None and len(self.queue.encode()) > 240:
            raise WrongUsage("--queue is too long")
        if self.count == 0:
            raise WrongUsage("--count 0: nothing to publish")
        if not self.producers:
            useless = {"--count": self.count, "--duration": self.duration, "--rate": self.rate}
            for option, value in useless.items():
                if value is not None:
                    raise WrongUsage(
                        f"{option} needs producers; with --producers 0, the messages that are in the queue are consumed"
                    )
        self._check_ways()

    def _check_amqp10(self) -> None:
        """Raise WrongUsage if a figure has no meaning in AMQP 1.0, or its mode none in this load."""
        if self.protocol != AMQP10:
            if self.mode in (PRESETTLED, FIRST, SECOND):
                raise WrongUsage(f"--mode {self.mode} needs --protocol amqp10")
            return
        if self.xa or self.rpc or self.get or self.keys or self.fanout or self.channels > 1 or self.subscriptions > 1:
            raise WrongUsage(
                "--protocol amqp10 excludes --xa, --rpc, --get, --keys, --fanout, --channels and --subscriptions"
            )
        if self.random or (self.producers and self.queues > min(self.producers, self.consumers or self.producers)):
            raise WrongUsage("--protocol amqp10 needs a producer and a consumer for each queue, and excludes --random")

    def _check_amqp010(self) -> None:
        """Raise WrongUsage if a figure has no meaning in AMQP 0-10, or needs it."""
        if self.protocol != AMQP010:
            if self.mode in (COMPLETION, EXPLICIT):
                raise WrongUsage(f"--mode {self.mode} needs --protocol amqp010")
            return
        if self.rpc or self.get:
            raise WrongUsage("--protocol amqp010 excludes --rpc and --get")
        if self.mode and not self.confirms:
            raise WrongUsage("with --protocol amqp010, --mode needs --confirms")

    def _check_rocketmq(self) -> None:
        """Raise WrongUsage if a figure has no meaning in RocketMQ's protocols, or needs one of them."""
        if self.protocol not in (ROCKETMQ, ROCKETMQ_GRPC):
            if self.batch:
                raise WrongUsage("--batch needs --protocol rocketmq")
            if self.name_server:
                raise WrongUsage("--name-server needs --protocol rocketmq-grpc")
            return
        if self.xa or self.rpc or self.get or self.keys or self.fanout or self.channels > 1 or self.subscriptions > 1:
            raise WrongUsage(
                "the protocols of RocketMQ exclude --xa, --rpc, --get, --keys, --fanout, --channels and --subscriptions"
            )
        if self.random or self.priorities or self.mode:
            raise WrongUsage("the protocols of RocketMQ exclude --random, --priorities and --mode")
        if self.producers and not self.confirms and self.tx_size != 1:
            raise WrongUsage("the protocols of RocketMQ answer each send, so they need --confirms or --tx-size 1")
        if self.batch and (self.tx_size or self.protocol != ROCKETMQ):
            raise WrongUsage("--batch excludes --tx-size and --protocol rocketmq-grpc")
        if not 0 < self.size - self.spread <= self.size + self.spread <= MAX_ROCKETMQ_SIZE:
            raise WrongUsage(f"with the protocols of RocketMQ, bodies have from 1 to {MAX_ROCKETMQ_SIZE} bytes")
        if self.consumers > self.queues:
            raise WrongUsage("with the protocols of RocketMQ, each consumer needs a queue of its own")

    def _check_ways(self) -> None:
        """Raise WrongUsage if ways of publishing or consuming contradict each other."""
        self._check_amqp10()
        self._check_amqp010()
        self._check_rocketmq()
        if self.keys and self.fanout:
            raise WrongUsage("--keys excludes --fanout")
        if self.keys and self.regions > self.keys:
            raise WrongUsage(
                f"--bindings {self.regions} is more than --keys {self.keys}, so some bindings would never be used"
            )
        if self.bindings is not None and not self.keys:
            raise WrongUsage("--bindings has no effect without --keys")
        if self.get and (self.stamped or self.subscriptions > 1):
            raise WrongUsage(
                "--get excludes --latency, --rate and --subscriptions, which need deliveries without a request"
            )
        if self.rpc and (self.confirms or self.tx_size or self.get or self.stamped or self.channels > 1):
            raise WrongUsage("--rpc excludes --confirms, --tx-size, --get, --latency, --rate and --channels")
        if self.rpc and (self.fanout or not (self.producers and self.consumers)):
            raise WrongUsage("--rpc needs both producers and consumers, and excludes --fanout")


_VARIED: dict[str, Any] = {"spread": 40, "ids": True, "correlation_ids": True, "timestamps": True, "headers": True}
_DURABLE: dict[str, Any] = {"persistent": True, "confirms": True}


def _large() -> dict[str, Workload]:
    """Loads of large bodies, with some 8 MB in flight."""
    found: dict[str, Workload] = {}
    for name, size, flight in (("16k", 16 * KB, 500), ("256k", 256 * KB, 30), ("4m", 4096 * KB, 4)):
        plain = Workload(size=size, prefetch=flight, ack_every=max(flight // 10, 1), window=flight)
        found[f"large-{name}"] = plain
        found[f"large-{name}-confirms"] = replace(plain, **_DURABLE)
    return found


SCENARIOS: dict[str, Workload] = {
    "transient": Workload(ack_every=0),
    "acked": Workload(),
    "mixed": Workload(spread=40, ids=True, ack_every=0),
    "confirms": Workload(persistent=True, confirms=True),
    "mixed-confirms": Workload(spread=40, ids=True, persistent=True, confirms=True),
    "many": Workload(persistent=True, confirms=True, window=200, producers=10, consumers=10, queues=10),
    "tx100": Workload(persistent=True, tx_size=100),
    "tx1": Workload(persistent=True, tx_size=1, consumers=0),
    "tx1x64": Workload(persistent=True, tx_size=1, channels=64, consumers=0),
    "xa1": Workload(persistent=True, tx_size=1, xa=TWO_PHASE, consumers=0),
    "xa1-one-phase": Workload(persistent=True, tx_size=1, xa=ONE_PHASE, consumers=0),
    "xa32": Workload(persistent=True, tx_size=1, xa=TWO_PHASE, channels=32, consumers=0),
    "fanout": Workload(persistent=True, confirms=True, fanout=10, consumers=10),
    "latency": Workload(persistent=True, confirms=True, rate=5000.0, latency=True),
    "backlog": Workload(persistent=True, confirms=True, consumers=0, count=1_000_000, size=1000),
    "correlation-ids": Workload(correlation_ids=True),
    "headers": Workload(headers=True),
    "varied": Workload(**_VARIED),
    "varied-confirms": Workload(**_VARIED, **_DURABLE),
    "varied-topic": Workload(**_VARIED, **_DURABLE, keys=10_000),
    "varied-tx100": Workload(**_VARIED, persistent=True, tx_size=100),
    "varied-backlog": Workload(**_VARIED, **_DURABLE, consumers=0, count=1_000_000),
    "random400": Workload(**_DURABLE, queues=400, random=True),
    "random10000": Workload(**_DURABLE, queues=10_000, random=True),
    **_large(),
    "rpc1": Workload(rpc=1, ack_every=0),
    "rpc50": Workload(rpc=50, ack_every=0),
    "crowd1": Workload(consumers=10, subscriptions=100, prefetch=1, ack_every=1),
    "crowd100": Workload(consumers=10, subscriptions=100, prefetch=100),
}
"""The scenarios by name; `docs/perf.md` describes their purposes."""


def workload_of(scenario: str | None, changes: dict[str, Any]) -> Workload:
    """Return a named scenario (None: the plain one) with changes. Without count and duration it runs for ten seconds.

    Raises WrongUsage for an unknown scenario, or for figures that contradict each other.
    """
    try:
        workload = Workload() if scenario is None else SCENARIOS[scenario]
    except KeyError:
        raise WrongUsage(f"unknown scenario {scenario!r}; the scenarios are {', '.join(SCENARIOS)}") from None
    if changes.get("duration") is not None and "count" not in changes:
        changes = {**changes, "count": None}
    workload = replace(workload, **changes)
    if workload.count is None and workload.duration is None and workload.producers:
        workload = replace(workload, duration=DEFAULT_DURATION)
    workload.check()
    return workload
