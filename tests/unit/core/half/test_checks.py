"""When producers are asked, which checks count, and when a half message is parked."""

from __future__ import annotations

import pytest

from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.options import CheckOptions
from escrowmq.core.half.state import HalfState
from escrowmq.core.records.half import decode_half_many
from escrowmq.core.records.kinds import Kind
from tests.unit.core.half.half_site import CHECKS, GROUP, INTERVAL_MS, TIMEOUT_MS, TOPIC, USER, AskedProducer, HalfSite


@pytest.mark.rule("HALF-4")
def test_an_undecided_half_message_is_checked_after_the_timeout_and_then_every_interval() -> None:
    site = HalfSite()
    producer = site.join()
    site.store("m", b"body")
    site.after(TIMEOUT_MS - 1)
    assert producer.asked == []
    site.after(1)
    assert producer.asked == [("m", 1, b"body")]
    site.after(INTERVAL_MS - 1)
    assert len(producer.asked) == 1
    site.after(1)
    assert producer.asked[1:] == [("m", 2, b"body")]


@pytest.mark.rule("HALF-4")
def test_timeout_interval_and_number_of_checks_can_be_set_for_a_topic() -> None:
    site = HalfSite()
    site.half.options.topics["/", TOPIC] = CheckOptions(10, 20, 1)
    producer = site.join()
    site.store("m")
    site.after(10)
    site.after(20)
    assert len(producer.asked) == 1
    assert site.state("m") is HalfState.PARKED


def test_the_first_check_waits_for_the_immunity_time() -> None:
    site = HalfSite()
    producer = site.join()
    site.store("m", immunity_ms=TIMEOUT_MS + 50)
    site.after(TIMEOUT_MS)
    assert producer.asked == []
    site.after(50)
    assert len(producer.asked) == 1


def test_a_decided_half_message_is_not_checked() -> None:
    site = HalfSite()
    producer = site.join()
    site.store("m")
    site.store("n")
    site.commit("m")
    site.roll_back("n")
    site.after(TIMEOUT_MS)
    assert producer.asked == []


@pytest.mark.rule("HALF-5")
def test_without_a_live_producer_no_check_counts_and_the_next_producer_is_asked_at_once() -> None:
    site = HalfSite()
    site.store("m")
    for _ in range(2 * CHECKS):
        site.after(INTERVAL_MS)
    assert site.named("m").checks == 0
    producer = site.join()
    site.turn()
    assert producer.asked == [("m", 1, b"")]


@pytest.mark.rule("HALF-5")
def test_a_check_that_could_not_be_written_does_not_count_and_is_tried_again() -> None:
    site = HalfSite()
    producer = site.join()
    producer.writable = False
    site.store("m")
    site.store("n")
    site.after(TIMEOUT_MS)
    site.after(1_000)
    assert site.named("m").checks == site.named("n").checks == 0
    producer.writable = True
    site.after(1_000)
    assert sorted(producer.asked) == [("m", 1, b""), ("n", 1, b"")]


@pytest.mark.rule("HALF-5")
def test_a_check_goes_to_another_producer_if_the_preferred_one_cannot_take_it() -> None:
    site = HalfSite()
    sender, other = site.join(AskedProducer("a")), site.join(AskedProducer("b"))
    site.store("m", producer=sender)
    sender.writable = False
    site.after(TIMEOUT_MS)
    assert (len(sender.asked), len(other.asked)) == (0, 1)


@pytest.mark.rule("HALF-5")
def test_unknown_keeps_the_message_pending() -> None:
    site = HalfSite()
    producer = site.join()
    stored = site.store("m")
    site.after(TIMEOUT_MS)
    assert site.half.unknown("/", stored.number) == 0
    site.after(INTERVAL_MS)
    assert len(producer.asked) == 2
    assert site.state("m") is HalfState.PENDING


@pytest.mark.rule("HALF-6")
def test_after_the_last_check_the_message_is_parked_and_not_delivered() -> None:
    site = HalfSite()
    producer = site.join()
    site.store("m")
    site.after(TIMEOUT_MS)
    for _ in range(CHECKS - 1):
        site.after(INTERVAL_MS)
    assert site.state("m") is HalfState.PENDING
    site.after(INTERVAL_MS)
    assert site.state("m") is HalfState.PARKED
    site.after(10 * INTERVAL_MS)
    assert len(producer.asked) == CHECKS
    assert site.contents() == []


def test_another_user_is_asked_only_with_the_right_to_write_to_the_topic() -> None:
    site = HalfSite()
    stranger = site.join(AskedProducer(user="eve"))
    site.store("m")
    site.after(TIMEOUT_MS)
    site.after(1_000)
    assert stranger.asked == []
    site.broker.access.add_user("eve", "")
    site.broker.access.set_permission("eve", "/", "", TOPIC, "")
    site.after(1_000)
    assert len(stranger.asked) == 1


def test_waiting_for_a_producer_of_one_user_does_not_hold_up_the_messages_of_another() -> None:
    site = HalfSite()
    producer = site.join()
    site.store("theirs", user="bob")
    site.store("ours", user=USER)
    site.after(TIMEOUT_MS)
    assert [ident for ident, _, _ in producer.asked] == ["ours"]


@pytest.mark.rule("FAIR-1")
def test_many_half_messages_that_fall_due_at_once_are_checked_in_several_turns() -> None:
    site = HalfSite()
    producer = site.join()
    for i in range(500):
        site.store(f"m{i}")
    site.sync()
    engine = site.broker.engine
    engine.now += TIMEOUT_MS
    engine.run_deadlines()
    engine.turn.end()
    assert 0 < len(producer.asked) < 100
    assert engine.turn.unfinished
    site.turn()
    assert [ident for ident, _, _ in producer.asked] == [f"m{i}" for i in range(500)]


def test_the_checks_of_a_turn_share_a_record() -> None:
    site = HalfSite()
    site.join()
    site.store("m")
    site.store("n")
    site.after(TIMEOUT_MS)
    (record,) = site.records(Kind.HALF_CHECKED)
    assert list(decode_half_many(record).numbers) == [1, 2]


def test_an_outcome_is_forgotten_after_its_time() -> None:
    site = HalfSite()
    stored = site.store("m")
    site.commit("m")
    site.after(site.half.options.outcome_kept_ms - 1)
    assert site.half.at("/", stored.number) is not None
    site.after(1)
    assert site.half.at("/", stored.number) is None


@pytest.mark.rule("HALF-4")
def test_a_producer_that_takes_few_checks_at_a_time_is_soon_asked_again() -> None:
    site = HalfSite()
    producer = FewChecks()
    site.half.producers.join("/", GROUP, producer)
    for number in range(40):
        site.store(f"m{number}")
    site.after(TIMEOUT_MS)
    for _ in range(4):
        producer.room = 10
        site.after(250)
    assert len(producer.asked) == 40


class FewChecks(AskedProducer):
    """A producer whose connection takes a few checks at a time, and the next ones a moment later."""

    room = 0

    def check(self, half: HalfMessage) -> bool:
        if not self.room:
            return False
        self.room -= 1
        return super().check(half)


@pytest.mark.rule("HALF-6")
def test_a_watcher_learns_of_each_parked_half_message() -> None:
    site = HalfSite()
    site.half.options.check = CheckOptions(10, 10, 1)
    parked: list[str] = []
    site.half.watch(lambda half: parked.append(half.message_id))
    site.join()
    site.store("m")
    site.store("n")
    site.roll_back("n")
    site.after(10)
    assert parked == []
    site.after(10)
    assert parked == ["m"]
