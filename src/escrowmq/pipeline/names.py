"""Check that names exist from declaration to deletion: virtual hosts, users, exchanges, queues, bindings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.findings import BranchRule
from escrowmq.pipeline.sequences import Wrong

PREDECLARED: Final = frozenset({"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"})
"""Exchanges that every virtual host has, and no record declares."""


class Change(NamedTuple):
    """What a kind of record does to a name.

    Args:
        what: the kind of name.
        fields: the fields that identify it.
        adds: whether the record adds the name, or removes it.
        again: whether a record may add a name that exists, in order to change it.
    """

    what: str
    fields: tuple[str, ...]
    adds: bool
    again: bool = False


_BINDING: Final = ("vhost", "source", "destination", "to_exchange", "key", "arguments")
CHANGES: Final[dict[int, Change]] = {
    Kind.VHOST_SET: Change("virtual host", ("name",), adds=True, again=True),
    Kind.VHOST_DELETED: Change("virtual host", ("name",), adds=False),
    Kind.EXCHANGE_DECLARED: Change("exchange", ("vhost", "name"), adds=True),
    Kind.EXCHANGE_DELETED: Change("exchange", ("vhost", "name"), adds=False),
    Kind.QUEUE_DECLARED: Change("queue", ("vhost", "name"), adds=True),
    Kind.QUEUE_DELETED: Change("queue", ("vhost", "name"), adds=False),
    Kind.BOUND: Change("binding", _BINDING, adds=True),
    Kind.UNBOUND: Change("binding", _BINDING, adds=False),
    Kind.TRANSIENT_BOUND: Change("transient bindings", ("vhost", "name"), adds=True),
    Kind.USER_SET: Change("user", ("name",), adds=True, again=True),
    Kind.USER_DELETED: Change("user", ("name",), adds=False),
    Kind.PERMISSION_SET: Change("permission", ("user", "vhost"), adds=True, again=True),
    Kind.PERMISSION_DELETED: Change("permission", ("user", "vhost"), adds=False),
    Kind.TOPIC_PERMISSION_SET: Change("topic permission", ("user", "vhost", "exchange"), adds=True, again=True),
    Kind.TOPIC_PERMISSION_DELETED: Change("topic permission", ("user", "vhost", "exchange"), adds=False),
    Kind.POLICY_SET: Change("policy", ("vhost", "operator", "name"), adds=True, again=True),
    Kind.POLICY_DELETED: Change("policy", ("vhost", "operator", "name"), adds=False),
    Kind.PARAMETER_SET: Change("global parameter", ("name",), adds=True, again=True),
    Kind.PARAMETER_DELETED: Change("global parameter", ("name",), adds=False),
}
"""The kinds of records that are checked here."""
TOLD: Final = frozenset((*CHANGES, Kind.POLICIES_APPLIED))
"""The kinds of records that tell of names and what they stand for."""

State = dict[str, int]
"""The names that exist, as JSON lists of the kind of name and its fields. The value is the number of a queue, or 0."""


class ExistingNames:
    """Follows the names through the log."""

    def __init__(self, known: State, *, certain: bool) -> None:
        """Continue from the names of the previous run, which are updated in place.

        `certain` says whether they are all: that is so if no part of the log before is missing.
        """
        self._known = known
        self._certain = certain
        self._wrong: list[Wrong] = []
        self._numbers: set[int] = set()
        self._vhosts = False
        self._dependents: dict[str, set[str]] = {}
        for key, number in list(known.items()):
            self._add(key, number)

    def check(self, rows: Iterable[tuple[int, int, int, bytes]], snapshots: Collection[int]) -> list[Wrong]:
        """Check records, as (snapshot or -1, LSN, kind, payload), and compare them with snapshots at these LSNs."""
        every = [row for row in rows if row[2] in CHANGES]
        said = sorted(row[1:] for row in every if row[0] < 0)
        done = 0
        for lsn in sorted(snapshots):
            while done < len(said) and said[done][0] < lsn:
                self._apply(*said[done])
                done += 1
            self._compare(lsn, [(kind, payload) for snapshot, _, kind, payload in every if snapshot == lsn])
        for row in said[done:]:
            self._apply(*row)
        return self._wrong

    def _report(self, lsn: int, text: str) -> None:
        if self._certain:
            self._wrong.append(Wrong(BranchRule.NAMES, lsn, f": {text}"))

    def _apply(self, lsn: int, kind: int, payload: bytes) -> None:
        change, fields = CHANGES[kind], decode_change(payload)
        key = _key(change, fields)
        if not change.adds:
            if key not in self._known:
                self._report(lsn, f"{_title(key)} was removed, but does not exist")
            self._remove(key)
            return
        if key in self._known and not change.again:
            self._report(lsn, f"{_title(key)} was added, but exists")
        for name in self._needed(key):
            if name not in self._known:
                self._report(lsn, f"{_title(key)} was added, but {_title(name)} does not exist")
        number = int(fields.get("id", 0))
        if change.what == "queue" and number in self._numbers:
            self._report(lsn, f"{_title(key)} got the number {number}, which another queue has")
        self._add(key, number)

    def _needed(self, key: str) -> list[str]:
        """Return the names that must exist for this one to be added."""
        return [
            name
            for name in _owners(json.loads(key))
            if json.loads(name)[0] != "virtual host" or self._vhosts  # a journal may not name virtual hosts at all
        ]

    def _add(self, key: str, number: int) -> None:
        self._known[key] = number
        self._numbers.add(number)
        self._vhosts = self._vhosts or key.startswith('["virtual host"')
        for owner in _owners(json.loads(key)):
            self._dependents.setdefault(owner, set()).add(key)

    def _remove(self, key: str) -> None:
        """Remove a name, and the names that end with it and have no records of their own."""
        self._numbers.discard(self._known.pop(key, 0))
        for dependent in self._dependents.pop(key, ()):
            self._remove(dependent)

    def _compare(self, lsn: int, rows: Iterable[tuple[int, bytes]]) -> None:
        """Compare the names with those of a snapshot taken at `lsn`, and adopt the latter."""
        held: State = {}
        for kind, payload in rows:
            fields = decode_change(payload)
            held[_key(CHANGES[kind], fields)] = int(fields.get("id", 0))
        for key in sorted(held.keys() ^ self._known.keys()):
            where = "no record has added it" if key in held else "it is missing there"
            self._report(lsn, f"{_title(key)}: the broker's snapshot and the log disagree, {where}")
        for key in sorted(held.keys() & self._known.keys()):
            if held[key] != self._known[key]:
                self._report(lsn, f"{_title(key)}: the broker's snapshot has the number {held[key]}")
        self._known.clear()
        self._numbers.clear()
        self._dependents.clear()
        for key, number in held.items():
            self._add(key, number)
        self._certain = True


def _name(*parts: Any) -> str:
    return json.dumps(parts, default=str, sort_keys=True)


def _key(change: Change, fields: dict[str, Any]) -> str:
    return _name(change.what, *(fields[name] for name in change.fields))


def _owners(name: list[Any]) -> list[str]:
    """Return the names with which this one ends."""
    match name:
        case ["exchange" | "queue", vhost, _] | ["policy", vhost, _, _]:
            return [_name("virtual host", vhost)]
        case ["transient bindings", vhost, exchange]:
            owner = [_name("exchange", vhost, exchange)] if exchange not in PREDECLARED else []
            return [_name("virtual host", vhost), *owner]
        case ["permission" | "topic permission", user, vhost, *_]:
            return [_name("user", user), _name("virtual host", vhost)]
        case ["binding", vhost, source, destination, to_exchange, *_]:
            ends = [("exchange", source), ("exchange" if to_exchange else "queue", destination)]
            named = [_name(what, vhost, end) for what, end in ends if what == "queue" or end not in PREDECLARED]
            return [_name("virtual host", vhost), *named]
    return []


def _title(key: str) -> str:
    what, *parts = json.loads(key)
    if what == "binding":
        vhost, source, destination, _, routing_key, *_ = parts
        return plain(f"the binding of {destination} to exchange {source} with key {routing_key!r} in {vhost}")
    if what == "policy":
        vhost, operator, name = parts
        return plain(f"{'operator policy' if operator else 'policy'} {name} {vhost}")
    return plain(f"{what} {' '.join(map(str, reversed(parts)))}")
