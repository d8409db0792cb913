"""Counters of the journal."""

from __future__ import annotations

from escrowmq.journal.stats import JournalStats


def test_batches_are_summed() -> None:
    stats = JournalStats()
    stats.batch(3, 200, 50)
    stats.batch(1, 100, 5000)
    assert (stats.batches, stats.syncs, stats.records, stats.bytes, stats.disk_bytes) == (2, 2, 4, 300, 300)
    assert (stats.sync_us_last, stats.sync_us_total) == (5000, 5050)


def test_quantiles_are_upper_bounds() -> None:
    stats = JournalStats()
    assert stats.sync_us_quantile(0.5) == 0
    for sync_us in [30] * 99 + [3000]:
        stats.batch(1, 1, sync_us)
    assert stats.sync_us_quantile(0.5) == 32
    assert stats.sync_us_quantile(0.99) == 32
    assert stats.sync_us_quantile(1.0) == 4096


def test_a_very_long_sync_is_counted_in_the_last_bucket() -> None:
    stats = JournalStats()
    stats.batch(1, 1, 10**9)
    assert stats.sync_us_buckets[-1] == 1
