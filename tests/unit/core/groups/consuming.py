"""A topic and a consumer group on a broker in memory, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from escrowmq.core.groups.group import Group, Lease
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.stream import StreamQueue
from tests.unit.core.site import Site

INVISIBLE = 1000


class Json:
    """A format with the headers as JSON in the envelope."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        return json.loads(envelope.header or b"{}")  # type: ignore[no-any-return]

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        return envelope, content


class Member:
    """A member that waits, and leases one message each time it is called, as long as it gets any."""

    def __init__(self, name: str, calls: list[str], consuming: Consuming, *, takes: bool = True) -> None:
        self.name = name
        self.calls = calls
        self.consuming = consuming
        self.takes = takes

    def ready(self) -> None:
        got = self.consuming.lease(1) if self.takes else []
        self.calls.append(self.name + "".join(lease.entry.content.decode() for lease in got))


class Consuming:
    """A topic `t` with one stream or more, and a group `g`."""

    def __init__(self, site: Site | None = None, *, partitions: int = 1, **options: Any) -> None:
        self.site = site or Site()
        self.site.broker.formats[0] = Json()
        self.site.broker.topics.declare(self.site.vhost, "t", partitions)
        self.group = self.site.broker.groups.declare("/", "g", GroupOptions(**options), user="u")

    @property
    def streams(self) -> Sequence[StreamQueue]:
        topic = self.site.broker.topics.find(self.site.vhost, "t")
        assert topic is not None
        return topic.streams

    @property
    def stream(self) -> StreamQueue:
        return self.streams[0]

    def publish(self, *contents: str, key: str | None = None, partition: int = 0) -> None:
        headers = {"x-partition": partition} | ({} if key is None else {"x-partition-key": key})
        self.site.publish(
            "", *[content.encode() for content in contents], exchange="t", header=json.dumps(headers).encode()
        )

    def lease(
        self,
        most: int = 100,
        invisible_ms: int = INVISIBLE,
        wants: Callable[[StreamQueue, Entry], bool] | None = None,
        group: Group | None = None,
    ) -> list[Lease]:
        return (group or self.group).lease(self.streams, most, invisible_ms, wants).leases

    def bodies(self, *args: Any, **kwargs: Any) -> str:
        """Lease messages, and return their bodies."""
        return said(self.lease(*args, **kwargs))

    def settle(self, *leases: Lease) -> list[bool]:
        """Settle leases one by one. Return for each whether it was accepted."""
        return [not self.group.settle([lease.handle]).stale for lease in leases]

    def restart(self) -> Consuming:
        """Return the same topic and group on the broker that is restored from the synced data."""
        restored = object.__new__(Consuming)
        restored.site = self.site.restart()
        restored.site.broker.formats[0] = Json()
        restored.site.broker.random.randbytes(4)  # a real broker gets other random numbers
        group = restored.site.broker.groups.find("/", "g")
        assert group is not None
        restored.group = group
        return restored


def said(leases: Sequence[Lease]) -> str:
    return "".join(lease.entry.content.decode() for lease in leases)
