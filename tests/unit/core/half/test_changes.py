"""The changes of half messages as parts of decisions."""

from __future__ import annotations

from escrowmq.core.half.changes import Deciding, Storing
from escrowmq.core.half.queue import HalfQueue
from escrowmq.core.records.half import HalfDecided, HalfStored, OriginFields, decode_half_decided, decode_half_stored
from tests.unit.core.half.half_site import HalfSite


def test_storing_adds_the_half_message_and_its_bound_covers_the_record() -> None:
    site = HalfSite()
    site.store("first")
    queue = site.half.queue("/")
    assert isinstance(queue, HalfQueue)
    fields = OriginFields("t" * 200, "g" * 200, "ü", "€", 1)
    stored = HalfStored(queue.ident, 2, 1, 2, "m" * 255, fields)
    done: list[HalfStored] = []
    storing = Storing(queue, stored, queue.ledger.origins.of(fields), done.append)
    ((_, (payload,)),) = storing.operations()
    assert decode_half_stored(payload) == stored
    assert storing.bytes >= len(payload)
    storing.apply(0, 0)
    assert done == [stored]
    assert queue.ledger.number(fields.topic, stored.ident) == 2


def test_deciding_changes_the_state_when_it_takes_effect() -> None:
    decided = HalfDecided(1, 2, 3, False, 4)
    done: list[HalfDecided] = []
    deciding = Deciding(decided, done.append)
    ((_, (payload,)),) = deciding.operations()
    assert (decode_half_decided(payload), done) == (decided, [])
    assert deciding.bytes >= len(payload)
    deciding.apply(0, 0)
    assert done == [decided]
