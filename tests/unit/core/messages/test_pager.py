"""Content is read back from the log unchanged, for any size of read-ahead."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.budget import LOAD, LOADED_BYTES, TURN, Budget
from escrowmq.core.messages import pager as content
from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import TRANSIENT, Reference
from tests.unit.core.site import Site

ENVELOPE = Envelope("x", "k", b"header", durable=True)


def append(site: Site, contents: list[bytes], envelope: Envelope = ENVELOPE) -> int:
    lsn = site.journal.append(Kind.PAGE, *encode_block(5, envelope, contents))
    site.journal.retain(lsn, len(contents))
    return lsn


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("ahead", [20, 64, 1000, 1 << 18])
def test_blocks_are_read_at_any_address(monkeypatch: pytest.MonkeyPatch, ahead: int, synced: bool) -> None:
    monkeypatch.setattr(content, "READ_AHEAD", ahead)
    site = Site()
    written = [[b"%d-%d" % (n, i) * n for i in range(n % 4 + 1)] for n in range(100)]
    lsns = []
    for contents in written:
        lsns.append(append(site, contents))
        if synced:
            site.sync()
    pager = LogPager(site.journal)
    order = [*range(100), 99, 0, 50, 49, 51, 3]
    for n in order:
        block = pager.load(Reference(1, len(written[n]), lsns[n], 0))
        assert (block.contents, block.time) == (written[n], 5)
        last = len(written[n]) - 1
        assert pager.load(Reference(1, 1, lsns[n], last)).contents == written[n][last:]


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("ahead", [20, 64, 1000, 1 << 18])
def test_envelopes_are_read_without_their_contents(monkeypatch: pytest.MonkeyPatch, ahead: int, synced: bool) -> None:
    monkeypatch.setattr(content, "READ_AHEAD", ahead)
    site = Site()
    lsns = []
    for n in range(60):
        lsns.append(append(site, [bytes(n)], Envelope("x", "k" * n, durable=True, priority=n % 4)))
        if synced:
            site.sync()
    order = [*range(60), 59, 0, 30, 29, 31]
    found = list(LogPager(site.journal).envelopes([lsns[n] for n in order]))
    assert [(envelope.routing_key, envelope.priority) for envelope in found] == [("k" * n, n % 4) for n in order]
    assert found[59] is found[60]


def test_a_block_larger_than_the_read_ahead_is_read() -> None:
    site = Site()
    contents = [b"a" * 300_000, b"b" * 300_000]
    first, second = append(site, [b"small"]), append(site, contents)
    for _ in range(2):
        pager = LogPager(site.journal)
        assert pager.load(Reference(1, 1, first, 0)).contents == [b"small"]
        assert pager.load(Reference(1, 2, second, 0)).contents == contents
        site.sync()


class CountingLog:
    """A journal that counts the bytes read ahead."""

    def __init__(self, site: Site) -> None:
        self._journal = site.journal
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def read_ahead(self, lsn: int, most: int) -> bytes:
        found = self._journal.read_ahead(lsn, most)
        self.bytes += len(found)
        return found


def test_queues_loaded_in_turn_read_each_part_of_the_log_once() -> None:
    site = Site()
    lsns = [append(site, [b"x" * 1000]) for _ in range(3000)]
    site.sync()
    log = CountingLog(site)
    pager = LogPager(log)
    for near, far in zip(lsns[:1000], lsns[2000:], strict=True):
        pager.load(Reference(1, 1, near, 0))
        pager.load(Reference(1, 1, far, 0))
    assert log.bytes < 3_000_000


def test_the_gap_between_distant_blocks_is_not_read() -> None:
    site = Site()
    lsns = [append(site, [b"x" * 1000]) for _ in range(3000)]
    site.sync()
    log = CountingLog(site)
    pager = LogPager(log)
    for lsn in lsns[::100]:
        pager.load(Reference(1, 1, lsn, 0))
    assert log.bytes <= 30 * 8192


def test_the_cached_part_of_the_log_is_bounded() -> None:
    site = Site()
    lsns = [append(site, [b"x" * 100_000]) for _ in range(200)]
    site.sync()
    pager = LogPager(site.journal)
    for lsn in [*lsns, *lsns[::-7]]:
        assert pager.load(Reference(1, 1, lsn, 0)).contents == [b"x" * 100_000]
        assert pager._kept_bytes == sum(map(len, pager._chunks.values())) <= 4 << 20


def test_loading_is_charged_to_the_budget() -> None:
    site = Site()
    small, large = append(site, [b"x"]), append(site, [b"x" * (1 << 20)])
    budget = Budget()
    pager = LogPager(site.journal, budget)
    pager.load(Reference(1, 1, small, 0))
    assert budget.left == TURN - LOAD
    pager.load(Reference(1, 1, large, 0))
    assert budget.left == TURN - 2 * LOAD - (1 << 20) // LOADED_BYTES


def test_equal_envelopes_become_one_object() -> None:
    site = Site()
    lsns = [append(site, [b"x"], Envelope("x", "k", b"h")), append(site, [b"y"], Envelope("x", "k", b"h"))]
    other = append(site, [b"z"], Envelope("x", "other", b"h"))
    pager = LogPager(site.journal)
    first, second = (pager.load(Reference(1, 1, lsn, 0)).envelope for lsn in lsns)
    assert first is second
    assert pager.load(Reference(1, 1, other, 0)).envelope.routing_key == "other"


def test_the_cache_of_envelopes_is_bounded() -> None:
    site = Site()
    lsns = [append(site, [b"x"], Envelope("x", str(n))) for n in range(2000)]
    pager = LogPager(site.journal)
    keys = [pager.load(Reference(1, 1, lsn, 0)).envelope.routing_key for lsn in lsns]
    assert keys == [str(n) for n in range(2000)]
    assert len(pager._envelopes) <= 1024


def test_content_that_was_only_in_memory_is_stored_as_transient() -> None:
    site = Site()
    run = Run(ENVELOPE, 10, 7)
    lsn = site.broker.engine.pager.store(run, [b"a", b"b"])
    assert (run.lsn, run.index) == (lsn, TRANSIENT)
    assert site.live() == 2
    block = site.broker.engine.pager.load(Reference(11, 1, lsn, TRANSIENT + 1))
    assert (block.contents, block.time) == ([b"b"], 7)
