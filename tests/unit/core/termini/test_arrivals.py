"""Tags of messages that a producer has not settled."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.termini.arrivals import Arrival, Arrivals, Partial, fingerprint_of, fingerprints_of

ACCEPTED = Disposition.ACCEPTED


def arrivals(*tags: bytes, lsn: int = 0, synced: int = 0) -> Arrivals:
    made = Arrivals()
    made.accept_all({tag: b"%d" % i for i, tag in enumerate(tags)}, lsn, synced)
    return made


def test_fingerprints_have_64_bits_and_differ() -> None:
    assert len(fingerprint_of(b"a")) == 8
    assert fingerprints_of([b"a", b"b"]) == [fingerprint_of(b"a"), fingerprint_of(b"b")]
    assert fingerprint_of(b"a") == fingerprint_of(b"a") != fingerprint_of(b"b")


def test_messages_are_found_by_tag_until_they_are_forgotten() -> None:
    tested = arrivals(b"1", b"2")
    tested.note(b"3", Arrival(Disposition.REJECTED, b"9", b"why"))
    assert (tested.count, b"2" in tested, b"3" in tested, b"4" in tested) == (3, True, True, False)
    assert dict(tested.items()) == {
        b"1": Arrival(ACCEPTED, b"0"),
        b"2": Arrival(ACCEPTED, b"1"),
        b"3": Arrival(Disposition.REJECTED, b"9", b"why"),
    }
    assert tested.forget([b"1", b"3", b"4"]) == [b"1"]  # only accepted messages are in the log
    assert (tested.count, tested.get(b"1"), tested.get(b"3")) == (1, None, None)
    assert tested.accepted() == ([b"2"], [b"1"], [])


@pytest.mark.parametrize("tags", [[b"1"], [b"new", b"new"], [b"new", b"noted"]])
def test_a_tag_belongs_to_one_unsettled_delivery(tags: list[bytes]) -> None:
    tested = arrivals(b"1")
    tested.note(b"noted", Arrival(Disposition.RELEASED, b"1"))
    with pytest.raises(BrokerError, match="belongs to an unsettled delivery"):
        tested.check_new(tags)
    tested.check_new([b"new", b"other"])


@pytest.fixture
def fresh() -> Arrivals:
    """Return the messages 1 and 2, which are fresh, and 0, which is not."""
    made = arrivals(b"0")
    made.accept_fresh([b"1", b"2"], [b"a", b""])
    return made


def test_fresh_messages_have_the_fingerprints_of_their_contents(fresh: Arrivals) -> None:
    one, two = Arrival(ACCEPTED, fingerprint_of(b"a")), Arrival(ACCEPTED, fingerprint_of(b""))
    assert (fresh.count, b"1" in fresh, fresh.get(b"2")) == (3, True, two)
    assert dict(fresh.items()) == {b"0": Arrival(ACCEPTED, b"0"), b"1": one, b"2": two}
    copied = fresh.accepted()
    assert (copied.tags, copied.fingerprints()) == ([b"0", b"1", b"2"], [b"0", one.fingerprint, two.fingerprint])
    with pytest.raises(BrokerError, match="belongs to an unsettled delivery"):
        fresh.check_new([b"2"])


def test_digesting_fresh_messages_changes_nothing_that_is_told(fresh: Arrivals) -> None:
    before = dict(fresh.items())
    fresh.digest([b"1", b"gone", b"2"])
    assert dict(fresh.items()) == before
    assert fresh.accepted().contents == []


@pytest.mark.parametrize("noted", [False, True])
def test_fresh_messages_may_be_in_the_log(fresh: Arrivals, noted: bool) -> None:
    if noted:
        fresh.note(b"2", Arrival(Disposition.REJECTED, b"9"))
    assert fresh.forget([b"1", b"2"]) == ([b"1"] if noted else [b"1", b"2"])
    assert list(fresh.items()) == [(b"0", Arrival(ACCEPTED, b"0"))]


def test_clearing_returns_the_tags_of_fresh_messages_too(fresh: Arrivals) -> None:
    assert [list(each) for each in fresh.clear()] == [[b"0", b"1", b"2"], []]
    assert fresh.count == 0


def test_a_complete_map_settles_fresh_messages_too(fresh: Arrivals) -> None:
    found, gone = fresh.reconcile({b"2": True}, complete=True)
    assert found == {b"2": Arrival(ACCEPTED, fingerprint_of(b""))}
    assert [sorted(each) for each in gone] == [[b"0", b"1"], []]


def test_restored_messages_are_accepted_ones() -> None:
    tested = Arrivals()
    tested.restore({b"1": b"7"})
    assert dict(tested.items()) == {b"1": Arrival(ACCEPTED, b"7")}


def test_clearing_returns_the_tags_that_may_be_in_the_log() -> None:
    tested = arrivals(b"1", b"2")
    tested.note(b"3", Arrival(Disposition.REJECTED, b"9"))
    tested.partial = Partial(b"4", b"half")
    assert [list(each) for each in tested.clear()] == [[b"1", b"2"], [b"3"]]
    assert tested.count == 0
    assert not tested.partial


def test_a_sender_that_knows_a_state_is_told_the_outcome() -> None:
    tested = arrivals(b"1")
    tested.suspend(0)
    assert tested.reconcile({b"1": True, b"2": True}, complete=True) == ({b"1": Arrival(ACCEPTED, b"0")}, [{}, {}])


def test_a_sender_without_a_state_is_asked_to_send_again_since_it_may_have_reused_the_tag() -> None:
    tested = arrivals(b"1")
    tested.suspend(0)
    assert tested.reconcile({b"1": False}, complete=True) == ({b"1": None}, [{}, {}])
    assert tested.in_doubt(b"1")
    tested.forget([b"1"])
    assert not tested.in_doubt(b"1")


def test_an_outcome_that_never_left_the_broker_is_told() -> None:
    tested = arrivals(b"1", lsn=100, synced=50)
    tested.accept_all({b"2": b"7"}, 200, 150)  # the outcome of the first one may have been sent by now
    tested.suspend(150)
    found, _ = tested.reconcile({b"1": False, b"2": False}, complete=True)
    assert found == {b"1": None, b"2": Arrival(ACCEPTED, b"7")}


def test_an_outcome_that_was_told_at_a_resumption_is_in_doubt_at_the_next_one() -> None:
    tested = arrivals(b"1", lsn=100)
    tested.suspend(50)
    assert tested.reconcile({b"1": False}, complete=True)[0] == {b"1": Arrival(ACCEPTED, b"0")}
    tested.suspend(100)
    assert tested.reconcile({b"1": False}, complete=True)[0] == {b"1": None}


def test_a_complete_map_settles_all_other_tags() -> None:
    tested = arrivals(b"1", b"2")
    tested.note(b"3", Arrival(Disposition.REJECTED, b"9"))
    assert tested.reconcile({b"1": True}, complete=False)[1] == []
    assert [list(each) for each in tested.reconcile({b"1": True}, complete=True)[1]] == [[b"2"], [b"3"]]


@pytest.mark.parametrize(
    ("remote", "complete", "kept"), [({}, True, False), ({}, False, True), ({b"1": False}, True, True)]
)
def test_a_partial_delivery_is_kept_if_the_sender_may_continue_it(
    remote: dict[bytes, bool], complete: bool, kept: bool
) -> None:
    tested = Arrivals()
    tested.partial = Partial(b"1", b"half")
    tested.reconcile(remote, complete=complete)
    assert (tested.partial is not None) is kept
