"""A latency histogram of fixed relative error: log-linear buckets, as in HdrHistogram."""

from __future__ import annotations

from collections import defaultdict

_PRECISION_BITS = 7
_HALF = 1 << _PRECISION_BITS


class Histogram:
    """Counts values of nanoseconds; a percentile is at most 1/128 above the true one, the maximum is exact."""

    __slots__ = ("_buckets", "count", "maximum")

    def __init__(self) -> None:
        self._buckets: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        self.maximum = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count `value` (ns; below zero counts as zero) `times` times."""
        value = max(value, 0)
        self.maximum = max(self.maximum, value)
        self.count += times
        shift = value.bit_length() - _PRECISION_BITS - 1
        self._buckets[value if shift <= 0 else (value >> shift) + (shift << _PRECISION_BITS)] += times

    def add(self, other: Histogram) -> None:
        """Count the values of another histogram, too."""
        self.maximum = max(self.maximum, other.maximum)
        self.count += other.count
        for index, times in other._buckets.items():
            self._buckets[index] += times

    def percentile(self, percent: float) -> int:
        """Return the smallest bucket's upper edge (ns) with at least `percent` of the values at or below it; 0 when
        empty.
        """
        wanted = self.count * percent / 100
        seen = 0
        for index in sorted(self._buckets):
            seen += self._buckets[index]
            if seen >= wanted:
                return min(_upper_edge(index), self.maximum)
        return self.maximum

    def summary(self) -> dict[str, float]:
        """Count, and p50, p95, p99, p99.9 and the maximum in microseconds."""
        return {
            "count": self.count,
            "p50": self.percentile(50) / 1000,
            "p95": self.percentile(95) / 1000,
            "p99": self.percentile(99) / 1000,
            "p99.9": self.percentile(99.9) / 1000,
            "max": self.maximum / 1000,
        }


def _upper_edge(index: int) -> int:
    if index < 2 * _HALF:
        return index
    shift = (index >> _PRECISION_BITS) - 1
    mantissa = index - (shift << _PRECISION_BITS)
    return ((mantissa + 1) << shift) - 1
