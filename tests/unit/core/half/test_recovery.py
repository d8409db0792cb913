"""A restart, from the log alone or from a snapshot, restores every half message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.state import HalfState
from tests.unit.core.half.half_site import CHECKS, INTERVAL_MS, TIMEOUT_MS, AskedProducer, HalfSite

Facts = tuple[object, ...]


def facts(half: HalfMessage) -> Facts:
    return (
        *(half.number, half.transaction_id, half.topic, half.group, half.user, half.label, half.message_id),
        *(half.state, half.born, half.due, half.checks),
        half.queue and half.queue.name,
        b"" if half.state.decided else half.content,
    )


def log_alone(site: HalfSite) -> HalfSite:
    site.turn()
    return site.again()


def snapshot(site: HalfSite) -> HalfSite:
    site.snapshot()
    return site.again()


def both(site: HalfSite) -> HalfSite:
    return log_alone(snapshot(site))


every_way = pytest.mark.parametrize("way", [log_alone, snapshot, both])


def busy() -> HalfSite:
    """Return a site with half messages in every state, some of which were checked."""
    site = HalfSite()
    producer = site.join(AskedProducer("client-1"))
    for ident in ("parked", "resumed"):
        site.store(ident, ident.encode(), producer=producer)
    site.after(TIMEOUT_MS)
    for _ in range(CHECKS):
        site.after(INTERVAL_MS)
    for ident in ("committed", "rolled back", "checked"):
        site.store(ident, ident.encode())
    site.after(TIMEOUT_MS)
    site.half.resume("/", 2)
    site.commit("committed")
    site.roll_back("rolled back")
    site.store("new", b"new", group="other", user="bob")
    site.turn()
    return site


@pytest.mark.rule("HALF-1")
@every_way
def test_every_half_message_is_restored(way: Callable[[HalfSite], HalfSite]) -> None:
    site = busy()
    before = [facts(half) for half in site.half.some("/", 0, 100)]
    assert {half.state for half in site.half.some("/", 0, 100)} == set(HalfState)
    again = way(site)
    assert [facts(half) for half in again.half.some("/", 0, 100)] == before
    assert again.contents() == [b"committed"]
    assert again.live() == site.live()


@pytest.mark.rule("HALF-4")
@every_way
def test_checks_go_on_after_a_restart_and_are_not_too_many(way: Callable[[HalfSite], HalfSite]) -> None:
    site = HalfSite()
    first = site.join()
    site.store("m")
    site.after(TIMEOUT_MS)
    for _ in range(4):
        site.after(INTERVAL_MS)
    again = way(site)
    second = again.join()
    for _ in range(2 * CHECKS):
        again.after(INTERVAL_MS)
    assert [number for _, number, _ in first.asked + second.asked] == list(range(1, CHECKS + 1))
    assert again.state("m") is HalfState.PARKED


@every_way
def test_a_message_that_arrives_after_a_restart_gets_a_number_of_its_own(way: Callable[[HalfSite], HalfSite]) -> None:
    site = HalfSite()
    site.store("m")
    site.roll_back("m")
    again = way(site)
    assert again.store("n").number == 2


def test_outcomes_are_forgotten_in_the_order_of_the_decisions_after_a_restart() -> None:
    site = HalfSite()
    for ident in "ab":
        site.store(ident)
    site.commit("b")
    site.after(1)
    site.commit("a")
    again = log_alone(site)
    again.after(again.half.options.outcome_kept_ms - 1)
    assert again.half.at("/", 2) is None
    assert again.half.at("/", 1) is not None


def test_a_half_message_whose_record_is_not_synced_is_gone_after_a_crash() -> None:
    site = HalfSite()
    site.store("m")
    assert site.again().half.at("/", 1) is None
