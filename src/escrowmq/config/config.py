"""The whole configuration, made of its tables. `sources` reads it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from escrowmq.config.compatibility import CompatibilitySection
from escrowmq.config.half_messages import HalfMessagesSection
from escrowmq.config.limits import LimitsSection
from escrowmq.config.listeners import HttpSection, ListenSection, RocketmqSection
from escrowmq.config.log import LogSection
from escrowmq.config.replication import ReplicationSection
from escrowmq.config.resources import DiskSection, JournalSection, MemorySection
from escrowmq.config.security import SecuritySection, TlsSection, TokensSection
from escrowmq.config.values import File, Section


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
