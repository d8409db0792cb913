"""The settings of limits for connections, messages and transactions."""

from __future__ import annotations

from pydantic import Field

from escrowmq.config.values import Connections, Duration, HeldMemory, Section, Size

CONTENT_BYTES = 896 << 20
"""The limit for bodies and headers in one record of the journal. The rest of a record holds their metadata."""


class LimitsSection(Section):
    """Limits for connections, messages and transactions."""

    connections: int = Field(
        default=10_000,
        ge=1,
        description="The number of open connections that have logged in. Further logins are refused.",
    )
    connections_per_address: int = Field(
        default=0,
        ge=0,
        description="The number of open connections from one address (IPv4, or 64-bit prefix of IPv6); 0 means no "
        "limit, because clients behind a proxy or a NAT share an address. Further connections are closed at once.",
    )
    unauthenticated_connections: int = Field(
        default=2000,
        ge=1,
        description="The number of connections that have not logged in yet. For further ones, the oldest of these is "
        "closed.",
    )
    unauthenticated_connections_per_address: int = Field(
        default=500,
        ge=1,
        description="The number of connections from one address that have not logged in yet. For further ones, the "
        "oldest of these is closed.",
    )
    channels_per_connection: int = Field(
        default=2047, ge=1, le=65535, description="The number of channels on one connection."
    )
    links_per_session: int = Field(
        default=1024, ge=1, le=1 << 20, description="The number of links in one session (AMQP 1.0)."
    )
    link_credit: int = Field(
        default=5000,
        ge=1,
        le=1 << 20,
        description="The number of messages that a producer may send ahead of their answers on one link (AMQP 1.0).",
    )
    unsettled_per_link: int = Field(
        default=1_000_000,
        ge=1,
        description="The number of deliveries that may be unsettled on one link (AMQP 1.0) or in one session (AMQP "
        "0-10). Beyond it, a consumer gets no further ones, and a producer no credit.",
    )
    subscriptions_per_connection: int = Field(
        default=1024, ge=1, le=1 << 20, description="The subscriptions of a connection's consumers (RocketMQ remoting)."
    )
    transactions_per_connection: int = Field(
        default=1000, ge=1, le=1 << 20, description="The transactions that a connection may have open (AMQP 1.0)."
    )
    auto_create_nodes: bool = Field(
        default=True,
        description="Whether an AMQP 1.0 client that names a missing queue or topic creates it, as a durable one, if "
        "its user may declare it. Addresses of the form `/queues/…` and `/exchanges/…` never create anything.",
    )
    frame_max: Size = Field(default=131_072, ge=4096, le=1 << 30, description="The size of one AMQP frame.")
    message_size: Size = Field(default=128 << 20, ge=1, le=CONTENT_BYTES, description="The size of one message's body.")
    header_size: Size = Field(
        default=65_536, ge=1024, le=16 << 20, description="The size of one message's properties and headers."
    )
    arguments_size: Size = Field(
        default=16_384,
        ge=1024,
        le=16 << 20,
        description="The size of one declaration, binding or subscription, with its arguments.",
    )
    unauthenticated_seconds: Duration = Field(
        default=10.0, gt=0, description="The time limit for a new connection to authenticate and open."
    )
    heartbeat_seconds: Duration = Field(
        default=60.0, description="The heartbeat interval proposed to clients; 0 proposes none."
    )
    unread_seconds: Duration = Field(
        default=120.0,
        description="How long a client may leave all output unread before its connection is closed; 0 means no limit.",
    )
    transaction_operations: int = Field(
        default=1_000_000,
        ge=0,
        description="The number of publishes and settlements in one transaction; a publish counts once for each queue "
        "that it is routed to; 0 means no limit (TX-13).",
    )
    transaction_bytes: Size = Field(
        default=512 << 20,
        le=CONTENT_BYTES,
        description="The size of bodies and headers published in one transaction; 0 means as much as one record holds, "
        "which is 1 GiB in total (TX-13).",
    )
    transaction_age_seconds: Duration = Field(
        default=3600.0, description="How long a transaction with work in it may stay open; 0 means no limit (TX-13)."
    )
    connections_per_user: Connections = Field(
        default=0.8,
        description="The number of connections of a user without a limit of its own. By default, one user cannot take "
        "the places of all others.",
    )
    channels_per_user: int = Field(
        default=100_000, ge=0, description="The channels of a user without a limit of its own; 0 means no limit."
    )
    connections_per_vhost: Connections = Field(
        default=0.9,
        description="The number of connections to a virtual host without a limit of its own.",
    )
    queues_per_vhost: int = Field(
        default=20_000,
        ge=0,
        description="The number of queues in a virtual host without a limit of its own; 0 means no limit.",
    )
    held_memory_per_user: HeldMemory = Field(
        default=0.5,
        description="The memory that the clients of one user may hold in open transactions, unacknowledged deliveries, "
        "incomplete messages and subscriptions. At the limit its channels get no further deliveries, and growth is "
        "refused with 506 RESOURCE_ERROR.",
    )
    held_memory_per_vhost: HeldMemory = Field(
        default=0.75, description="The memory that all clients of one virtual host may hold in the same way."
    )
    held_back_reads: HeldMemory = Field(
        default=0.1,
        description="The memory for bytes of clients that wait to be read, for example during an alarm; half of it for "
        "those of one user. At the limit, clients are read in pieces of 4 KiB.",
    )
    termini_per_user: int = Field(
        default=10_000,
        ge=1,
        description="The number of AMQP 1.0 link termini of one user in one virtual host, attached and suspended ones "
        "(SEC-2).",
    )
    link_timeout_seconds: int = Field(
        default=604_800,
        ge=1,
        description="The longest timeout of a suspended AMQP 1.0 link that is granted. A client that asks for more is "
        "told so in the answer to its attach. Links whose expiry policy is `never` have no timeout.",
    )
    session_timeout_seconds: int = Field(
        default=600,
        ge=0,
        le=604_800,
        description="The longest timeout of a detached AMQP 0-10 session that is granted (`session.request-timeout`). "
        "A client that asks for more is told so in the answer. 0 ends sessions with their connections.",
    )
    branches_per_user: int = Field(
        default=10_000, ge=1, description="The number of open transaction branches (XA) of one user (SEC-2)."
    )
    prepared_branches_per_user: int = Field(
        default=10_000,
        ge=1,
        description="The number of transaction branches of one user that are in doubt or not yet forgotten. Further "
        "ones are rolled back instead of prepared (SEC-2).",
    )
    applications_per_user: int = Field(
        default=1_000, ge=1, description="The number of applications of one user whose progress is kept (SEC-2)."
    )
    groups_per_vhost: int = Field(default=10_000, ge=1, description="The number of consumer groups in a virtual host.")
    group_outstanding: int = Field(
        default=100_000,
        ge=1,
        description="The messages of a stream that a consumer group leases without settling them.",
    )
    lease_seconds: Duration = Field(default=604_800.0, ge=1, description="The longest lease; a longer one is reduced.")
