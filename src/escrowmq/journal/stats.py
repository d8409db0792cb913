"""Counters of a journal since it was opened, and its size on disk."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class JournalStats:
    """Counters since the journal was opened. `segments` and `disk_bytes` are current values."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    """The size of the frames written."""
    syncs: int = 0
    sync_us_last: int = 0
    sync_us_total: int = 0
    sync_us_buckets: list[int] = field(default_factory=lambda: [0] * 25)
    """Item i counts the syncs of at least 2**(i-1) and less than 2**i microseconds; the last, all longer ones."""
    snapshots: int = 0
    segments: int = 0
    segments_deleted: int = 0
    disk_bytes: int = 0
    """The size of all segments without preallocated space."""

    def batch(self, records: int, size: int, sync_us: int) -> None:
        """Count one batch that was written and synced."""
        self.batches += 1
        self.syncs += 1
        self.records += records
        self.bytes += size
        self.disk_bytes += size
        self.sync_us_last = sync_us
        self.sync_us_total += sync_us
        self.sync_us_buckets[min(sync_us.bit_length(), len(self.sync_us_buckets) - 1)] += 1

    def sync_us_quantile(self, share: float) -> int:
        """Return an upper bound in microseconds of this quantile (0 to 1) of the sync times; 0 without any sync."""
        rank = share * self.syncs
        seen = 0
        for i, count in enumerate(self.sync_us_buckets):
            seen += count
            if seen >= rank and seen:
                return 1 << i
        return 0
