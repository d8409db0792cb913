"""Judges what is left after replicated brokers were killed: the messages, and the journals of all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Known(NamedTuple):
    """What the clients know, and what the queue contains in the end."""

    confirmed: Sequence[bytes]
    committed: Sequence[Sequence[bytes]]
    begun: Sequence[Sequence[bytes]]
    taken: Sequence[bytes]
    """Removed by a transaction whose commit was answered."""
    uncertain: Iterable[bytes]
    """Removed by a transaction whose commit was not answered."""
    left: Sequence[bytes]


def judge(known: Known) -> None:
    """Fail if a confirmed message is lost, one is there twice, or a transaction is there in part."""
    there = Counter(known.left) + Counter(known.taken)
    doubled = [body for body, times in there.items() if times > 1]
    assert not doubled, f"{len(doubled)} messages are there more than once: {doubled[:5]}"
    found = set(there) | set(known.uncertain)
    lost = [body for body in known.confirmed if body not in found]
    assert not lost, f"{len(lost)} confirmed messages are lost: {lost[:5]}"
    gone = [body for group in known.committed for body in group if body not in found]
    assert not gone, f"{len(gone)} messages of committed transactions are lost: {gone[:5]}"
    torn = [group for group in known.begun if 0 < sum(body in found for body in group) < len(group)]
    assert not torn, f"{len(torn)} transactions are there in part: {torn[:2]}"


def compare(journals: Sequence[dict[str, bytes]]) -> None:
    """Fail if two nodes have different journals. Segments that one of them has not or has no more are left out."""
    first, *others = journals
    for other in others:
        shared = first.keys() & other.keys()
        assert shared, "two nodes have no segment in common"
        differing = [name for name in sorted(shared) if first[name] != other[name]]
        assert not differing, f"nodes have different bytes in {differing}"
