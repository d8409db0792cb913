"""The settings of the addresses on which the broker listens: those of AMQP, RocketMQ and HTTP."""

from __future__ import annotations

from pydantic import Field

from escrowmq.config.values import File, Listen, Section
from escrowmq.units import Address


class ListenSection(Section):
    """The addresses for clients."""

    address: Listen = Field(default=Address("127.0.0.1", 5672), description="The address for AMQP clients without TLS.")
    tls_address: Listen | None = Field(
        default=None, description="The address for AMQP clients with TLS; requires `tls.certificate` and `tls.key`."
    )
    backlog: int = Field(
        default=1024, ge=1, le=65535, description="The number of connections that may wait to be accepted."
    )


class RocketmqSection(Section):
    """The addresses and settings for clients of RocketMQ, both classic ones and those of gRPC."""

    enabled: bool = Field(default=False, description="Whether clients of RocketMQ are served.")
    name_server_address: Listen = Field(
        default=Address("127.0.0.1", 9876), description="The address of the name server, for classic clients."
    )
    broker_address: Listen = Field(
        default=Address("127.0.0.1", 10_911), description="The address of the broker, for classic clients."
    )
    grpc_address: Listen = Field(default=Address("127.0.0.1", 8081), description="The address for gRPC clients.")
    advertised_host: str = Field(
        default="",
        max_length=255,
        description="The host that classic clients are told to connect to. By default, it is the address at which they "
        "have reached the name server.",
    )
    vhost: str = Field(default="/", min_length=1, description="The virtual host of all clients of RocketMQ.")
    anonymous_user: str = Field(
        default="guest",
        description="The user of clients without an access key; empty refuses such clients. For the user `guest`, "
        "`security.guest_loopback_only` counts.",
    )
    auto_create_topics: bool = Field(
        default=True,
        description="Whether a classic client that sends to a missing topic creates it, if its user may declare it.",
    )
    partitions: int = Field(
        default=8, ge=1, le=1024, description="The number of queues of topics that are created automatically."
    )
    cluster: str = Field(
        default="DefaultCluster", min_length=1, max_length=127, description="The name of the cluster for tools."
    )
    broker_name: str = Field(
        default="escrowmq", min_length=1, max_length=127, description="The name of the broker for clients."
    )


class HttpSection(Section):
    """The HTTP interface for operators and monitoring, which a process of its own serves."""

    address: Listen | None = Field(
        default=None,
        description="The address for HTTP. It needs `pip install 'escrowmq[http]'`. Without it, there is no interface.",
    )
    tls: bool = Field(
        default=False,
        description="Whether the address speaks HTTPS; requires `tls.certificate` and `tls.key`. Clients need no "
        "certificate.",
    )
    open_metrics: bool = Field(
        default=False,
        description="Whether `/metrics` and `/metrics/detailed` are shown without a login, and on a standby "
        "`/api/escrow/replica`.",
    )
    connections: int = Field(
        default=200, ge=1, description="The number of open connections; further requests are answered with 503."
    )
    audits: File | None = Field(
        default=None,
        description="The folder of `escrowmq audit --out` for this broker. With it, the console and "
        "`/api/escrow/audits` show the verdicts of audits, and administrators can start one there.",
    )
    backups: File | None = Field(
        default=None,
        description="The folder of `escrowmq backup` for this broker. With it, administrators can start a backup from "
        "the console.",
    )
