"""The settings of what the broker uses of the machine: memory, disk, and the log in the data directory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from escrowmq.config.values import Duration, Section, Size, Watermark, in_bytes


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
