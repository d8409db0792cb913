"""What a journal has done since it was opened, and what it takes up."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class JournalStats:
    """Counters since the start; `segments` and `disk_bytes` are the present state."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    """Bytes of frames written."""
    syncs: int = 0
    sync_us_last: int = 0
    sync_us_total: int = 0
    sync_us_buckets: list[int] = field(default_factory=lambda: [0] * 25)
    """Item i counts the syncs that took at least 2**(i-1) and less than 2**i microseconds; the last one all longer
    ones.
    """
    snapshots: int = 0
    segments: int = 0
    segments_deleted: int = 0
    disk_bytes: int = 0
    """Bytes of all segments, as far as they are filled (reserved room not counted)."""

    def batch(self, records: int, size: int, sync_us: int) -> None:
        """Count one batch, written and synced."""
        self.batches += 1
        self.syncs += 1
        self.records += records
        self.bytes += size
        self.disk_bytes += size
        self.sync_us_last = sync_us
        self.sync_us_total += sync_us
        self.sync_us_buckets[min(sync_us.bit_length(), len(self.sync_us_buckets) - 1)] += 1

    def sync_us_quantile(self, share: float) -> int:
        """An upper bound in microseconds of the sync time below which this share (0 to 1) of the syncs lies; 0 if
        none.
        """
        rank = share * self.syncs
        seen = 0
        for i, count in enumerate(self.sync_us_buckets):
            seen += count
            if seen >= rank and seen:
                return 1 << i
        return 0
