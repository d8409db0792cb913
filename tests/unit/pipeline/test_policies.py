"""The policies that queues follow, from the journal of a broker, and outcomes that they explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escrowmq.core.policies.matching import PolicySet
from escrowmq.core.policies.policy import Policy
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import encode_settle
from escrowmq.pipeline.policies import LoggedPolicies, PolicyHistory
from tests.pipeline.direct import audited, export, routed
from tests.unit.core.site import Site, taken

Row = tuple[int, int, int, bytes]


def put(site: Site, name: str = "p", pattern: str = "", *, turn: bool = True, **definition: Any) -> None:
    given = {key.replace("_", "-"): value for key, value in definition.items()}
    site.broker.directory.policies.put(Policy("/", name, pattern, given))
    if turn:
        site.turn()


def wrong(site: Site, folder: Path) -> list[tuple[str, str]]:
    """Audit the journal of a broker. Return the violations and their subjects."""
    site.sync()
    journal = export(site.storage, folder)
    return [each[:2] for each in (*audited(journal).wrong, *routed(journal).wrong)]


def settle(site: Site, outcome: Outcome, position: int = 1) -> None:
    """Record an outcome that has no cause."""
    site.journal.append(Kind.SETTLE, encode_settle(site.vhost.queue("q").ident, outcome, [Range(position, 1)]))


@pytest.mark.rule("PIPE-8")
@pytest.mark.rule("PIPE-5")
class TestOutcomes:
    def test_outcomes_by_policies_have_a_cause(self, tmp_path: Path) -> None:
        site = Site()
        site.queue()
        site.queue("dead")
        site.publish("q", b"1", b"2", b"3")
        put(site, "p", "^q$", max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead")
        site.after(1000)
        put(site, "p", "^q$", message_ttl=500)
        site.after(1000)
        put(site, "p", "^q$", max_length_bytes=3)
        site.publish("q", b"4", b"567")
        site.turn()
        assert (site.contents(), site.contents("dead")) == ([b"567"], [b"1"])
        assert wrong(site, tmp_path) == []
        again = site.restart()
        again.publish("q", b"8")
        again.turn()
        again.snapshot()
        assert wrong(again, tmp_path) == []

    @pytest.mark.parametrize(
        ("outcome", "definition"),
        [
            (Outcome.EXPIRED, {"max_length": 1}),
            (Outcome.DROPPED, {"message_ttl": 1}),
            (Outcome.DROPPED, {"max_length": 5}),
            (Outcome.EXPIRED, {"message_ttl": 5000}),
        ],
    )
    def test_an_outcome_that_the_policy_does_not_explain_is_found(
        self, outcome: Outcome, definition: dict[str, Any], tmp_path: Path
    ) -> None:
        site = Site()
        site.queue()
        put(site, **definition)
        site.publish("q", b"1")
        settle(site, outcome)
        site.publish("q", b"2")
        assert ("outcome without a cause", "q 1") in wrong(site, tmp_path)

    @pytest.mark.parametrize("before", [True, False])
    def test_a_policy_explains_nothing_before_and_after_its_time(self, before: bool, tmp_path: Path) -> None:
        site = Site()
        site.queue()
        site.publish("q", b"1")
        site.after(100)
        if before:
            settle(site, Outcome.EXPIRED)
            put(site, "p", "^q$", expires=10_000, message_ttl=1)
        else:
            put(site, "p", "^r$", message_ttl=1)
            put(site, "p", "^q$", message_ttl=10_000)
            site.broker.directory.policies.remove("/", "p", operator=False)
            site.turn()
            settle(site, Outcome.EXPIRED)
        assert ("outcome without a cause", "q 1") in wrong(site, tmp_path)

    def test_while_not_all_queues_follow_the_policies_before_explain_outcomes(self, tmp_path: Path) -> None:
        site = Site()
        for number in range(1500):
            site.queue(f"a{number}")
        queue = site.queue()
        put(site, message_ttl=50)
        site.publish("q", b"1", b"2")
        site.now += 49
        site.broker.directory.policies.remove("/", "p", operator=False)
        site.now += 2
        site.broker.engine.run_deadlines()
        assert (queue.options.message_ttl, queue.ready) == (50, 0)
        site.turn()
        assert wrong(site, tmp_path) == []

    def test_messages_leave_at_a_delivery_limit_that_is_new(self, tmp_path: Path) -> None:
        site = Site()
        queue = site.queue("q", {"x-queue-type": "quorum"})
        site.publish("q", b"1", b"2")
        for round_ in range(6):
            if round_ == 2:
                put(site, delivery_limit=3)
            consumer, entries = taken(site, queue)
            for entry in entries:
                site.broker.engine.settle(consumer, [entry], Disposition.MODIFIED)
            site.turn()
            site.broker.engine.unsubscribe(consumer)
        assert site.contents() == []
        assert wrong(site, tmp_path) == []


class TestRoutes:
    def test_ways_through_an_alternate_exchange_of_a_policy_are_not_judged(self, tmp_path: Path) -> None:
        site = Site()
        site.queue()
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", "q", "")
        put(site, alternate_exchange="amq.fanout")
        site.publish("k", b"1", exchange="amq.direct")
        site.turn()
        assert site.contents() == [b"1"]
        site.sync()
        found = routed(export(site.storage, tmp_path))
        assert (found.wrong, found.untold) == ([], 1)

    def test_a_queue_may_refuse_messages_by_a_policy(self, tmp_path: Path) -> None:
        site = Site()
        for name in ("q", "r"):
            site.queue(name)
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
        put(site, "p", "^q$", max_length=1, overflow="reject-publish")
        for body in (b"1", b"2"):
            site.publish("", body, exchange="amq.fanout")
        site.broker.directory.policies.remove("/", "p", operator=False)
        site.turn()
        assert (site.contents("q"), site.contents("r")) == ([b"1"], [b"1", b"2"])
        assert wrong(site, tmp_path) == []


class TestHistory:
    @staticmethod
    def change(lsn: int, name: str, snapshot: int = -1, **definition: Any) -> Row:
        fields = Policy("/", name, "", definition or {"max-length": lsn}).fields()
        return snapshot, lsn, Kind.POLICY_SET, encode_change(**fields)

    @staticmethod
    def applied(lsn: int, snapshot: int = -1) -> Row:
        return snapshot, lsn, Kind.POLICIES_APPLIED, encode_change(vhost="/")

    @staticmethod
    def phases(history: PolicyHistory) -> list[tuple[int, int, int, Any]]:
        return [
            (*phase[:3], None if phase.policies is None else sorted(policy.name for policy in phase.policies))
            for phase in history.phases["/"]
        ]

    def test_phases_overlap_until_all_queues_follow(self) -> None:
        history = PolicyHistory({})
        history.follow([self.change(5, "a"), self.change(7, "b"), self.applied(9)], 0, [], certain=True)
        end = 1 << 62
        assert self.phases(history) == [(0, 9, 0, []), (5, 9, end, ["a"]), (7, end, 9, ["a", "b"])]

    def test_a_run_continues_the_one_before_and_forgets_what_ended(self) -> None:
        history = PolicyHistory({})
        history.follow([self.change(5, "a"), self.applied(6)], 0, [], certain=True)
        again = PolicyHistory(json.loads(json.dumps(history.known())))
        again.follow([self.change(15, "b"), self.applied(16)], 10, [], certain=True)
        end = 1 << 62
        assert self.phases(again) == [(5, 16, 6, ["a"]), (15, end, 16, ["a", "b"])]

    def test_a_log_whose_beginning_is_gone_begins_with_a_snapshot(self) -> None:
        end = 1 << 62
        rows = [self.change(20, "a", 20), self.change(25, "b"), self.applied(26)]
        history = PolicyHistory({})
        history.follow(rows, 0, [20], certain=False)
        assert self.phases(history) == [(0, 26, end, None), (20, 26, end, ["a"]), (25, end, 26, ["a", "b"])]
        history.follow([*rows, self.applied(20, 20)], 0, [20], certain=False)
        assert self.phases(history) == [(0, 20, end, None), (20, 26, 20, ["a"]), (25, end, 26, ["a", "b"])]

    def test_policies_that_end_before_the_first_snapshot_are_not_known(self) -> None:
        gone = (-1, 15, int(Kind.POLICY_DELETED), encode_change(vhost="/", name="a", operator=False))
        history = PolicyHistory({})
        history.follow([gone, self.applied(16)], 10, [20], certain=False)
        end = 1 << 62
        assert self.phases(history) == [(0, 20, end, None), (20, end, 20, [])]

    def test_policies_end_with_their_virtual_host(self) -> None:
        history = PolicyHistory({})
        gone = (-1, 9, int(Kind.VHOST_DELETED), encode_change(name="/"))
        history.follow([self.change(5, "a"), self.applied(6), gone], 0, [], certain=True)
        assert self.phases(history)[-1] == (9, 1 << 62, 9, [])


def test_records_rebuild_the_policies_of_one_point() -> None:
    policies = LoggedPolicies()
    reject = Policy("/", "r", "", {"overflow": "reject-publish"})
    other = Policy("/", "o", "", {"max-length": 1})
    for change, policy in ((Kind.POLICY_SET, reject), (Kind.POLICY_SET, other), (Kind.POLICY_DELETED, reject)):
        policies.apply(change, policy.fields())
    for settled in (False, True):
        if settled:
            policies.apply(Kind.POLICIES_APPLIED, {"vhost": "/"})
        twin = LoggedPolicies()
        for kind, fields in policies.records("/"):
            twin.apply(kind, fields)
        assert [policy.name for policy in twin.now] == ["o"]
        assert isinstance(twin.now, PolicySet)
        assert twin.may_refuse("q", "classic") == policies.may_refuse("q", "classic") == (not settled)
