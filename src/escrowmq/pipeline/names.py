"""Check that names exist from declaration to deletion: virtual hosts, users, exchanges, queues, bindings.

Link termini and consumer groups are named by their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.findings import BranchRule
from escrowmq.pipeline.mentions import Mention
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
        numbered: whether the record has the last of the fields only, a number that is never used again.
    """

    what: str
    fields: tuple[str, ...]
    adds: bool
    again: bool = False
    numbered: bool = False


_NEVER: Final = 1 << 63
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
    Kind.TERMINUS_SET: Change("link terminus", ("vhost", "number"), adds=True, again=True),
    Kind.TERMINUS_DELETED: Change("link terminus", ("vhost", "number"), adds=False, numbered=True),
    Kind.GROUP_SET: Change("consumer group", ("vhost", "number"), adds=True, again=True),
    Kind.GROUP_DELETED: Change("consumer group", ("vhost", "number"), adds=False, numbered=True),
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
        self.certain = certain
        """Whether all names are known."""
        self._since = 0
        """The LSN from which on everything that exists is known."""
        self._lives: dict[tuple[str, int], tuple[int, int]] = {}
        """The LSNs at which queues, link termini and consumer groups were added and removed, by their numbers."""
        self._wrong: list[Wrong] = []
        self._numbers: set[int] = set()
        self._vhosts = False
        self._vhost_of: dict[tuple[str, int], str] = {}
        self._dependents: dict[str, set[str]] = {}
        for key, number in list(known.items()):
            self._add(key, number)

    def check(
        self,
        rows: Iterable[tuple[int, int, int, bytes]],
        snapshots: Collection[int],
        mentions: Iterable[Mention] = (),
    ) -> list[Wrong]:
        """Check records, as (snapshot or -1, LSN, kind, payload), and compare them with snapshots at these LSNs. Check
        also that what other records mention exists there.
        """
        every = [row for row in rows if row[2] in TOLD]
        said = sorted(row[1:] for row in every if row[0] < 0)
        done = 0
        for lsn in sorted(snapshots):
            while done < len(said) and said[done][0] < lsn:
                self._apply(*said[done])
                done += 1
            held = [(kind, payload) for at, _, kind, payload in every if at == lsn and kind in CHANGES]
            self._compare(lsn, held)
        for row in said[done:]:
            self._apply(*row)
        for mention in mentions:
            self._mentioned(mention)
        return self._wrong

    def _mentioned(self, mention: Mention) -> None:
        """Check that something exists from its first mention to its last."""
        begin, end = self._lives.get((mention.what, mention.number), (_NEVER, _NEVER))
        title = f"{mention.what} number {mention.number}"
        for lsn in sorted({mention.first, mention.last}):
            if lsn < self._since:
                continue  # what existed there is not known
            if not begin <= lsn < end:
                state = "was removed" if lsn >= end else "does not exist"
                self._report(lsn, f"a record names the {title}, which {state}")
                return

    def _report(self, lsn: int, text: str) -> None:
        if self.certain:
            self._wrong.append(Wrong(BranchRule.NAMES, lsn, f": {text}"))

    def _apply(self, lsn: int, kind: int, payload: bytes) -> None:
        fields = decode_change(payload)
        if kind == Kind.POLICIES_APPLIED:
            vhost = _name("virtual host", fields["vhost"])
            if vhost not in self._known and self._vhosts:
                self._report(lsn, f"policies were applied, but {_title(vhost)} does not exist")
            return
        change = CHANGES[kind]
        key = self._key_of(change, fields)
        if not change.adds:
            if key not in self._known:
                self._report(lsn, f"{_title(key)} was removed, but does not exist")
            self._remove(key, lsn)
            return
        if key in self._known and not change.again:
            self._report(lsn, f"{_title(key)} was added, but exists")
        for name in self._needed(key):
            if name not in self._known:
                self._report(lsn, f"{_title(key)} was added, but {_title(name)} does not exist")
        number = int(fields.get("id", 0))
        if change.what == "queue" and number in self._numbers:
            self._report(lsn, f"{_title(key)} got the number {number}, which another queue has")
        self._add(key, number, lsn)

    def _key_of(self, change: Change, fields: dict[str, Any]) -> str:
        """Return the name that a record is about, with the virtual host of a number that exists."""
        if change.numbered:
            fields = {"vhost": self._vhost_of.get((change.what, fields["number"]), ""), **fields}
        return _key(change, fields)

    def _needed(self, key: str) -> list[str]:
        """Return the names that must exist for this one to be added."""
        return [
            name
            for name in _owners(json.loads(key))
            if json.loads(name)[0] != "virtual host" or self._vhosts  # a journal may not name virtual hosts at all
        ]

    def _add(self, key: str, number: int, lsn: int = 0) -> None:
        self._known[key] = number
        if life := _numbered(key, number):
            self._lives.setdefault(life, (lsn, _NEVER))
        self._numbers.add(number)
        match json.loads(key):
            case ["link terminus" | "consumer group" as what, vhost, of_its_own]:
                self._vhost_of[what, of_its_own] = vhost
        self._vhosts = self._vhosts or key.startswith('["virtual host"')
        for owner in _owners(json.loads(key)):
            self._dependents.setdefault(owner, set()).add(key)

    def _remove(self, key: str, lsn: int) -> None:
        """Remove a name, and the names that end with it and have no records of their own."""
        number = self._known.pop(key, 0)
        self._numbers.discard(number)
        life = _numbered(key, number)
        if life in self._lives:
            self._lives[life] = (self._lives[life][0], lsn)
        for dependent in self._dependents.pop(key, ()):
            self._remove(dependent, lsn)

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
            self._add(key, number, lsn)
        if not self.certain:
            self.certain, self._since = True, lsn


def _name(*parts: Any) -> str:
    return json.dumps(parts, default=str, sort_keys=True)


def _key(change: Change, fields: dict[str, Any]) -> str:
    return _name(change.what, *(fields[name] for name in change.fields))


def _numbered(key: str, number: int) -> tuple[str, int] | None:
    """Return what other records call a name that has a number."""
    match json.loads(key):
        case ["queue", *_]:
            return "queue", number
        case ["link terminus" | "consumer group" as what, _, of_its_own]:
            return what, of_its_own
    return None


def _owners(name: list[Any]) -> list[str]:
    """Return the names with which this one ends."""
    match name:
        case ["exchange" | "queue" | "consumer group", vhost, _] | ["policy", vhost, _, _]:
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
    if what in ("link terminus", "consumer group"):
        return plain(f"{what} number {parts[1]} {parts[0]}".rstrip())
    return plain(f"{what} {' '.join(map(str, reversed(parts)))}")
