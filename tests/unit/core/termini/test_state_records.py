"""The state of a terminus as records."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import decode_acquired, decode_arrived
from escrowmq.core.termini import state_records
from escrowmq.core.termini.state_records import CapturedTermini, set_fields
from escrowmq.core.termini.terminus import Durability, Terminus
from tests.unit.core.site import Site
from tests.unit.core.termini.links import BRIEF, KEPT, TestedLink, attached_again, consuming, incoming, outgoing


def capture(terminus: Terminus) -> CapturedTermini:
    assert terminus.termini is not None
    return terminus.termini.captured()


def records(captured: CapturedTermini) -> list[tuple[Kind, bytes]]:
    return [(kind, b"".join(parts)) for kind, parts in captured.records()]


def test_the_settings_are_written_with_the_next_delivery_number() -> None:
    link = consuming(Site(), b"a", settings=KEPT._replace(address="q", data=b"\x00", timeout_ms=5))
    assert set_fields(link.terminus) == {
        "number": 1,
        "vhost": "/",
        "container": "c",
        "link": "l",
        "role": "outgoing",
        "user": "u",
        "durability": 2,
        "policy": "never",
        "timeout_ms": 5,
        "second": True,
        "address": "q",
        "data": b"\x00",
        "default": "MODIFIED",
        "next_delivery": 2,
    }


def test_a_capture_is_the_state_at_its_time() -> None:
    site = Site()
    link = consuming(site, b"a", b"b", b"c")
    link.loan.settle(2, 2, Disposition.ACCEPTED)
    captured = capture(link.terminus)
    link.loan.settle(1, 3, Disposition.ACCEPTED)
    (kind, fields), (_, acquired) = records(captured)
    assert kind is Kind.TERMINUS_SET
    assert decode_change(fields)["next_delivery"] == 4
    assert decode_acquired(acquired).ranges == [(1, 1, 1), (3, 3, 1)]


def test_locked_and_loaded_deliveries_are_captured_together() -> None:
    site = Site()
    consuming(site, b"a", b"b", b"c")
    site = site.restart()
    link = attached_again(site, outgoing())
    link.terminus.deliveries.take_up([2])
    found = [decode_acquired(record).ranges for kind, record in records(capture(link.terminus))[1:]]
    assert found == [[(1, 1, 1), (3, 3, 1), (2, 2, 1)]]


def test_messages_that_do_not_survive_a_restart_are_left_out() -> None:
    site = Site()
    link = consuming(site, b"a")
    site.publish("q", b"transient", durable=False)
    site.turn()
    (_, (_, acquired)) = records(capture(link.terminus))
    assert decode_acquired(acquired).ranges == [(1, 1, 1)]


def test_many_tags_are_divided_into_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_records, "PIECE", 2)
    site = Site()
    site.queue()
    link = TestedLink(site, incoming())
    link.post([b"1", b"2", b"3"], [b"a", b"b", b"c"])
    found = [decode_arrived(record).tags for kind, record in records(capture(link.terminus))[1:]]
    assert found == [[b"1", b"2"], [b"3"]]


def test_nothing_unsettled_is_written_of_a_terminus_that_does_not_keep_it() -> None:
    site = Site()
    link = consuming(site, b"a", settings=BRIEF._replace(durability=Durability.CONFIGURATION))
    assert [kind for kind, _ in records(capture(link.terminus))] == [Kind.TERMINUS_SET]


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("role", ["incoming", "outgoing", "idle", "enlisted"])
def test_only_termini_with_unsettled_deliveries_are_copied_with_them(role: str) -> None:
    site = Site()
    link = consuming(site, b"a") if role in {"outgoing", "enlisted"} else TestedLink(site, incoming())
    if role == "incoming":
        link.post([b"1"], [b"a"])
    if role == "enlisted":
        link.loan.enlist(site.begin(), 1, 1)
    captured = capture(link.terminus)
    assert (link.terminus in captured.unsettled) == (role != "idle")
    kinds = [kind for kind, _ in records(captured)]
    assert kinds == [Kind.TERMINUS_SET, *{"idle": [], "incoming": [Kind.ARRIVED]}.get(role, [Kind.ACQUIRED])]


def test_a_capture_has_the_settings_of_its_time() -> None:
    link = consuming(Site(), b"a", settings=KEPT._replace(address="q"))
    captured, fields = capture(link.terminus), set_fields(link.terminus)
    link.terminus.settings = KEPT
    link.loan.settle(1, 1, Disposition.ACCEPTED)
    (_, found), *_ = records(captured)
    assert decode_change(found) == fields


@pytest.mark.rule("FAIR-1")
def test_a_capture_looks_only_at_termini_whose_deliveries_may_be_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.queue()
    links = [TestedLink(site, incoming(f"l{number}"), settings=KEPT) for number in range(50)]
    for link in links:
        link.post([b"1"], [b"a"])
        link.loan.forget([b"1"])
    site.turn()
    termini = site.broker.termini
    looked: list[Terminus] = []

    def looking(terminus: Terminus) -> bool:
        looked.append(terminus)
        return terminus.arrivals.empty

    monkeypatch.setattr(Terminus, "idle", property(looking))
    assert not termini.captured().unsettled
    looked.clear()
    links[3].post([b"2"], [b"b"])
    captured = termini.captured()
    assert list(captured.unsettled) == looked == [links[3].terminus]
    assert [kind for kind, _ in records(captured)].count(Kind.TERMINUS_SET) == 50
    links[3].loan.close()
    links[4].loan.close()
    assert [kind for kind, _ in records(termini.captured())] == [Kind.TERMINUS_SET] * 48


def test_deliveries_that_come_back_from_a_transaction_are_captured() -> None:
    site = Site()
    link = consuming(site, b"a")
    branch = site.begin()
    ((consumer, tags, entries),) = link.loan.enlist(branch, 1, 1)
    assert len(records(capture(link.terminus))) == 2, "a crash would end the branch"
    site.broker.transactions.rollback(branch)
    assert len(records(capture(link.terminus))) == 1
    link.loan.keep(consumer, tags, entries)
    assert len(records(capture(link.terminus))) == 2
