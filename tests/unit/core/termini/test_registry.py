"""Termini are attached, stolen, suspended, expired and ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from escrowmq.core.termini.loan import Loan
from escrowmq.core.termini.terminus import (
    Durability,
    ExpiryPolicy,
    TerminusInput,
    TerminusKey,
    TerminusSettings,
    TerminusState,
)
from tests.unit.core.site import Site, dead_lettering
from tests.unit.core.termini.links import BRIEF, KEPT, TestedLink, attached_again, consuming, incoming, outgoing

DETACH, SESSION, CONNECTION = Loan.detach, Loan.session_ended, Loan.connection_lost
ESTABLISH, RESUME, RECOVER = TerminusInput.ESTABLISH, TerminusInput.RESUME, TerminusInput.RECOVER


class TestAttaching:
    @pytest.mark.parametrize("how", [ESTABLISH, RESUME])
    def test_a_terminus_is_created(self, how: TerminusInput) -> None:
        site = Site()
        link = TestedLink(site, outgoing(), BRIEF, how)
        assert link.loan.fresh
        assert link.loan.current
        assert link.loan.lsn == 0
        assert site.broker.termini.find(outgoing()) is link.terminus
        assert site.records(Kind.TERMINUS_SET) == []

    def test_a_terminus_that_does_not_exist_cannot_be_recovered(self) -> None:
        with pytest.raises(BrokerError, match="no terminus of link 'l' of container 'c' in vhost '/'") as refused:
            TestedLink(Site(), outgoing(), BRIEF, RECOVER)
        assert refused.value.condition is Condition.NOT_FOUND

    @pytest.mark.parametrize("key", [outgoing("m"), outgoing("l", "d"), incoming()])
    def test_name_container_and_role_tell_termini_apart(self, key: TerminusKey) -> None:
        site = Site()
        link, other = TestedLink(site, outgoing()), TestedLink(site, key)
        assert link.terminus is not other.terminus
        assert link.loan.current

    def test_a_durable_terminus_is_recorded_before_it_is_granted(self) -> None:
        site = Site()
        link = TestedLink(site, outgoing(), KEPT._replace(address="q", data=b"\x00source"))
        assert link.loan.lsn == site.journal.end_lsn > 0
        site.sync()
        found = site.restart().broker.termini.by_key[outgoing()]
        assert (found.settings, found.user, found.number) == (link.terminus.settings, "u", 1)
        assert found.state is TerminusState.SUSPENDED

    def test_resuming_keeps_what_is_unsettled(self) -> None:
        site = Site()
        link = consuming(site, b"a")
        link.loan.detach()
        again = attached_again(site, link)
        assert not again.loan.fresh
        assert again.loan.lsn == site.journal.end_lsn  # earlier settlements must be on disk
        assert again.terminus.deliveries.count == 1
        assert site.contents() == []

    def test_establishing_leaves_nothing_unsettled(self) -> None:
        site = Site()
        link = consuming(site, b"a")
        link.loan.detach()
        attached_again(site, link, ESTABLISH)
        assert site.ready(site.vhost.queue("q")) == [(1, b"a", True)]
        producer = TestedLink(site, incoming())
        producer.post([b"1"], [b"b"])
        attached_again(site, producer, ESTABLISH)
        site.turn()
        again = site.restart()
        assert [terminus.unsettled for terminus in again.broker.termini.by_key.values()] == [0, 0]
        assert again.contents() == [b"a", b"b"]

    def test_recovering_keeps_the_stored_settings(self) -> None:
        site = Site()
        link = TestedLink(site, outgoing(), KEPT._replace(address="q"))
        link.loan.detach()
        recovered = TestedLink(site, outgoing(), TerminusSettings(), RECOVER)
        assert recovered.terminus.settings.address == "q"

    def test_a_long_timeout_is_reduced_to_the_limit(self) -> None:
        site = Site()
        site.broker.termini.limits.timeout_ms = 50
        assert TestedLink(site, outgoing(), BRIEF._replace(timeout_ms=51)).terminus.settings.timeout_ms == 50

    def test_a_terminus_belongs_to_its_user(self) -> None:
        site = Site()
        link = TestedLink(site, outgoing())
        with pytest.raises(BrokerError, match="refused for user 'v', who does not own it") as refused:
            TestedLink(site, outgoing(), user="v")
        assert refused.value.condition is Condition.ACCESS_REFUSED
        assert link.loan.current

    @pytest.mark.rule("FAIR-3")
    def test_the_termini_of_a_user_in_a_virtual_host_are_limited(self) -> None:
        site = Site()
        site.broker.termini.limits.termini = 1
        link = TestedLink(site, outgoing())
        with pytest.raises(BrokerError, match="user 'u' has 1 link termini in vhost '/', the limit") as refused:
            TestedLink(site, incoming())
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        TestedLink(site, incoming(), user="v")
        link.loan.close()
        TestedLink(site, outgoing("other"))

    def test_no_terminus_is_created_while_memory_is_scarce(self) -> None:
        site = Site()
        TestedLink(site, outgoing())
        site.broker.engine.scarcity = "short of memory"
        with pytest.raises(BrokerError, match="no room for link 'm'"):
            TestedLink(site, outgoing("m"))
        TestedLink(site, outgoing())


class TestChangedDurability:
    def test_what_is_unsettled_is_recorded_when_the_terminus_becomes_durable(self) -> None:
        site = Site()
        link = consuming(site, b"a", b"b", settings=BRIEF)
        producer = TestedLink(site, incoming(), BRIEF)
        producer.post([b"1"], [b"c"])
        link.loan.settle(1, 1, Disposition.ACCEPTED)
        attached_again(site, link)
        attached_again(site, producer)
        site.turn()
        again = site.restart().broker.termini.by_key
        assert [number for number, _ in again[outgoing()].deliveries.tags()] == [2]
        assert again[incoming()].arrivals.accepted()[0] == [b"1"]

    @pytest.mark.parametrize(
        ("settings", "kept"), [(BRIEF, False), (KEPT._replace(durability=Durability.CONFIGURATION), True)]
    )
    def test_nothing_unsettled_survives_when_it_is_no_longer_durable(
        self, settings: TerminusSettings, kept: bool
    ) -> None:
        site = Site()
        link = consuming(site, b"a")
        link.loan.detach()
        again = TestedLink(site, outgoing(), settings, RESUME)
        assert again.terminus.deliveries.count == 1
        site.turn()
        restarted = site.restart()
        assert (outgoing() in restarted.broker.termini.by_key) is kept
        assert restarted.contents() == [b"a"]


class TestStealing:
    @pytest.mark.rule("SET-12")
    def test_the_old_link_is_told_and_gets_nothing_more(self) -> None:
        site = Site()
        old = consuming(site, b"a")
        new = attached_again(site, old)
        assert old.events == ["stolen"]
        assert (old.loan.current, new.loan.current) == (False, True)
        site.publish("q", b"b")
        site.turn()
        assert old.contents == [b"a"]
        new.consume(site.vhost.queue("q"))
        site.turn()
        assert new.contents == [b"b"]
        assert new.terminus.deliveries.count == 2

    def test_the_old_links_deliveries_are_settled_on_the_new_one(self) -> None:
        site = Site()
        old = consuming(site, b"a")
        new = attached_again(site, old)
        assert new.loan.settle(1, 1, Disposition.ACCEPTED) == 1
        site.turn()
        assert site.live() == 0

    def test_a_theft_without_a_map_of_unsettled_deliveries_returns_them(self) -> None:
        site = Site()
        old = consuming(site, b"a")
        attached_again(site, old, ESTABLISH)
        assert old.events == ["stolen"]
        assert site.contents() == [b"a"]


class TestExpiry:
    @pytest.mark.rule("SET-12")
    @pytest.mark.parametrize(
        ("policy", "ends", "expires"),
        [
            (ExpiryPolicy.LINK_DETACH, [DETACH], True),
            (ExpiryPolicy.LINK_DETACH, [CONNECTION], True),
            (ExpiryPolicy.SESSION_END, [DETACH], False),
            (ExpiryPolicy.SESSION_END, [DETACH, SESSION], True),
            (ExpiryPolicy.SESSION_END, [SESSION], True),
            (ExpiryPolicy.SESSION_END, [CONNECTION], True),
            (ExpiryPolicy.CONNECTION_CLOSE, [DETACH, SESSION], False),
            (ExpiryPolicy.CONNECTION_CLOSE, [SESSION, CONNECTION], True),
            (ExpiryPolicy.NEVER, [DETACH, SESSION, CONNECTION], False),
        ],
    )
    @pytest.mark.parametrize("timeout_ms", [0, 100])
    def test_a_terminus_expires_when_its_policy_says_so(
        self, policy: ExpiryPolicy, ends: list[Callable[[Loan], None]], expires: bool, timeout_ms: int
    ) -> None:
        site = Site()
        link = consuming(site, b"a", settings=TerminusSettings(policy=policy, timeout_ms=timeout_ms))
        for end in ends:
            end(link.loan)
        if timeout_ms:
            site.after(timeout_ms - 1)
            assert site.broker.termini.by_key
        site.after(1)
        assert (outgoing() not in site.broker.termini.by_key) is expires
        assert site.contents() == ([b"a"] if expires else [])
        assert link.events == []

    def test_attaching_stops_the_timeout_and_the_next_one_starts_from_the_beginning(self) -> None:
        site = Site()
        settings = BRIEF._replace(policy=ExpiryPolicy.LINK_DETACH, timeout_ms=100)
        link = TestedLink(site, outgoing(), settings)
        link.loan.detach()
        site.after(99)
        again = TestedLink(site, outgoing(), settings, RESUME)
        site.after(500)
        again.loan.detach()
        again.loan.connection_lost()  # it does not restart the timeout
        site.after(99)
        assert outgoing() in site.broker.termini.by_key
        site.after(1)
        assert outgoing() not in site.broker.termini.by_key

    @pytest.mark.parametrize(
        ("default", "dead", "ready"),
        [
            (Disposition.MODIFIED, [], [(1, b"a", True), (2, b"b", True)]),
            (Disposition.RELEASED, [], [(1, b"a", True), (2, b"b", True)]),
            (Disposition.REJECTED, [b"a", b"b"], []),
            (Disposition.ACCEPTED, [], []),
        ],
    )
    @pytest.mark.parametrize("restarted", [False, True])
    def test_deliveries_get_the_default_outcome(
        self, default: Disposition, dead: list[bytes], ready: list[object], restarted: bool
    ) -> None:
        site = Site()
        dead_lettering(site)
        settings = KEPT._replace(default=default)
        link = consuming(site, b"a", b"b", settings=settings)
        if restarted:
            site = site.restart()
        else:
            link.loan.detach()
        terminus = site.broker.termini.by_key[outgoing()]
        site.broker.termini.end(terminus)
        site.turn()
        for one in (site, site.restart()):
            assert one.ready(one.vhost.queue("q")) == ready
            assert one.contents("dead") == dead
        assert site.vhost.queue("q").unsettled == 0
        assert site.live() == len(dead) + len(ready)


class TestEnding:
    @pytest.mark.parametrize("settings", [KEPT, BRIEF])
    def test_a_closed_terminus_is_forgotten(self, settings: TerminusSettings) -> None:
        site = Site()
        link = consuming(site, b"a", settings=settings)
        producer = TestedLink(site, incoming(), settings)
        producer.post([b"1"], [b"b"])
        lsn = link.loan.close()
        producer.loan.close()
        assert (lsn > 0) is (settings is KEPT)
        assert (link.events, link.loan.current) == ([], False)
        assert site.broker.termini.by_key == {}
        site.turn()
        again = site.restart()
        assert again.broker.termini.by_key == {}
        assert again.contents() == [b"a", b"b"]

    def test_an_attached_link_is_told_that_its_terminus_was_ended(self) -> None:
        site = Site()
        link = consuming(site, b"a")
        site.broker.termini.end(link.terminus)
        assert link.events == ["deleted"]
        site.publish("q", b"b")
        site.turn()
        assert link.contents == [b"a"]
        assert site.contents() == [b"a", b"b"]

    @pytest.mark.rule("SEC-2")
    def test_termini_end_with_their_virtual_host(self) -> None:
        site = Site()
        site.broker.directory.add_vhost("v")
        link, other = TestedLink(site, outgoing(vhost="v")), TestedLink(site, outgoing())
        site.broker.directory.delete_vhost("v")
        assert (link.events, other.events) == (["deleted"], [])
        assert set(site.broker.termini.by_key) == {outgoing()}

    @pytest.mark.rule("SEC-2")
    def test_termini_end_with_their_user(self) -> None:
        site = Site()
        link, other = TestedLink(site, outgoing()), TestedLink(site, incoming(), user="v")
        site.broker.termini.end_of_user("u")
        assert (link.events, other.events) == (["deleted"], [])

    def test_a_deleted_queue_takes_its_deliveries_along(self) -> None:
        for restarted in (False, True):
            site = Site()
            link = consuming(site, b"a", b"b")
            if restarted:
                site = site.restart()
            terminus = site.broker.termini.by_key[outgoing()]
            site.broker.directory.delete_queue(site.vhost.queue("q"))
            if not restarted:
                assert link.events == ["cancelled"]
                link.loan.detach()
            site.broker.termini.end(terminus)
            site.turn()
            assert terminus.deliveries.count == 0
            assert site.live() == 0


@pytest.mark.rule("FAIR-1")
def test_many_deliveries_return_in_pieces_and_in_order() -> None:
    site = Site()
    site.broker.engine.returns.piece = 3
    contents = [b"%d" % i for i in range(10)]
    link = consuming(site, *contents)
    site.broker.termini.end(link.terminus)
    assert site.broker.engine.turn.unfinished
    site.turn()
    assert site.contents() == contents


def test_numbers_of_termini_are_not_assigned_again() -> None:
    site = Site()
    TestedLink(site, outgoing()).loan.close()
    site.snapshot()
    site = site.restart()
    assert TestedLink(site, outgoing()).terminus.number == 2


class TestManyTags:
    """Thousands of tags are forgotten at once, and the log learns of them in pieces (FAIR-1)."""

    def posted(self) -> tuple[Site, TestedLink, list[bytes]]:
        site = Site()
        site.queue()
        link = TestedLink(site, incoming())
        tags = [b"%d" % i for i in range(3500)]
        link.post(tags, [b"x"] * len(tags))
        site.turn()
        return site, link, tags

    @pytest.mark.rule("FAIR-1", "SET-9")
    @pytest.mark.parametrize("way", ["resumed", "established", "closed"])
    def test_tags_are_forgotten_in_pieces(self, way: str) -> None:
        site, link, tags = self.posted()
        if way == "closed":
            link.loan.close()
        else:
            again = attached_again(site, link, RESUME if way == "resumed" else ESTABLISH)
            if way == "resumed":
                assert again.loan.reconcile({tags[0]: True, b"new": False}, complete=True).keys() == {tags[0]}
            assert again.terminus.arrivals.count == (way == "resumed")
        before = len(site.records(Kind.FORGOTTEN))
        assert not before
        for _ in range(10):
            site.turn()
        assert len(site.records(Kind.FORGOTTEN)) == (0 if way == "closed" else 4)
        assert not site.broker.engine.left_over
        found = site.restart().broker.termini.find(incoming())
        assert (found is None) == (way == "closed")
        assert found is None or found.arrivals.count == (way == "resumed")

    @pytest.mark.rule("SET-9")
    @pytest.mark.parametrize("turns", [0, 1])
    def test_a_tag_that_is_used_again_meanwhile_is_not_forgotten(self, turns: int) -> None:
        site, link, tags = self.posted()
        again = attached_again(site, link)
        again.loan.reconcile({}, complete=True)
        for _ in range(turns):
            site.turn()
        used = [tags[0], tags[1700], tags[-1]]
        again.post(used, [b"a", b"b", b"c"])
        for _ in range(10):
            site.turn()
        for one in (site, site.restart()):
            arrivals = one.broker.termini.by_key[incoming()].arrivals
            assert sorted(tag for tag, _ in arrivals.items()) == sorted(used)
