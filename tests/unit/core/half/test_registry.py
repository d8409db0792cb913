"""Half messages are stored, decided, listed and limited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from escrowmq.core.access.door import Door
from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.state import HalfState
from escrowmq.core.half.storing import HALF_BYTES
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.relocation import Relocation
from tests.unit.core.half.half_site import CHECKS, INTERVAL_MS, TIMEOUT_MS, TOPIC, USER, HalfSite
from tests.unit.core.site import taken


@contextmanager
def refused(condition: Condition) -> Iterator[None]:
    with pytest.raises(BrokerError) as caught:
        yield
    assert caught.value.condition is condition


def parked(*idents: str) -> HalfSite:
    site = HalfSite()
    site.join()
    for ident in idents:
        site.store(ident, ident.encode())
    site.after(TIMEOUT_MS)
    for _ in range(CHECKS):
        site.after(INTERVAL_MS)
    assert {site.state(ident) for ident in idents} == {HalfState.PARKED}
    return site


@pytest.mark.rule("HALF-1")
def test_a_half_message_is_durable_and_invisible() -> None:
    site = HalfSite()
    stored = site.store("m", b"body")
    assert stored.lsn > site.journal.synced_lsn
    site.turn()
    assert stored.lsn <= site.journal.synced_lsn
    _, sink = site.consume(site.target)
    site.turn()
    assert sink.got == []
    assert site.again().named("m").content == b"body"


@pytest.mark.rule("HALF-2")
def test_a_commit_delivers_the_message_once_and_only_after_the_sync() -> None:
    site = HalfSite()
    site.store("m", b"body")
    _, sink = site.consume(site.target)
    lsn = site.commit("m")
    site.turn(sync=False)
    assert (sink.got, lsn > site.journal.synced_lsn) == ([], True)
    site.turn()
    assert (sink.contents, lsn <= site.journal.synced_lsn) == ([b"body"], True)


@pytest.mark.rule("HALF-2")
def test_a_rollback_is_durable_and_drops_the_message() -> None:
    site = HalfSite()
    site.store("m", b"body")
    lsn = site.roll_back("m")
    assert lsn > site.journal.synced_lsn
    site.turn()
    again = site.again()
    assert again.state("m") is HalfState.ROLLED_BACK
    assert again.contents() == []
    assert again.live() == 0


@pytest.mark.rule("HALF-2")
def test_a_commit_is_one_record() -> None:
    site = HalfSite()
    site.store("m", b"body")
    site.sync()
    before = len(site.records(*Kind))
    site.commit("m")
    assert len(site.records(*Kind)) == before + 1


@pytest.mark.rule("HALF-3")
def test_a_repeated_decision_succeeds_without_effect_also_after_a_restart() -> None:
    site = HalfSite()
    stored = site.store("m", b"body")
    site.commit("m")
    site.half.commit("/", stored.number)
    site.turn()
    again = site.again()
    again.half.commit("/", stored.number)
    again.turn()
    assert again.contents() == [b"body"]


@pytest.mark.rule("HALF-3")
def test_a_contradicting_decision_is_refused_without_effect_also_after_a_restart() -> None:
    site = HalfSite()
    dropped, kept = site.store("m", b"body"), site.store("n", b"other")
    site.roll_back("m")
    site.commit("n")
    for _ in range(2):
        with refused(Condition.ILLEGAL_STATE):
            site.half.commit("/", dropped.number)
        with refused(Condition.ILLEGAL_STATE):
            site.half.roll_back("/", kept.number)
        site.turn()
        site = site.again()
    assert site.contents() == [b"other"]


@pytest.mark.rule("HALF-3")
def test_a_repeated_decision_waits_for_the_sync_of_the_first_one() -> None:
    site = HalfSite()
    site.store("m")
    assert site.commit("m") == site.commit("m") > site.journal.synced_lsn


@pytest.mark.rule("HALF-6")
def test_a_late_decision_on_a_parked_message_is_refused() -> None:
    site = parked("m")
    for decide in (site.commit, site.roll_back):
        with refused(Condition.ILLEGAL_STATE):
            decide("m")
    assert site.state("m") is HalfState.PARKED


@pytest.mark.rule("HALF-6")
def test_an_operator_commits_drops_and_resumes_parked_messages() -> None:
    site = parked("a", "b", "c")
    site.half.force_commit("/", 1)
    site.half.drop("/", 2)
    site.half.resume("/", 3)
    site.turn()
    site = site.again()
    assert [site.state(ident) for ident in "abc"] == [HalfState.COMMITTED, HalfState.ROLLED_BACK, HalfState.PENDING]
    assert site.contents() == [b"a"]
    producer = site.join()
    site.after(TIMEOUT_MS)
    assert producer.asked == [("c", 1, b"c")]
    site.commit("c")
    site.turn()
    assert site.contents() == [b"a", b"c"]


@pytest.mark.rule("HALF-6")
def test_a_parked_message_stays_parked_after_a_restart() -> None:
    again = parked("m").again()
    producer = again.join()
    again.after(10 * INTERVAL_MS)
    assert (again.state("m"), producer.asked) == (HalfState.PARKED, [])


def test_parking_and_resuming_in_one_turn_is_recorded_in_order() -> None:
    site = HalfSite()
    site.join()
    site.store("m")
    site.after(TIMEOUT_MS)
    for _ in range(CHECKS - 1):
        site.after(INTERVAL_MS)
    engine = site.broker.engine
    engine.now += INTERVAL_MS
    engine.run_deadlines()
    engine.left_over.step(engine.requests)
    site.half.resume("/", 1)
    site.turn()
    assert site.again().state("m") is HalfState.PENDING


def test_only_parked_messages_can_be_resumed() -> None:
    site = HalfSite()
    site.store("m")
    with refused(Condition.ILLEGAL_STATE):
        site.half.resume("/", 1)


@pytest.mark.rule("HALF-11")
def test_the_same_message_sent_again_is_the_same_half_message() -> None:
    site = HalfSite()
    first = site.store("m", b"body")
    again = site.store("m", b"body")
    assert again == (first.number, site.journal.end_lsn, True)
    site.commit("m")
    assert site.store("m", b"body").number == first.number
    site.turn()
    after = site.again()
    assert after.store("m", b"body").number == first.number
    after.turn()
    assert after.contents() == [b"body"]


@pytest.mark.rule("HALF-12")
def test_a_decision_for_an_unknown_half_message_is_refused() -> None:
    site = HalfSite()
    with refused(Condition.NOT_FOUND):
        site.half.commit("/", 1)
    site.store("m")
    with refused(Condition.NOT_FOUND):
        site.half.commit("/", 2)
    with refused(Condition.NOT_FOUND):
        site.half.roll_back("/", 1, message_id="other")
    assert site.half.commit("/", 1, message_id="m")


@pytest.mark.rule("HALF-12")
def test_a_decision_whose_outcome_is_no_longer_known_is_refused() -> None:
    site = HalfSite()
    site.store("m", b"body")
    site.commit("m")
    site.after(site.half.options.outcome_kept_ms)
    with refused(Condition.NOT_FOUND):
        site.half.commit("/", 1)
    assert site.contents() == [b"body"]


def test_the_number_of_known_outcomes_is_bounded() -> None:
    site = HalfSite()
    site.half.options.outcomes = 3
    for i in range(6):
        site.store(str(i))
        site.commit(str(i))
    assert [site.half.at("/", number) is not None for number in range(1, 7)] == [False] * 3 + [True] * 3


@pytest.mark.rule("HALF-12")
def test_a_half_message_is_found_by_its_transaction_id_only() -> None:
    site = HalfSite()
    stored = site.store("m")
    transaction_id = site.named("m").transaction_id
    found = site.half.find("/", transaction_id)
    assert found is not None
    assert found.number == stored.number
    forged = f"{stored.number:016X}00000000"
    assert [site.half.find("/", text) for text in (forged, "", "x", transaction_id + "0")] == [None] * 4
    assert site.half.find("other", transaction_id) is None


@pytest.mark.rule("HALF-10")
def test_half_messages_are_listed_in_order_in_pieces() -> None:
    site = HalfSite()
    for i in range(5):
        site.store(str(i))
    site.commit("1")
    assert [half.number for half in site.half.some("/", 0, 3)] == [1, 2, 3]
    assert [half.number for half in site.half.some("/", 3, 3)] == [4, 5]
    assert [half.state.title for half in site.half.some("/", 1, 1)] == ["committed"]
    assert site.half.some("other", 0, 3) == []


def test_a_commit_to_a_deleted_queue_succeeds_and_drops_the_message() -> None:
    site = HalfSite()
    site.store("m")
    site.broker.directory.delete_queue(site.target)
    site.half.commit("/", 1)
    site.turn()
    assert site.named("m").state is HalfState.COMMITTED
    assert site.live() == 0


def test_a_commit_refers_to_the_block_that_was_stored() -> None:
    site = HalfSite()
    site.store("m", b"body")
    site.after(5)
    site.commit("m")
    assert len(site.records(Kind.PUBLISH)) == 0
    commits = [payload for payload in site.records(Kind.COMMIT) if b"body" in payload]
    assert len(commits) == 1


def test_a_stream_gets_the_message_at_the_time_of_the_commit() -> None:
    site = HalfSite()
    stream = site.queue("s", {"x-queue-type": "stream"})
    site.store("m", b"body", queue=stream)
    site.after(50)
    site.commit("m")
    site.turn()
    for one in (site, site.again()):
        found = one.vhost.queue("s").order
        (reference,) = found.references()
        assert one.broker.engine.pager.load(reference).time == site.now
        assert one.live() == 1


@pytest.mark.rule("FAIR-3")
def test_the_half_messages_of_a_user_are_limited() -> None:
    site = HalfSite()
    site.half.options.per_user = 2
    site.store("a")
    site.store("b")
    with refused(Condition.LIMIT_EXCEEDED):
        site.store("c")
    assert site.store("a").repeated
    site.store("c", user="bob")
    site.roll_back("a")
    site.store("d")


@pytest.mark.rule("FAIR-3")
def test_half_messages_count_as_held_memory_until_they_are_decided() -> None:
    site = HalfSite()
    for i in range(1000):
        site.store(str(i))
    assert site.broker.holdings.of_user(USER) >= 1000 * HALF_BYTES
    site.sync()
    assert site.again().broker.holdings.of_user(USER) >= 1000 * HALF_BYTES
    for i in range(1000):
        site.roll_back(str(i))
    assert site.broker.holdings.of_user(USER) == 0


@pytest.mark.rule("FAIR-3")
def test_a_full_user_is_refused_and_can_still_decide() -> None:
    site = HalfSite()
    site.broker.holdings.user_limit = 20_000
    with refused(Condition.LIMIT_EXCEEDED):
        for i in range(1000):
            site.store(str(i))
    site.commit("0")


@pytest.mark.rule("FAIR-3")
def test_while_a_resource_is_scarce_half_messages_are_refused_and_decided() -> None:
    site = HalfSite()
    site.store("a")
    site.broker.engine.scarcity = "short of memory"
    with refused(Condition.LIMIT_EXCEEDED):
        site.store("b")
    site.commit("a")


@pytest.mark.parametrize(("ident", "group"), [("", "g"), ("m" * 256, "g"), ("m", ""), ("m", "g" * 256)])
def test_names_that_are_empty_or_too_long_are_refused(ident: str, group: str) -> None:
    with refused(Condition.INVALID_ARGUMENT):
        HalfSite().store(ident, group=group)


@pytest.mark.rule("SEC-2")
def test_others_decide_a_half_message_only_with_the_right_to_write_to_its_topic() -> None:
    site = HalfSite()
    site.store("m")
    access = site.broker.access
    for user, write in (("eve", "other"), ("bob", TOPIC)):
        access.add_user(user, "")
        access.set_permission(user, "/", "", write, "")
    half = site.named("m")
    assert Door(access, USER, site.vhost).allows(Operation.DECIDE_HALF, half=half)
    assert Door(access, "bob", site.vhost).allows(Operation.DECIDE_HALF, half=half)
    assert not Door(access, "eve", site.vhost).allows(Operation.DECIDE_HALF, half=half)


def test_compaction_moves_half_messages_and_nothing_is_lost() -> None:
    site = HalfSite()
    for i in range(300):
        site.store(str(i), bytes([i % 256]) * 50)
    for i in range(300):
        if i % 10:
            site.commit(str(i))
    site.turn()
    consumer, entries = taken(site, site.target)
    site.broker.engine.settle(consumer, entries, Disposition.ACCEPTED)
    site.turn()
    relocation = Relocation(site.broker, 1, site.journal.synced_lsn)
    while relocation.step():
        pass
    assert relocation.moved == 30
    site.snapshot()
    site = site.again()
    for i in range(0, 300, 10):
        assert site.named(str(i)).content == bytes([i % 256]) * 50
        site.commit(str(i))
    site.turn()
    assert site.again().contents() == [bytes([i % 256]) * 50 for i in range(0, 300, 10)]


@pytest.mark.rule("HALF-8")
def test_a_committed_message_goes_to_its_queue_at_once_even_if_its_exchange_delays_messages() -> None:
    site = HalfSite()
    site.broker.directory.declare_exchange(
        site.vhost, "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    delayed = Envelope("later", "q", b"", durable=True)
    stored = site.half.store("/", "later", "m", delayed, b"body", site.target, group="g", user=USER)
    site.half.commit("/", stored.number)
    site.turn()
    assert site.contents() == [b"body"]
