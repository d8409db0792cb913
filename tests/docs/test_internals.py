"""The pages for developers: every file and every name of the core that they mention exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from escrowmq.core import engine, ports
from escrowmq.core.access.access import Access
from escrowmq.core.access.door import Door
from escrowmq.core.branches import branch, decision, transactions
from escrowmq.core.messages import entry, envelope, formats
from escrowmq.core.ports import Log, Receiver
from escrowmq.core.queues import credit, discipline, fifo, outcome, priority, queue, unsettled
from escrowmq.core.records import blocks, commits, kinds, moves, publishing, queue_state, references, settling
from escrowmq.core.termini import loan, registry, terminus
from escrowmq.core.topology.arguments import consumer as consumer_arguments
from escrowmq.core.topology.arguments import queue as arguments
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire import endpoint, flow, login, neutral, outbox, sniff
from tests.docs.pages import name
from tests.simulation import dialect, world
from tests.unit.sources import ROOT

PAGES = sorted(
    [*(ROOT / "docs" / "internals").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md"), ROOT / "CONTRIBUTING.md"]
)
FILE = re.compile(r"`((?:src|tests|tools|bench|docs)/[\w./-]*)`")
MEMBER = re.compile(r"`([A-Z]\w+)\.([a-z_]\w*)(?:\(|`)")
NAME = re.compile(r"`([A-Z][A-Za-z_]+[a-z]\w*|[A-Z]+_[A-Z_]+)`")
MODULES = (
    arguments,
    branch,
    engine,
    ports,
    transactions,
    consumer_arguments,
    credit,
    decision,
    entry,
    envelope,
    formats,
    discipline,
    fifo,
    priority,
    outcome,
    queue,
    blocks,
    commits,
    kinds,
    moves,
    publishing,
    queue_state,
    references,
    settling,
    loan,
    registry,
    terminus,
    endpoint,
    flow,
    login,
    neutral,
    outbox,
    sniff,
    unsettled,
    dialect,
    world,
)
OTHERS = {"Access": Access, "Door": Door, "Log": Log, "Receiver": Receiver, "VirtualHost": VirtualHost}
HOWTO = [ROOT / "docs" / "internals" / f"adding-a-{what}.md" for what in ("protocol", "queue-feature")]


def found(word: str) -> list[object]:
    """Return the objects of the core and the wire with this name."""
    return [vars(module)[word] for module in MODULES if word in vars(module)] + [
        other for key, other in OTHERS.items() if key == word
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_files_exist(page: Path) -> None:
    missing = [path for path in FILE.findall(page.read_text(encoding="utf-8")) if not (ROOT / path).exists()]
    assert not missing


def has(thing: object, member: str) -> bool:
    """As a method, a slot or field, or set when it is made."""
    annotations: dict[str, object] = getattr(thing, "__annotations__", {})
    set_in_class = isinstance(thing, type) and f"self.{member}" in inspect.getsource(thing)
    return hasattr(thing, member) or member in annotations or set_in_class


@pytest.mark.parametrize("page", HOWTO, ids=name)
def test_named_members_exist(page: Path) -> None:
    members = MEMBER.findall(page.read_text(encoding="utf-8"))
    assert members
    for owner, member in members:
        assert any(has(thing, member) for thing in found(owner)), f"{owner}.{member}"


@pytest.mark.parametrize("page", HOWTO, ids=name)
def test_named_objects_exist(page: Path) -> None:
    names = NAME.findall(page.read_text(encoding="utf-8"))
    assert names
    assert [word for word in names if not found(word)] == []
