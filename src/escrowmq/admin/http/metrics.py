"""The figures of the broker for Prometheus.

Names and labels are RabbitMQ's where the meaning is the same, so that dashboards for RabbitMQ find them. Deliveries
have no label for the protocol. The other names begin with `escrowmq_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

CLUSTER_LABELS: Final = ("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint")
Figures = Mapping[str, Any]
"""A result of an operation of the admin service."""

_TRAFFIC: Final = (
    ("received", "rabbitmq_global_messages_received", "Messages received from publishers."),
    ("to_confirm", "rabbitmq_global_messages_received_confirm", "Messages received that are to be confirmed."),
    ("confirmed", "rabbitmq_global_messages_confirmed", "Messages confirmed to publishers."),
    ("dropped", "rabbitmq_global_messages_unroutable_dropped", "Messages without a queue that were dropped."),
    ("returned", "rabbitmq_global_messages_unroutable_returned", "Messages without a queue that were returned."),
    ("refused", "escrowmq_messages_refused", "Publishes that were answered negatively."),
)
_QUEUE_SUMS: Final = (
    ("redelivered", "rabbitmq_global_messages_redelivered", "Deliveries of messages that were delivered before."),
    ("acknowledged", "rabbitmq_global_messages_acknowledged", "Messages acknowledged by consumers."),
    ("arrived", "rabbitmq_global_messages_routed", "Messages that queues got, once for each queue."),
)
_GAUGES: Final = (
    ("ready", "rabbitmq_queue_messages_ready", "Messages ready to be delivered."),
    ("unsettled", "rabbitmq_queue_messages_unacked", "Messages delivered and not acknowledged."),
    ("consumers", "rabbitmq_consumers", "Consumers of queues."),
    ("consumers", "rabbitmq_global_consumers", "Consumers of queues."),
    ("queues", "rabbitmq_queues", "Queues."),
)
_DEAD_LETTERED: Final = {
    "rejected": "rabbitmq_global_messages_dead_lettered_rejected",
    "expired": "rabbitmq_global_messages_dead_lettered_expired",
    "maxlen": "rabbitmq_global_messages_dead_lettered_maxlen",
    "delivery_limit": "rabbitmq_global_messages_dead_lettered_delivery_limit",
}
_BY_VHOST: Final = ("arrived", "delivered", "auto_settled", "redelivered", "requeued", "acknowledged")
_BY_QUEUE: Final[Mapping[str, tuple[tuple[str, str, bool], ...]]] = {
    "queue_coarse_metrics": (
        ("ready", "rabbitmq_detailed_queue_messages_ready", False),
        ("unsettled", "rabbitmq_detailed_queue_messages_unacked", False),
        ("messages", "rabbitmq_detailed_queue_messages", False),
    ),
    "queue_consumer_count": (("consumers", "rabbitmq_detailed_queue_consumers", False),),
    "queue_delivery_metrics": (
        ("auto_settled", "rabbitmq_detailed_queue_messages_delivered", True),
        ("delivered", "rabbitmq_detailed_queue_messages_delivered_ack", True),
        ("redelivered", "rabbitmq_detailed_queue_messages_redelivered", True),
        ("acknowledged", "rabbitmq_detailed_queue_messages_acked", True),
    ),
    "escrowmq_queue_metrics": (
        ("arrived", "escrowmq_detailed_queue_messages_arrived", True),
        ("requeued", "escrowmq_detailed_queue_messages_requeued", True),
    ),
}
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES: Final = frozenset(_BY_QUEUE)
"""What `/metrics/detailed?family=` accepts."""


class _Collected:
    """Metrics that were made before, for a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Return the metrics in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return generate_latest(registry)


def identity(status: Figures, totals: Figures) -> Iterator[Metric]:
    """Yield what dashboards join all other metrics with."""
    process = totals["process"]
    node, cluster = f"escrowmq@{process['host']}", process["identity"]
    info = GaugeMetricFamily("rabbitmq_identity_info", "The broker's identity.", labels=CLUSTER_LABELS)
    info.add_metric((node, node, cluster, "aggregated"), 1)
    yield info
    labels = ("rabbitmq_version", "erlang_version", "prometheus_client_version", "product_name", "product_version")
    build = GaugeMetricFamily("rabbitmq_build_info", "The broker's version.", labels=labels)
    build.add_metric((status["version"], "", "", "EscrowMQ", status["version"]), 1)
    yield build


def overview(status: Figures, totals: Figures) -> Iterator[Metric]:
    """Yield the sums for the whole broker, from the operations `status` and `counter.totals`."""
    yield from identity(status, totals)
    yield from _process(status, totals)
    yield from _traffic(totals["traffic"])
    yield from _queues(totals["vhosts"])
    yield from _deliveries(totals)
    yield from _of_channels(totals)
    yield from _transactions(status, totals)
    yield from _journal(status["journal"], totals["process"])
    if status["replication"] is not None:
        yield from replication(status["replication"])


def detailed(rows: Iterable[Figures], families: Iterable[str]) -> Iterator[Metric]:
    """Yield the metrics of `families` for each queue, from the rows of `counter.queues`."""
    rows = [{**row, "messages": row["ready"] + row["unsettled"]} for row in rows]
    for family in families:
        for key, name, counts in _BY_QUEUE[family]:
            metric = (CounterMetricFamily if counts else GaugeMetricFamily)(
                name, "By queue.", labels=("vhost", "queue")
            )
            for row in rows:
                metric.add_metric((row["vhost"], row["name"]), row[key])
            yield metric
        if family == "escrowmq_queue_metrics":
            yield _by_reason("escrowmq_detailed_queue_messages_left", rows, "left")
            yield _by_reason("escrowmq_detailed_queue_messages_dead_lettered", rows, "dead_lettered")


def _by_reason(name: str, rows: Iterable[Figures], key: str) -> Metric:
    metric = CounterMetricFamily(name, "By queue and reason.", labels=("vhost", "queue", "reason"))
    for row in rows:
        for reason, count in row[key].items():
            metric.add_metric((row["vhost"], row["name"], reason), count)
    return metric


def _process(status: Figures, totals: Figures) -> Iterator[Metric]:
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    is_open, accepted, process = status["connections"], status["connections_accepted"], totals["process"]
    plain: tuple[tuple[Callable[..., Metric], str, str, float], ...] = (
        (gauge, "rabbitmq_connections", "Open connections.", is_open),
        (counter, "rabbitmq_connections_opened", "Connections opened.", accepted),
        (counter, "rabbitmq_connections_closed", "Connections closed.", accepted - is_open),
        (gauge, "rabbitmq_channels", "Open channels and sessions.", totals["channels"]),
        (counter, "rabbitmq_channels_opened", "Channels opened.", totals["channels_opened"]),
        (counter, "rabbitmq_channels_closed", "Channels closed.", totals["channels_opened"] - totals["channels"]),
        (counter, "escrowmq_consumers_added", "Consumers added.", totals["consumers_added"]),
        (gauge, "rabbitmq_process_resident_memory_bytes", "Resident memory.", status["memory"]["resident_bytes"]),
        (gauge, "rabbitmq_process_open_fds", "Open files and sockets.", process["open_descriptors"]),
        (gauge, "rabbitmq_process_open_tcp_sockets", "Open connections.", is_open),
        (
            gauge,
            "rabbitmq_process_max_tcp_sockets",
            "The limit of open files and sockets.",
            process["most_descriptors"],
        ),
        (gauge, "rabbitmq_process_max_fds", "The limit of open files and sockets.", process["most_descriptors"]),
        (gauge, "rabbitmq_resident_memory_limit_bytes", "The memory alarm's limit.", status["memory"]["limit_bytes"]),
        (gauge, "rabbitmq_disk_space_available_bytes", "Free disk space.", status["disk"]["free_bytes"]),
        (
            gauge,
            "rabbitmq_disk_space_available_limit_bytes",
            "The disk alarm's limit.",
            status["disk"]["limit_bytes"],
        ),
        (gauge, "rabbitmq_alarms_memory_used_watermark", "1 if the memory alarm is on.", "memory" in status["alarms"]),
        (gauge, "rabbitmq_alarms_free_disk_space_watermark", "1 if the disk alarm is on.", "disk" in status["alarms"]),
        (gauge, "rabbitmq_global_publishers", "Connections that have published.", process["publishers"]),
        (
            gauge,
            "escrowmq_blocked_publishers",
            "Connections whose publishers are blocked.",
            process["blocked_publishers"],
        ),
        (gauge, "escrowmq_unavailable_queues", "Queues that cannot be read.", status["unavailable_queues"]),
        (gauge, "escrowmq_uptime_seconds", "Seconds since the start.", status["uptime_seconds"]),
        # The table of nodes in RabbitMQ's dashboard begins with this one. There is no Erlang here.
        (gauge, "rabbitmq_erlang_uptime_seconds", "Seconds since the start.", status["uptime_seconds"]),
        (gauge, "escrowmq_clock_behind_seconds", "Delay of the broker's time.", status["clock_behind_seconds"]),
        (counter, "escrowmq_turns", "Turns of the event loop.", status["turns"]),
    )
    for kind, name, text, value in plain:
        yield kind(name, text, value=float(value))


def _traffic(rows: Iterable[Figures]) -> Iterator[Metric]:
    rows = list(rows)
    for key, name, text in _TRAFFIC:
        metric = CounterMetricFamily(name, text, labels=("protocol",))
        sums: dict[str, int] = {}
        for row in rows:
            sums[row["protocol"]] = sums.get(row["protocol"], 0) + row[key]
        for protocol, count in sums.items():
            metric.add_metric((protocol,), count)
        yield metric
    received = CounterMetricFamily(
        "escrowmq_vhost_messages_received", "Messages received.", labels=("vhost", "protocol")
    )
    for row in rows:
        if row["vhost"]:
            received.add_metric((row["vhost"], row["protocol"]), row["received"])
    yield received


def _queues(vhosts: Mapping[str, Figures]) -> Iterator[Metric]:
    sums = list(vhosts.values())
    for key, name, text in _QUEUE_SUMS:
        yield CounterMetricFamily(name, text, value=sum(row[key] for row in sums))
    for key, name, text in _GAUGES:
        yield GaugeMetricFamily(name, text, value=sum(row.get(key, 0) for row in sums))
    for reason, name in _DEAD_LETTERED.items():
        metric = CounterMetricFamily(name, f"Messages dead-lettered: {reason}.")
        metric.add_metric((), sum(row["dead_lettered"][reason] for row in sums))
        yield metric
    named = {name: row for name, row in vhosts.items() if name}
    for key in _BY_VHOST:
        metric = CounterMetricFamily(f"escrowmq_vhost_messages_{key}", "By virtual host.", labels=("vhost",))
        for name, row in named.items():
            metric.add_metric((name,), row[key])
        yield metric
    gauges = {key: text for key, _, text in _GAUGES} | {"delayed": "Delayed messages, which are in no queue yet."}
    for key, text in gauges.items():
        gauge = GaugeMetricFamily(f"escrowmq_vhost_{key}", text, labels=("vhost",))
        for name, row in named.items():
            gauge.add_metric((name,), row.get(key, 0))
        yield gauge
    left = CounterMetricFamily(
        "escrowmq_vhost_messages_left", "Messages that left queues unacknowledged.", labels=("vhost", "reason")
    )
    for name, row in named.items():
        for reason, count in row["left"].items():
            left.add_metric((name, reason), count)
    yield left


def _deliveries(totals: Figures) -> Iterator[Metric]:
    rows = totals["vhosts"].values()
    keys = ("delivered", "auto_settled", "fetched", "auto_fetched")
    delivered, settled, fetched, auto_fetched = (sum(row[key] for row in rows) for key in keys)
    for name, text, value in (
        ("delivered", "Deliveries.", delivered + settled),
        ("delivered_consume_manual_ack", "Deliveries to be acknowledged.", delivered - fetched),
        ("delivered_consume_auto_ack", "Deliveries that settle at once.", settled - auto_fetched),
        ("delivered_get_manual_ack", "Messages asked for, to be acknowledged.", fetched),
        ("delivered_get_auto_ack", "Messages asked for that settle at once.", auto_fetched),
        ("get_empty", "Requests for a message of an empty queue.", totals["empty_fetches"]),
    ):
        yield CounterMetricFamily("rabbitmq_global_messages_" + name, text, value=value)
    for name in ("declared", "created", "deleted"):
        yield CounterMetricFamily(f"rabbitmq_queues_{name}", f"Queues {name}.", value=totals["queues_" + name])


def _of_channels(totals: Figures) -> Iterator[Metric]:
    """Yield the sums over all channels that the dashboards of RabbitMQ 3.8 and 3.9 use. Later ones use the names with
    `global`.
    """
    sums = {key: sum(row[key] for row in totals["traffic"]) for key, *_ in _TRAFFIC}
    rows = list(totals["vhosts"].values())
    queued = {key: sum(row[key] for row in rows) for key in (*_BY_VHOST, "fetched", "auto_fetched")}
    for name, text, value in (
        ("channel_messages_published", "Messages received from publishers.", sums["received"]),
        ("channel_messages_confirmed", "Messages confirmed to publishers.", sums["confirmed"]),
        ("channel_messages_unroutable_dropped", "Messages without a queue that were dropped.", sums["dropped"]),
        ("channel_messages_unroutable_returned", "Messages without a queue that were returned.", sums["returned"]),
        (
            "channel_messages_delivered",
            "Deliveries that settle at once.",
            queued["auto_settled"] - queued["auto_fetched"],
        ),
        ("channel_messages_delivered_ack", "Deliveries to be acknowledged.", queued["delivered"] - queued["fetched"]),
        ("channel_messages_redelivered", "Deliveries of messages that were delivered before.", queued["redelivered"]),
        ("channel_messages_acked", "Messages acknowledged by consumers.", queued["acknowledged"]),
        ("channel_get", "Messages asked for that settle at once.", queued["auto_fetched"]),
        ("channel_get_ack", "Messages asked for, to be acknowledged.", queued["fetched"]),
        ("channel_get_empty", "Requests for a message of an empty queue.", totals["empty_fetches"]),
        ("queue_messages_published", "Messages that queues got, once for each queue.", queued["arrived"]),
    ):
        yield CounterMetricFamily(f"rabbitmq_{name}", text, value=value)
    consumers = sum(row.get("consumers", 0) for row in rows)
    yield GaugeMetricFamily("rabbitmq_channel_consumers", "Consumers of queues.", value=consumers)
    yield GaugeMetricFamily(
        "rabbitmq_channel_messages_unconfirmed",
        "Messages to be confirmed that are neither confirmed nor refused, also those of connections that were lost.",
        value=max(sums["to_confirm"] - sums["confirmed"] - sums["refused"], 0),
    )


def _transactions(status: Figures, totals: Figures) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "escrowmq_branches", "Branches, by kind and by what happened.", labels=("kind", "event")
    )
    for kind, counts in totals["branches"].items():
        for event, count in counts.items():
            events.add_metric((kind, event), count)
    yield events
    now = status["transactions"]
    yield GaugeMetricFamily("escrowmq_branches_open", "Branches with an xid.", value=now["branches"])
    yield GaugeMetricFamily("escrowmq_branches_in_doubt", "Prepared branches.", value=now["in_doubt"])
    yield GaugeMetricFamily(
        "escrowmq_branches_in_doubt_oldest_seconds", "The oldest branch in doubt.", value=now["in_doubt_seconds"]
    )
    yield GaugeMetricFamily("escrowmq_branches_heuristic", "Branches decided by operators.", value=now["heuristic"])
    half = CounterMetricFamily("escrowmq_half_messages", "Half messages, by what happened.", labels=("event",))
    for event, count in totals["half"].items():
        half.add_metric((event,), count)
    yield half
    pending = GaugeMetricFamily("escrowmq_half_messages_undecided", "Undecided half messages.", labels=("state",))
    for state in ("pending", "parked"):
        pending.add_metric((state,), status["half_messages"][state])
    yield pending
    links = GaugeMetricFamily("escrowmq_links", "AMQP 1.0 links.", labels=("role",))
    unsettled = GaugeMetricFamily("escrowmq_links_unsettled", "Unsettled deliveries of links.", labels=("role",))
    for role, row in totals["links"].items():
        links.add_metric((role,), row["links"])
        unsettled.add_metric((role,), row["unsettled"])
    yield links
    yield unsettled


def _journal(journal: Figures, process: Figures) -> Iterator[Metric]:
    for key, text in (
        ("batches", "Batches written."),
        ("records", "Records written."),
        ("bytes", "Bytes written."),
        ("snapshots", "Snapshots taken."),
        ("segments_deleted", "Segments deleted."),
    ):
        yield CounterMetricFamily(f"escrowmq_journal_{key}", text, value=journal[key])
    for key, text in (
        ("segments", "Segments on disk."),
        ("disk_bytes", "Bytes of all segments."),
        ("unwritten_bytes", "Bytes that wait for the writer."),
    ):
        yield GaugeMetricFamily(f"escrowmq_journal_{key}", text, value=journal[key])
    below, buckets, counts = 0, [], process["sync_us_buckets"]
    for i, count in enumerate(counts):
        below += count
        last = i == len(counts) - 1
        buckets.append(("+Inf" if last else f"{(1 << i) / 1e6:g}", below))
    syncs = HistogramMetricFamily("escrowmq_journal_sync_seconds", "The time of each sync of the journal.")
    syncs.add_metric((), buckets, process["sync_us_total"] / 1e6)
    yield syncs


def replication(standing: Figures) -> Iterator[Metric]:
    """Yield the figures of a node on a replicated log, from `replica.status`. Standbys have only these."""
    leads = standing["role"] == "leader"
    own = standing["nodes"][0]
    engine = standing["engine"]
    gauges = (
        ("leads", "Whether this node leads.", leads),
        ("epoch", "The epoch of the leader, as this node knows it.", standing["epoch"]),
        ("lsn", "The end of this node's journal.", standing["lsn"]),
        ("behind_bytes", "What this node knows of and has not copied.", own["behind_bytes"]),
        (
            "behind_seconds",
            "How long ago this node had read the log to its end, or since when it reads it.",
            own["behind_seconds"],
        ),
        ("engine_reachable", "Whether the engine answers this node.", engine["reachable"]),
        ("engine_replicas", "The copies of the log that there should be.", engine["replicas"]),
        ("engine_in_sync", "The copies that have all that is acknowledged.", engine["in_sync"]),
        ("engine_wrong_settings", "Settings with which messages could be lost.", len(engine["wrong_settings"])),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"escrowmq_replica_{name}", text, value=value)
    told = "Take-overs that this node knows of, of the last 100."
    yield GaugeMetricFamily("escrowmq_replica_take_overs", told, value=len(standing["take_overs"]))
    if not leads:
        return
    silent = "Whether deliveries wait, since the replicated log does not answer."
    yield GaugeMetricFamily("escrowmq_replica_silent", silent, value=standing["silent"])
    appends = "Headers, frames and signs of life that the replicated log has acknowledged."
    yield CounterMetricFamily("escrowmq_replica_appends", appends, value=standing["appends"])
    took = "The time until they were acknowledged, all together."
    yield CounterMetricFamily("escrowmq_replica_append_seconds", took, value=standing["append_seconds"])
