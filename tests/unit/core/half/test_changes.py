"""The changes of half messages as parts of decisions."""

from __future__ import annotations

from escrowmq.core.half.changes import Deciding, NewHalf, Storing
from escrowmq.core.half.queue import HalfQueue
from escrowmq.core.records.half import HalfDecided, HalfStored, OriginFields, decode_half_decided, decode_half_stored
from tests.unit.core.half.half_site import HalfSite


def test_storing_adds_the_half_message_and_its_bound_covers_the_record() -> None:
    site = HalfSite()
    site.store("first")
    queue = site.half.queue("/")
    assert isinstance(queue, HalfQueue)
    fields = OriginFields("t" * 200, "g" * 200, "ü", "€", 1)
    origin = queue.ledger.origins.of(fields)
    storing = Storing(queue, [NewHalf(2, "m" * 255, 1, 2, origin), NewHalf(3, "n", 1, 2, origin)])
    payloads = [payload for _, (payload,) in storing.operations()]
    assert [decode_half_stored(payload) for payload in payloads] == [
        HalfStored(queue.ident, 2, 1, 2, "m" * 255, fields),
        HalfStored(queue.ident, 3, 1, 2, "n", fields),
    ]
    assert storing.bytes >= sum(map(len, payloads))
    storing.apply(0, 0)
    assert [queue.ledger.number(fields.topic, ident) for ident in ("m" * 255, "n")] == [2, 3]


def test_deciding_changes_the_state_when_it_takes_effect() -> None:
    decided = [HalfDecided(1, 2, 3, False, 4), HalfDecided(1, 3, 3, False, 4)]
    done: list[HalfDecided] = []
    deciding = Deciding(decided, done.extend)
    payloads = [payload for _, (payload,) in deciding.operations()]
    assert ([decode_half_decided(payload) for payload in payloads], done) == (decided, [])
    assert deciding.bytes >= sum(map(len, payloads))
    deciding.apply(0, 0)
    assert done == decided
