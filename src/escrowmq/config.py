"""The configuration: its settings, their defaults and limits. `config_sources` reads them.

The fields' descriptions are the documentation: docs/configuration.md is generated from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from escrowmq.config_replication import ReplicationSection
from escrowmq.config_values import (
    MOST_CHECKS,
    Connections,
    Duration,
    File,
    HeldMemory,
    Listen,
    Mechanism,
    Secret,
    Section,
    Size,
    TokenAlgorithm,
    TopicChecks,
    Version,
    Watermark,
    some_algorithm,
    some_mechanism,
)
from escrowmq.units import Address

CONTENT_BYTES = 896 << 20
"""The limit for bodies and headers in one record of the journal. The rest of a record holds their metadata."""


class ConfigError(Exception):
    """The faults of a configuration, one line each: file, key, and the expected value."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class ListenSection(Section):
    """The addresses for clients."""

    address: Listen = Field(default=Address("127.0.0.1", 5672), description="The address for AMQP clients without TLS.")
    tls_address: Listen | None = Field(
        default=None, description="The address for AMQP clients with TLS; requires `tls.certificate` and `tls.key`."
    )
    backlog: int = Field(
        default=1024, ge=1, le=65535, description="The number of connections that may wait to be accepted."
    )


class TlsSection(Section):
    """The certificates for `listen.tls_address`, and for HTTP with `http.tls`."""

    certificate: File | None = Field(default=None, description="The server's certificate chain in PEM format.")
    key: File | None = Field(
        default=None, description="The certificate's private key in PEM format, without a passphrase."
    )
    ca: File | None = Field(
        default=None, description="The authorities for checking client certificates, in PEM format."
    )
    verify_client: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether clients present a certificate. `EXTERNAL` needs one and takes the user name from it.",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="The oldest supported version of TLS.")


def in_bytes(mark: float, total: int) -> int:
    """Return a watermark in bytes: a whole number is one already, another one is a share of `total`."""
    return mark if isinstance(mark, int) else int(mark * total)


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


class HalfMessagesSection(Section):
    """When producers are asked about half messages, and how many of them there may be."""

    timeout_seconds: Duration = Field(
        default=6.0, ge=0.001, description="The time from the arrival of a half message to its first check."
    )
    check_interval_seconds: Duration = Field(
        default=30.0,
        ge=0.001,
        description="The time from one check to the next, and from the last one until the message is parked.",
    )
    checks: int = Field(
        default=15, ge=1, le=MOST_CHECKS, description="The number of checks. Only checks that reach a producer count."
    )
    topics: tuple[TopicChecks, ...] = Field(
        default=(),
        strict=False,
        description="Topics with other values: virtual host, topic, timeout, interval and number of checks, as in "
        '`"/ orders 10s 1m 5"`.',
    )
    outcome_kept_seconds: Duration = Field(
        default=900.0,
        ge=1,
        description="The time for which the outcome of a half message stays known. A later decision is refused, also a "
        "repeated one.",
    )
    outcomes: int = Field(
        default=500_000,
        ge=1,
        description="The number of outcomes that stay known in one virtual host; the oldest are forgotten first. Each "
        "takes about 200 bytes of memory.",
    )
    per_user: int = Field(
        default=2_000_000,
        ge=1,
        description="The number of undecided half messages of one user in one virtual host. They also count in "
        "`limits.held_memory_per_user`, with 256 bytes each.",
    )


class MemorySection(Section):
    """When publishers are blocked, and how much of a queue stays in memory."""

    high_watermark: Watermark = Field(
        default=0.4, description="The memory of the process above which publishers are blocked until it falls again."
    )
    queue_resident_bytes: Size = Field(
        default=16 << 20,
        ge=65_536,
        description="The size of the messages that one queue keeps in memory; the rest is read back from disk.",
    )

    grace_seconds: Duration = Field(
        default=30.0,
        description="The time for which the channels of a user may hold much memory (unacknowledged deliveries, open "
        "transactions, incomplete messages) while publishers are blocked for lack of it. Then the heaviest channels "
        "are closed; 0 means never.",
    )

    def high_watermark_bytes(self, total: int) -> int:
        """Return the high watermark in bytes on a machine with `total` bytes of memory."""
        return in_bytes(self.high_watermark, total)


class DiskSection(Section):
    """When publishers are blocked because the disk is nearly full."""

    free_limit: Size = Field(
        default=256 << 20, description="The free space on the data directory's disk below which publishers are blocked."
    )


class JournalSection(Section):
    """The log in the data directory."""

    segment_bytes: Size = Field(
        default=64 << 20, ge=1 << 20, le=1 << 34, description="The size at which a new segment begins."
    )
    snapshot_bytes: Size = Field(
        default=256 << 20,
        ge=1 << 20,
        description="The amount of log since the last snapshot at which a new one is taken.",
    )
    compaction_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Segments with a smaller share of live messages are compacted; 0 disables compaction.",
    )
    retain_bytes: Size = Field(
        default=0,
        description="The amount of history to keep for audits although the broker no longer needs it, newest first.",
    )
    detail: Literal["none", "deliveries"] = Field(
        default="none", description="Whether the log records each delivery, with consumer and time, for audits."
    )
    chain: Literal["headers", "contents"] = Field(
        default="headers",
        description="What the digests are made of, with which audits prove that the log continues and that no record "
        "was changed: the headers of frames, which have checksums of their contents, or whole frames, so that a change "
        "that keeps the checksum is found, too.",
    )


class SecuritySection(Section):
    """How clients authenticate, and the user and virtual host of the first start."""

    mechanisms: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(some_mechanism)] = Field(
        default=("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        description="The SASL mechanisms to offer, in this order. `SCRAM-SHA-256` and `SCRAM-SHA-512` are offered as "
        "soon as every user with a password has keys for them, which are stored with new passwords and at logins with "
        "`PLAIN`. Without these mechanisms, no such keys are stored.",
    )
    scram_iterations: int = Field(
        default=10_000,
        ge=4096,
        le=1_000_000,
        description="The number of iterations for the keys of SCRAM. Clients compute them at each login, the broker "
        "for each new password and, after a change of this number, at a user's next login with `PLAIN`.",
    )
    anonymous_user: str = Field(
        default="",
        description="The existing user as which clients without credentials log in, if `security.mechanisms` has "
        "`ANONYMOUS`. Without it, such logins are refused.",
    )
    websocket_origins: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        description="The origins of web pages that may connect by WebSocket, such as `https://example.com`; `*` "
        "permits all of them. Clients that are no browsers send no origin and need no permission.",
    )
    guest_loopback_only: bool = Field(
        default=True, description="Whether the user `guest` may connect only from this machine."
    )
    default_user: str = Field(default="guest", min_length=1, description="The user to create at the first start.")
    default_password: Secret = Field(default=SecretStr("guest"), description="The password of that user.")
    default_vhost: str = Field(default="/", min_length=1, description="The virtual host to create at the first start.")


class TokensSection(Section):
    """Logins by bearer tokens (JWT) of an authorization server: see [the guide](guides/tokens.md)."""

    issuer: str = Field(
        default="",
        description="The claim `iss` of every token. By default, no tokens are accepted. It needs `pip install "
        "'escrowmq[tokens]'`.",
    )
    audience: str = Field(
        default="", description="The name of this broker among the claims `aud` of every token. It is required."
    )
    keys_file: File | None = Field(
        default=None, description="A file with the issuer's public keys, a key set in JSON (RFC 7517)."
    )
    keys_url: str = Field(
        default="",
        description="The address of the same, in place of a file. It must begin with `https:`, except on this machine.",
    )
    ca: File | None = Field(
        default=None,
        description="The authorities for the certificate at `tokens.keys_url`, in PEM format; by default, those of the "
        "system.",
    )
    refresh_seconds: Duration = Field(
        default=300.0,
        ge=1,
        description="The time after which the keys are read again. They are also read again when a token names an "
        "unknown key, at most once in 10 seconds.",
    )
    timeout_seconds: Duration = Field(
        default=5.0, ge=0.1, le=60, description="The time limit for the answer from `tokens.keys_url`."
    )
    algorithms: Annotated[tuple[TokenAlgorithm, ...], Field(strict=False), AfterValidator(some_algorithm)] = Field(
        default=("RS256", "ES256", "EdDSA", "Ed25519"),
        description="The accepted algorithms of signatures. Those with a shared secret are not supported.",
    )
    leeway_seconds: Duration = Field(
        default=5.0, le=300, description="How much the clocks of the issuer and of this machine may differ."
    )
    user_claim: str = Field(default="sub", min_length=1, description="The claim that has the name of the user.")
    scope_claim: str = Field(
        default="scope",
        min_length=1,
        description="The claim that has the scopes, as a list or as a text with spaces between them.",
    )
    scope_prefix: str | None = Field(
        default=None,
        description="The beginning of scopes that concern this broker. By default, it is `tokens.audience` and a dot. "
        "Other scopes are ignored.",
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


class CompatibilitySection(Section):
    """Concessions to clients that were written for another broker."""

    rabbitmq_version: Version = Field(
        default="",
        description="If it is set, for example to `4.2.0`, AMQP 1.0 clients are told that this is RabbitMQ of that "
        "version. RabbitMQ's own AMQP 1.0 clients need it: the Python client refuses other products, the Java client "
        "refuses versions below 4.0.0, and both use a feature only from the version on in which RabbitMQ got it. The "
        "setting has further effects, which [the guide](guides/amqp10-management.md) lists. By default, clients are "
        "told the broker's own name and version.",
    )
    unknown_header: Literal["0-9-1", "0-10", "1.0"] = Field(
        default="0-9-1",
        description="The version of AMQP whose protocol header answers a client that does not send AMQP, before the "
        "broker closes the connection. An unknown version of AMQP is answered by the version of its own kind: 0-9-1, "
        "0-10 or 1.0.",
    )


class LogSection(Section):
    """The broker's log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The lowest level to log.")
    format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object per line."
    )


class Config(Section):
    """The whole configuration."""

    data_dir: File = Field(
        default=Path("escrowmq-data"), description="The folder of the journal, which is created if it does not exist."
    )
    load_definitions: File | None = Field(
        default=None,
        description="A file of definitions, in RabbitMQ's form, that is imported at each start before clients can "
        "connect: see [the guide](guides/http-api.md#definitions).",
    )
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    half_messages: HalfMessagesSection = HalfMessagesSection()
    memory: MemorySection = MemorySection()
    disk: DiskSection = DiskSection()
    journal: JournalSection = JournalSection()
    replication: ReplicationSection = ReplicationSection()
    security: SecuritySection = SecuritySection()
    tokens: TokensSection = TokensSection()
    rocketmq: RocketmqSection = RocketmqSection()
    http: HttpSection = HttpSection()
    compatibility: CompatibilitySection = CompatibilitySection()
    log: LogSection = LogSection()
