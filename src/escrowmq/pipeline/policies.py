"""The policies that queues follow at any point of the log.

From the record of a change on, some queues follow it, and others still follow the policies before. The record
POLICIES_APPLIED ends that. In between, either explains what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from escrowmq.core.policies.matching import PolicySet
from escrowmq.core.policies.merging import with_definition
from escrowmq.core.policies.policy import policy_of
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.columns import plain

KINDS: Final = frozenset((Kind.POLICY_SET, Kind.POLICY_DELETED, Kind.POLICIES_APPLIED))
_END: Final = 1 << 62

KnownPhases = dict[str, list[list[Any]]]
"""The phases of each virtual host, as lists of their fields, for the state of the tables."""


class PolicyPhase(NamedTuple):
    """Policies that queues of a virtual host may follow.

    Args:
        since: the LSN of the change from which on some may.
        until: the LSN from which on none does.
        settled: the LSN from which on no queue follows earlier ones.
        policies: the policies; None if the log does not show them all.
    """

    since: int
    until: int
    settled: int
    policies: PolicySet | None

    def arguments(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments of a queue together with what these policies say; None if that is not known."""
        if self.policies is None:
            return None
        found = self.policies.effective(name, str(arguments.get("x-queue-type", "classic")))
        return with_definition(arguments, found.definition) if found else dict(arguments)


def changed(policies: PolicySet, kind: int, fields: Mapping[str, Any]) -> PolicySet:
    """Return the policies after a record POLICY_SET or POLICY_DELETED."""
    found = policies.copy()
    if kind == Kind.POLICY_SET:
        found.put(policy_of(fields))
    else:
        found.remove(fields["name"], operator=fields["operator"])
    return found


class PolicyHistory:
    """The phases of each virtual host. One without phases never had policies."""

    def __init__(self, known: KnownPhases) -> None:
        self.phases: dict[str, list[PolicyPhase]] = {
            vhost: [
                PolicyPhase(since, until, settled, None if policies is None else _set_of(policies))
                for since, until, settled, policies in some
            ]
            for vhost, some in known.items()
        }

    def follow(
        self, rows: Iterable[tuple[int, int, int, bytes]], begin: int, snapshots: Sequence[int], *, certain: bool
    ) -> None:
        """Apply the records of a run, as (snapshot or -1, LSN, kind, payload).

        Args:
            rows: the records; those of other kinds are left out.
            begin: the LSN at which the run begins. Phases that ended before are forgotten.
            snapshots: the LSNs of the snapshots among the rows.
            certain: whether the policies before the run are known. If not, the first snapshot tells them.
        """
        every = sorted(row for row in rows if row[2] in KINDS or row[2] == Kind.VHOST_DELETED)
        after = -1
        if not certain and snapshots:
            after = min(snapshots)
            past = [row for row in every if row[0] == after or (row[0] < 0 and row[1] < after)]
            self._adopt(after, past)
        for snapshot, lsn, kind, payload in every:
            if snapshot < 0 and lsn >= after:
                self._apply(lsn, kind, decode_change(payload))
        for vhost, phases in list(self.phases.items()):
            self.phases[vhost] = [phase for phase in phases if phase.until >= begin]

    def _adopt(self, lsn: int, rows: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Begin with the policies in the snapshot at `lsn`; `rows` are its records, and those before it. Those of the
        virtual hosts with such records are not known before it, nor until the snapshot or a later record says that all
        queues follow them.
        """
        found: dict[str, PolicySet] = {}
        settled = set()
        for snapshot, _, kind, payload in rows:
            if kind not in KINDS:
                continue
            fields = decode_change(payload)
            policies = found.setdefault(plain(fields["vhost"]), PolicySet())
            if snapshot == lsn and kind == Kind.POLICY_SET:
                policies.put(policy_of(fields))
            elif snapshot == lsn:
                settled.add(plain(fields["vhost"]))
        self.phases = {}
        for vhost, policies in found.items():
            end = lsn if vhost in settled or not policies else _END
            self.phases[vhost] = [PolicyPhase(0, end, _END, None), PolicyPhase(lsn, _END, end, policies)]

    def _apply(self, lsn: int, kind: int, fields: Mapping[str, Any]) -> None:
        vhost = plain(fields["name"] if kind == Kind.VHOST_DELETED else fields["vhost"])
        phases = self.phases.get(vhost)
        if phases is None:
            if kind not in (Kind.POLICY_SET, Kind.POLICY_DELETED):
                return
            phases = self.phases[vhost] = [PolicyPhase(0, _END, 0, PolicySet())]
        if kind == Kind.POLICIES_APPLIED:
            self._settle(phases, lsn)
            return
        now = phases[-1].policies
        assert now is not None, "the last phase is known"
        is_end = kind == Kind.VHOST_DELETED
        phases.append(PolicyPhase(lsn, _END, _END, PolicySet() if is_end else changed(now, kind, fields)))
        if is_end:
            self._settle(phases, lsn)

    @staticmethod
    def _settle(phases: list[PolicyPhase], lsn: int) -> None:
        phases[:-1] = [phase._replace(until=min(phase.until, lsn)) for phase in phases[:-1]]
        phases[-1] = phases[-1]._replace(settled=min(phases[-1].settled, lsn))

    def known(self) -> KnownPhases:
        """Return the phases for the state of the tables."""
        return {
            vhost: [
                [*phase[:3], None if phase.policies is None else [policy.fields() for policy in phase.policies]]
                for phase in phases
            ]
            for vhost, phases in self.phases.items()
        }


def _set_of(fields: Iterable[Mapping[str, Any]]) -> PolicySet:
    found = PolicySet()
    for each in fields:
        found.put(policy_of(each))
    return found


class LoggedPolicies:
    """The policies of a virtual host at one point of the log, and earlier ones that some queues may still follow."""

    __slots__ = ("former", "now")

    def __init__(self) -> None:
        self.now = PolicySet()
        self.former: list[PolicySet] = []

    def apply(self, kind: int, fields: Mapping[str, Any]) -> None:
        """Apply a record of KINDS."""
        if kind == Kind.POLICIES_APPLIED:
            self.former.clear()
        else:
            self.former.append(self.now)
            self.now = changed(self.now, kind, fields)

    def may_refuse(self, name: str, kind: str) -> bool:
        """Return whether policies may let a queue refuse messages at a limit."""
        found = [policies.effective(name, kind) for policies in (self.now, *self.former)]
        return any(each is not None and str(each.definition.get("overflow", "")).startswith("reject") for each in found)

    def records(self, vhost: str) -> list[tuple[int, dict[str, Any]]]:
        """Return records that rebuild it."""
        found: list[tuple[int, dict[str, Any]]] = []
        before = PolicySet()
        for policies in (*self.former, self.now):
            for policy in before:
                if policy.name not in policies.of(operator=policy.operator):
                    names = {"vhost": vhost, "name": policy.name, "operator": policy.operator}
                    found.append((int(Kind.POLICY_DELETED), names))
            found += [
                (int(Kind.POLICY_SET), policy.fields())
                for policy in policies
                if before.of(operator=policy.operator).get(policy.name) != policy
            ]
            before = policies
        return found if self.former else [*found, (int(Kind.POLICIES_APPLIED), {"vhost": vhost})]
