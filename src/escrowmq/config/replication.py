"""The settings of the replicated log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from escrowmq.config.values import BrokerUrl, Duration, Secret, Section


class ReplicationSection(Section):
    """The replicated log, with which several brokers have the same journal: see
    [the guide](guides/replication.md).
    """

    url: Secret = Field(
        default=SecretStr(""),
        description="The log: `kafka://HOST:PORT,HOST:PORT/TOPIC` or `nats://HOST:PORT,HOST:PORT/STREAM`. Without it, "
        "the broker has its journal alone.",
    )
    node: str = Field(default="", max_length=200, description="The name of this node; by default, that of the machine.")
    advertised_url: BrokerUrl = Field(
        default="",
        max_length=1000,
        description="Where clients reach this node when it leads, for refusals and status; by default, the address "
        "on which it listens.",
    )
    acknowledge: Literal["both", "engine"] = Field(
        default="both",
        description="What an answer waits for: with `both`, until its records are synced on this machine and "
        "acknowledged by the log; with `engine`, only for the log. The records are on this machine then, too, but may "
        "be lost with its power.",
    )
    lease_seconds: Duration = Field(
        default=3.0,
        ge=0.5,
        le=600,
        description="The time without a sign of the leader after which another node takes over.",
    )
    heartbeat_seconds: Duration = Field(
        default=0.5,
        ge=0.05,
        le=60,
        description="The time without a write after which the leader appends a sign of life to the log. It must be "
        "less than half of `lease_seconds`.",
    )
    silence_seconds: Duration = Field(
        default=2.0,
        ge=0.1,
        le=600,
        description="The time without an answer of the log after which the leader delivers no more messages, since "
        "another node may lead. It must be less than `lease_seconds`.",
    )
    serve_reads: bool = Field(
        default=True,
        description="Whether this node, while it is a standby, serves batch reads of streams by the Spark connector. "
        "It reads its journal in a process of its own for them, which takes as much memory as a broker.",
    )
