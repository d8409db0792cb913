"""The queues of a load, how messages reach them, and under which routing keys they are published."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random

from escrowmq.perf.workload import Workload


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of queues and exchange, and bindings."""

    queues: list[str]
    exchange: str = ""
    """Empty: messages go to a queue by its name."""
    kind: str = ""
    """Of the exchange: fanout or topic."""
    bindings: tuple[tuple[str, str], ...] = ()
    """Queue and binding key."""
    keys: tuple[str, ...] = ()
    """The routing keys to publish under; empty: the names of the queues."""


def layout_of(workload: Workload) -> Layout:
    """New names, unless the load names its queue."""
    base = workload.queue or f"perf-{secrets.token_hex(6)}"
    numbered = workload.queue is None or workload.queue_count > 1
    queues = [f"{base}-{i:04d}" if numbered else base for i in range(workload.queue_count)]
    if workload.fanout:
        return Layout(queues, _exchange_name(), "fanout", tuple((queue, "") for queue in queues), ("",))
    if workload.keys:
        regions = workload.bindings
        bindings = tuple((queues[number % len(queues)], f"region.{number}.*") for number in range(regions))
        keys = tuple(f"region.{number % regions}.{number // regions}" for number in range(workload.keys))
        return Layout(queues, _exchange_name(), "topic", bindings, keys)
    return Layout(queues)


def _exchange_name() -> str:
    return f"perf-{secrets.token_hex(6)}"


def routing_keys(layout: Layout, workload: Workload, publisher: int, publishers: int) -> tuple[int, Iterator[str]]:
    """How many routing keys the publisher of that number has, and the keys of its messages without end.

    The names of queues are shared out to the publishers. The keys take turns, or are picked at random if the load says
    so; the same publisher always picks the same.
    """
    queues = layout.queues
    own = layout.keys or queues[publisher::publishers] or [queues[publisher % len(queues)]]
    if not workload.random:
        return len(own), cycle(own)
    random = Random(publisher)  # noqa: S311 (not for secrets)
    return len(own), iter(lambda: random.choice(own), None)
