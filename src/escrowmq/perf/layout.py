"""The queues of a load, their bindings, and the routing keys under which messages are published."""

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
    """The routing keys of the messages; empty: the names of the queues."""


def layout_of(workload: Workload) -> Layout:
    """The queues get new names, unless the load names its queue."""
    base = workload.queue or f"perf-{secrets.token_hex(6)}"
    numbered = workload.queue is None or workload.queue_count > 1
    queues = [f"{base}-{i:04d}" if numbered else base for i in range(workload.queue_count)]
    if workload.fanout:
        return Layout(queues, _exchange_name(), "fanout", tuple((queue, "") for queue in queues), ("",))
    if workload.keys:
        regions = workload.regions
        bindings = tuple((queues[number % len(queues)], f"region.{number}.*") for number in range(regions))
        keys = tuple(f"region.{number % regions}.{number // regions}" for number in range(workload.keys))
        return Layout(queues, _exchange_name(), "topic", bindings, keys)
    return Layout(queues)


def _exchange_name() -> str:
    return f"perf-{secrets.token_hex(6)}"


def routing_keys(layout: Layout, workload: Workload, publisher: int, publishers: int) -> tuple[int, Iterator[str]]:
    """Return the number of routing keys of the publisher of that number, and an endless iterator over its messages'
    keys.

    The queues are divided among the publishers. The keys are used in turn, or picked at random if the load says so; the
    same publisher always picks the same keys.
    """
    queues = layout.queues
    own = layout.keys or queues[publisher::publishers] or [queues[publisher % len(queues)]]
    if not workload.random:
        return len(own), cycle(own)
    random = Random(publisher)  # noqa: S311 (not for secrets)
    return len(own), iter(lambda: random.choice(own), None)
