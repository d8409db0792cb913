"""The objects of the broker in the form of RabbitMQ's management API, as far as the concept exists.

An argument is a row of the admin service; `node` is the name of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.core.topology.exchanges import KINDS

Row = Mapping[str, Any]
Shape = dict[str, Any]


def queue(row: Row, node: str) -> Shape:
    """Return a queue, from a row of `queue.list` with counters. As in RabbitMQ, messages that a transaction in doubt
    has settled are unacknowledged.
    """
    counters = row["counters"]
    unsettled = counters["unsettled"]
    return {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "exclusive": row["exclusive"],
        "arguments": row["arguments"],
        "node": node,
        "state": "down" if row["unavailable"] else "running",
        "messages": row["ready"] + unsettled,
        "messages_ready": row["ready"],
        "messages_unacknowledged": unsettled,
        "consumers": row["consumers"],
        **_policies(row),
        "message_stats": message_stats(counters),
    }


def message_stats(counters: Row) -> Shape:
    """Return counters under RabbitMQ's names. There are no rates: a monitoring system computes them."""
    consumed = counters["delivered"] - counters["fetched"]
    consumed_no_ack = counters["auto_settled"] - counters["auto_fetched"]
    return {
        "publish": counters["arrived"],
        "ack": counters["acknowledged"],
        "deliver": consumed,
        "deliver_no_ack": consumed_no_ack,
        "get": counters["fetched"],
        "get_no_ack": counters["auto_fetched"],
        "deliver_get": counters["delivered"] + counters["auto_settled"],
        "redeliver": counters["redelivered"],
    }


def exchange(row: Row) -> Shape:
    """Return an exchange, from a row of `exchange.list`."""
    names = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
    return {name: row[name] for name in names} | _policies(row)


def _policies(row: Row) -> Shape:
    return {
        "policy": row["policy"] or None,
        "operator_policy": row["operator_policy"] or None,
        "effective_policy_definition": row["effective_policy_definition"],
    }


def binding(row: Row) -> Shape:
    """Return a binding, from a row of `binding.list`."""
    return dict(row)


def connection(row: Row, node: str) -> Shape:
    """Return a connection, from a row of `connection.list`."""
    peer_host, peer_port = _split(row["peer"])
    host, port = _split(row["local"])
    return {
        "name": row["peer"],
        "user": row.get("user", ""),
        "vhost": row.get("vhost", ""),
        "protocol": row.get("protocol", ""),
        "state": "blocked" if row["held_back_by"] else row.get("state", ""),
        "host": host,
        "port": port,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "channels": row.get("channels", 0),
        "ssl": row.get("tls", False),
        "client_properties": row.get("client", {}),
        "connected_at": row["opened_ms"],
        "send_pend": row["unsent_bytes"],
        "type": "network",
        "node": node,
    }


def channel_name(peer: str, number: int) -> str:
    """Return the name of a channel, in which that of its connection comes first."""
    return f"{peer} ({number})"


def channel(row: Row, node: str) -> Shape:
    """Return a channel, from a row of `channel.list`."""
    peer_host, peer_port = _split(row["peer"])
    return {
        "name": channel_name(row["peer"], row["number"]),
        "number": row["number"],
        "connection_details": {"name": row["peer"], "peer_host": peer_host, "peer_port": peer_port},
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "state": row["state"],
        "confirm": row["confirms"],
        "transactional": row["transactional"],
        "consumer_count": row["consumers"],
        "prefetch_count": row["prefetch"],
        "global_prefetch_count": row["global_prefetch"],
        "messages_unacknowledged": row["unsettled"],
        "messages_uncommitted": row["uncommitted"],
        "node": node,
    }


def consumer(row: Row, node: str) -> Shape:
    """Return a consumer, from a row of `consumer.list`.

    There is no limit for the time that a delivery stays unacknowledged.
    """
    peer_host, peer_port = _split(row["peer"])
    return {
        "queue": {"name": row["queue"], "vhost": row["vhost"]},
        "consumer_tag": row["tag"],
        "ack_required": not row["auto_settle"],
        "exclusive": row["exclusive"],
        "active": row["active"],
        "activity_status": "up" if row["active"] else "waiting",
        "prefetch_count": row["prefetch"],
        "arguments": {"x-priority": row["priority"]} if row["priority"] else {},
        "consumer_timeout": 0,
        "channel_details": {
            "name": channel_name(row["peer"], row["channel"]),
            "number": row["channel"],
            "connection_name": row["peer"],
            "node": node,
            "peer_host": peer_host,
            "peer_port": peer_port,
            "user": row["user"],
        },
    }


def user(row: Row) -> Shape:
    """Return a user, from a row of `user.list`. Hashes of passwords are not shown."""
    limits = {"max-connections": row["max_connections"], "max-channels": row["max_channels"]}
    return {
        "name": row["name"],
        "tags": row["tags"],
        "limits": {name: value for name, value in limits.items() if value is not None},
    }


def vhost(row: Row, totals: Row, node: str) -> Shape:
    """Return a virtual host, from rows of `vhost.list` and `counter.totals`."""
    ready, unsettled = totals.get("ready", 0), totals.get("unsettled", 0)
    return {
        "name": row["name"],
        "description": "",
        "tags": [],
        "tracing": False,
        "cluster_state": {node: "running"},
        "messages": ready + unsettled,
        "messages_ready": ready,
        "messages_unacknowledged": unsettled,
        "message_stats": message_stats(totals) if "arrived" in totals else {},
    }


def node(status: Row, totals: Row, name: str) -> Shape:
    """Return the broker as the only node of its cluster, from the operations `status` and `counter.totals`."""
    process = totals["process"]
    return {
        "name": name,
        "type": "disc",
        "running": True,
        "os_pid": str(status["pid"]),
        "uptime": int(status["uptime_seconds"] * 1000),
        "mem_used": status["memory"]["resident_bytes"],
        "mem_limit": status["memory"]["limit_bytes"],
        "mem_alarm": "memory" in status["alarms"],
        "disk_free": status["disk"]["free_bytes"],
        "disk_free_limit": status["disk"]["limit_bytes"],
        "disk_free_alarm": "disk" in status["alarms"],
        "fd_used": process["open_descriptors"],
        "fd_total": process["most_descriptors"],
        "being_drained": False,
        "partitions": [],
        "db_dir": status["data_dir"],
    }


def overview(status: Row, totals: Row, exchanges: int, name: str) -> Shape:
    """Return the overview, from the operations `status` and `counter.totals`."""
    queues = status["queues"]
    sums: dict[str, int] = {}
    for row in totals["vhosts"].values():
        for key, count in message_stats(row).items():
            sums[key] = sums.get(key, 0) + count
    traffic = totals["traffic"]
    sums |= {
        "publish": sum(row["received"] for row in traffic),
        "confirm": sum(row["confirmed"] for row in traffic),
        "return_unroutable": sum(row["returned"] for row in traffic),
        "drop_unroutable": sum(row["dropped"] for row in traffic),
    }
    return {
        "management_version": status["version"],
        "rabbitmq_version": status["version"],
        "product_name": "EscrowMQ",
        "product_version": status["version"],
        "cluster_name": name,
        "node": name,
        "rates_mode": "none",
        "exchange_types": [{"name": kind, "description": "", "enabled": True} for kind in KINDS],
        "object_totals": {
            "channels": totals["channels"],
            "connections": status["connections"],
            "consumers": queues["consumers"],
            "exchanges": exchanges,
            "queues": queues["count"],
        },
        "queue_totals": {
            "messages": queues["ready"] + queues["unsettled"],
            "messages_ready": queues["ready"],
            "messages_unacknowledged": queues["unsettled"],
        },
        "message_stats": sums,
        "churn_rates": {
            "connection_created": status["connections_accepted"],
            "connection_closed": status["connections_accepted"] - status["connections"],
            "channel_created": totals["channels_opened"],
            "channel_closed": totals["channels_opened"] - totals["channels"],
            "queue_declared": totals["queues_declared"],
            "queue_created": totals["queues_created"],
            "queue_deleted": totals["queues_deleted"],
        },
        "listeners": [_listener(url, name) for url in status["listeners"]],
        "contexts": [],
    }


def _listener(url: str, name: str) -> Shape:
    scheme, _, address = url.partition("://")
    host, port = _split(address)
    return {"node": name, "protocol": scheme, "ip_address": host, "port": port}


def _split(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; 0 for a port that is not known."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
