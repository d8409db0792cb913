"""docs/internals/records.md against the code: numbers, layouts, the bytes of its examples, the fields of changes."""

from __future__ import annotations

import json
import random
import re
from array import array
from collections.abc import Sequence
from struct import Struct

import pytest

from escrowmq.admin.action import OperatorAction, acting, record_action
from escrowmq.core.access.permissions import Entry
from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xid import Xid
from escrowmq.core.broker import Broker
from escrowmq.core.messages import envelope
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.marks import Marks
from escrowmq.core.policies.policy import Policy
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.queue import Session
from escrowmq.core.records import blocks as blocks_records
from escrowmq.core.records import branches as branch_records
from escrowmq.core.records import commits as commits_records
from escrowmq.core.records import deliveries
from escrowmq.core.records import groups as group_records
from escrowmq.core.records import half as half_records
from escrowmq.core.records import marking as marking_records
from escrowmq.core.records import moves as moves_records
from escrowmq.core.records import publishing as publishing_records
from escrowmq.core.records import queue_state as queue_state_records
from escrowmq.core.records import references as references_records
from escrowmq.core.records import reservations as hold_records
from escrowmq.core.records import settling as settling_records
from escrowmq.core.records import termini as termini_records
from escrowmq.core.records.branches import Item, Prepared, SettlementItem
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move
from escrowmq.core.records.queue_state import QueueState
from escrowmq.core.records.references import Range, Reference
from escrowmq.core.records.reservations import Held, HeldRange, encode_held, encode_released
from escrowmq.core.recovery.snapshot import snapshot
from escrowmq.core.termini.terminus import Durability, LinkRole, TerminusKey, TerminusSettings
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal import digests, removals
from escrowmq.wire.amqp010.codec.spec import MessageProperties
from escrowmq.wire.amqp010.content import TransferContent
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from tests.docs.pages import blocks
from tests.unit.core.termini.links import TestedLink
from tests.unit.sources import ROOT

PAGE = ROOT / "docs" / "internals" / "records.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "bytes": "12s"}
LAYOUTS = {
    "Envelope head": [envelope._FIXED],
    "Death": [envelope._DEATH, Struct("<q")],
    "Block head": [blocks_records.BLOCK],
    "Target": [publishing_records._TARGET],
    "Settle head": [settling_records._SETTLE],
    "Range": [settling_records._RANGE],
    "Commit head": [commits_records.COMMIT],
    "Operation head": [commits_records.OPERATION],
    "Move head": [moves_records._MOVE],
    "Prepare head": [branch_records.PREPARE],
    "Item head": [branch_records.ITEM],
    "Publication head": [branch_records.PUBLICATION],
    "Address": [branch_records.ADDRESS],
    "Decide head": [branch_records.DECIDE],
    "Queue state head": [queue_state_records._STATE],
    "Held head": [hold_records._HELD],
    "Held range": [hold_records._RANGE],
    "Copy": [hold_records._COPY],
    "Released head": [hold_records._RELEASED],
    "Deliveries head": [deliveries._HEAD],
    "Part head": [deliveries._PART],
    "Marked head": [marking_records._HEAD],
    "Marks head": [marking_records._MARKS],
    "Arrived head": [termini_records._ARRIVED],
    "Forgotten head": [termini_records._FORGOTTEN],
    "Acquired head": [termini_records._ACQUIRED],
    "Acquired range": [termini_records._NUMBERED],
    "Half stored head": [half_records._STORED],
    "Half decided": [half_records._DECIDED],
    "Half checked head": [half_records._SOME],
    "Half resumed": [half_records._RESUMED],
    "Half state head": [half_records._STATE],
    "Half origin head": [half_records._ORIGIN],
    "Group leased head": [group_records._LEASED],
    "Group leased range": [group_records._LEASED_RANGE],
    "Group settled head": [group_records._SETTLED],
    "Group settled range": [group_records._SETTLED_RANGE],
    "Group progress": [group_records._PROGRESS],
    "Group locked head": [group_records._LOCKED],
    "Digest head": [digests.HEAD],
    "Removed part": [removals.HOLE],
}

ENVELOPE = Envelope("", "q", Properties(delivery_mode=2).encode(), protocol=PROTOCOL, durable=True)
BLOCK = b"".join(blocks_records.encode_block(7, ENVELOPE, [b"a", b"bc"]))
PUBLISH = publishing_records.encode_targets([(3, 40)]) + BLOCK
SETTLE = settling_records.encode_settle(3, Outcome.ACCEPTED, [Range(40, 2)])
PREPARED = branch_records.encode_prepare(
    Prepared(5, 3, 6, 7, 60, Xid(1, b"g", b"b").encode(), "app", [], []),
    [
        (Item.RUN, [branch_records.run_head([3], mandatory=False), BLOCK]),
        branch_records.encode_settlement(SettlementItem(4, Outcome.ACCEPTED, [Range(40, 1)], requeue=False)),
    ],
)[0]
ORIGIN = half_records.OriginFields("t", "g", "u", "c", 3)
EXAMPLES = {
    "prepare": b"".join(PREPARED),
    "placed": branch_records.encode_placed([(3, 40)], 4096, 2),
    "rollback": branch_records.encode_number(5),
    "heuristic": b"".join(branch_records.encode_heuristic(5, [], commit=True)[0]),
    "decide": b"".join(branch_records.encode_decide("app", 9, [6], [(5, [])])[0]),
    "packed": pack(Properties(message_id="m1").encode(), b"a"),
    "keyed": join(b"k.1", pack(Properties(message_id="m1").encode(), b"a")),
    "transfer": TransferContent(MessageProperties(content_type="t").write(), b"a", timestamp=5).pack(),
    "block": BLOCK,
    "publish": PUBLISH,
    "settle": SETTLE,
    "commit": b"".join(commits_records.encode_commit(5, [(Kind.PUBLISH, [PUBLISH]), (Kind.SETTLE, [SETTLE])])[0]),
    "relocate": moves_records.encode_moves([Move(3, array("Q", [41]), array("I", [0]))])
    + b"".join(blocks_records.encode_block(7, ENVELOPE, [b"bc"])),
    "readdressed": moves_records.encode_readdressed([Move(4, array("Q", [8]), array("I", [0]))], 4142),
    "returned": queue_state_records.encode_returned(3, [(40, 2)]),
    "marked": marking_records.encode_marked(3, [(40, Marks(1, {"x": b"1"}, frozenset({"l"})))]),
    "delivered": queue_state_records.encode_delivered(3, 42),
    "queue_state": b"".join(
        queue_state_records.encode_queue_state(
            QueueState(3, 42, 42, array("Q", [41]), array("Q", [4096]), array("I", [1]), array("I", [1]), [(41, 1)])
        )
    ),
    "held": b"".join(
        encode_held(Held(3, "etl", 1, 7, [HeldRange(41, 2, 0), HeldRange(40, 1, 1)], [Reference(42, 1, 4142, 0)]))
    ),
    "released": encode_released(3, "etl", 9, 9),
    "arrived": termini_records.encode_arrived(
        5, Disposition.ACCEPTED, [b"t1", b"t2"], [b"\1" + bytes(7), b"\2" + bytes(7)]
    ),
    "forgotten": termini_records.encode_forgotten(5, [b"t1"]),
    "acquired": termini_records.encode_acquired(6, 3, [(7, 40, 2)]),
    "given_back": termini_records.encode_given_back(6, 3, [(40, 1)]),
    "half_stored": half_records.encode_half_stored(half_records.HalfStored(9, 1, 7, 6007, "m1", ORIGIN)),
    "half_decided": half_records.encode_half_decided(half_records.HalfDecided(9, 1, 3, False, 8)),
    "half_checked": half_records.encode_half_many(9, 8, [1, 2], [15, 3]),
    "half_resumed": half_records.encode_half_resumed(half_records.HalfResumed(9, 1, 8)),
    "half_state": b"".join(
        half_records.encode_half_states(9, [(1, ORIGIN)], [half_records.HalfRow(1, "m1", 7, 6007, 1, 0, 1)])
    ),
    "group_leased": group_records.encode_leased(2, 3, 9, 1000, [group_records.LeasedRange(40, 2, 1)]),
    "group_settled": group_records.encode_group_settled(
        2, 3, group_records.SettledCause.HANDLED, 40, [group_records.SettledRange(41, 1, 9)]
    ),
    "group_progress": group_records.encode_group_progress(2, 3, group_records.ProgressCause.ADVANCED, 42),
    "group_locked": group_records.encode_locked(2, 3, 1000, "c1"),
    "digest": digests.FrameDigest(4096, 7, 0x12345678, b"", array("I")).pack(),
    "removed": removals.encode([removals.Hole(0, 4096, b"0123456789ab")]),
    "deliveries": deliveries.encode_deliveries(
        deliveries.Delivered(
            3,
            7,
            [deliveries.Part("c", deliveries.REDELIVERED, [Range(40, 1)]), deliveries.Part("c", 0, [Range(41, 1)])],
        )
    ),
}


def section(title: str) -> str:
    return re.split(r"\n#{2,3} ", TEXT.split(f"# {title}\n")[1])[0]


def numbers(title: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"^\| `(\w+)` \| (\d+) \|", section(title), re.MULTILINE)}


def hexdump(data: bytes) -> str:
    """Format bytes like the page: the address, sixteen bytes, and the printable characters."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:04x}  {row.hex(' '):<47}  {shown}\n")
    return "".join(lines)


def test_kinds() -> None:
    assert numbers("Kinds") == {kind.name: kind.value for kind in Kind}


def test_items() -> None:
    assert numbers("Item head") == {item.name: item.value for item in Item}


def test_states_in_a_prepare_record() -> None:
    states = (State.PREPARED, State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK)
    words = ("prepared", "committed by an operator", "rolled back by an operator")
    assert ", ".join(f"{state.value} {word}" for state, word in zip(states, words, strict=True)) in section(
        "Prepare head"
    )


def test_outcomes() -> None:
    assert numbers("Outcomes") == {outcome.name: outcome.value for outcome in Outcome}


@pytest.mark.parametrize("title", LAYOUTS)
def test_layouts(title: str) -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", section(title), re.MULTILINE)
    structs = LAYOUTS[title]
    assert "".join(CODES[kind] for _, _, kind in rows) == "".join(s.format.removeprefix("<") for s in structs)
    at = 0
    for offset, size, _ in rows:
        assert int(offset) == at
        at += int(size)
    assert at == sum(s.size for s in structs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_show_the_bytes(name: str) -> None:
    (block,) = blocks(PAGE, name)
    assert block.text == hexdump(EXAMPLES[name])


def test_protocol_flags_and_the_mark_of_transient_content() -> None:
    assert f"{PROTOCOL} for AMQP 0-9-1, {PACKED} for AMQP 0-9-1 with packed content, {KEYED} with keyed content" in TEXT
    flags = (
        f"{envelope._DURABLE} persistent, {envelope._DIED} has a dead-letter history, "
        f"{envelope._EXTRA_KEYS} has further"
    )
    assert flags in TEXT
    assert f"`{references_records.TRANSIENT:#x}`" in TEXT


def test_what_stands_behind_the_envelope_head() -> None:
    """The order of the page's table, read by hand from the bytes."""
    death = Death("dead", "expired", 2, 1000, "ex", ("k1", "k2"), None)
    data = Envelope("x", "key", b"HEAD", extra_keys=("cc",), deaths=(death,)).encode()
    texts = b"\x01\x00x" + b"\x03\x00key" + b"\x04\x00\x00\x00HEAD" + b"\x01\x00" + b"\x02\x00cc"
    one = Struct("<QQq").pack(2, 1000, -1)
    one += b"\x04\x00dead" + b"\x07\x00expired" + b"\x02\x00ex" + b"\x02\x00" + b"\x02\x00k1" + b"\x02\x00k2"
    assert data[11:] == texts + b"\x01\x00" + one


class Recorder:
    """A log that only stores the appended records."""

    end_lsn = 0
    synced_lsn = 0

    def __init__(self) -> None:
        self.records: list[tuple[Kind, bytes]] = []

    def proof_lsn(self, after: int) -> int:
        return after

    def append(self, kind: int, *parts: bytes) -> int:
        self.records.append((Kind(kind), b"".join(parts)))
        return 0

    def read(self, lsn: int, length: int) -> bytes:
        raise AssertionError("nothing is read")

    read_ahead = read

    def retain(self, lsn: int, count: int) -> None: ...

    def retain_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None: ...

    def release(self, lsn: int, count: int) -> None: ...

    def release_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None: ...


def changes() -> list[tuple[Kind, bytes]]:
    """Return every change that a broker records, and a snapshot."""
    log = Recorder()
    broker = Broker(log, random.Random(1))
    broker.directory.add_vhost("/")
    vhost = broker.directory.vhost("/")
    broker.directory.declare_exchange(vhost, "x", "topic", durable=True)
    broker.directory.declare_queue(
        vhost, "q", Declaration(durable=True, arguments={"x-note": b"\x00"}), Session("test")
    )
    broker.directory.bind_queue(vhost, "x", "q", "k")
    broker.directory.declare_exchange(vhost, "passing", "topic")
    broker.directory.bind_exchange(vhost, "x", "passing", "k")
    access = broker.access
    entries: list[Entry] = [
        access.add_user("u", "hash", scram_hashes=("keys",)),
        access.set_permission("u", "/", ".*", ".*", ".*"),
        access.set_topic_permission("u", "/", "x", ".*", ".*"),
    ]
    for entry in entries:
        broker.directory.record_access(entry)
    broker.directory.record_access(access.set_vhost_limits("/", 1, 1))
    broker.directory.record_access(access.set_user_limits("u", 1, 1))
    broker.directory.policies.put(Policy("/", "p", "", {"max-length": 1}))
    broker.directory.policies.parameters.put("a", 1)
    with acting(OperatorAction("queue.purge", {"name": "q"}, "u", "")):
        record_action(broker)
    broker.engine.behind_ms = 1
    broker.coordinator.progress.assign("app", "u")
    durable = TerminusSettings(Durability.CONFIGURATION)
    link = TestedLink(broker, TerminusKey("/", "c", "l", LinkRole.OUTGOING), durable, user="u")
    group = broker.groups.declare("/", "g", user="u")
    log.records += [(kind, b"".join(parts)) for kind, parts in snapshot(broker)]
    broker.directory.policies.remove("/", "p", operator=False)
    broker.directory.policies.parameters.remove("a")
    broker.coordinator.progress.reset("app")
    link.loan.close()
    broker.groups.delete(group)
    broker.directory.record_access_removed(access.clear_topic_permission("u", "/", "x"))
    broker.directory.record_access_removed(access.clear_permission("u", "/"))
    broker.directory.record_access_removed(access.remove_user("u"))
    broker.directory.unbind_queue(vhost, "x", "q", "k")
    broker.directory.delete_queue(vhost.queues["q"])
    broker.directory.delete_exchange(vhost, "x")
    broker.directory.delete_vhost("/")
    return [(kind, payload) for kind, payload in log.records if kind >= Kind.COUNTERS]


def test_fields_of_changes() -> None:
    documented = {
        kind: set(re.findall(r"`(\w+)`", fields))
        for kinds, fields in re.findall(r"^\| (.*) \| (.*) \|$", section("Changes of names and access"), re.MULTILINE)
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    found = changes()
    fields: dict[str, set[str]] = {}  # some fields are absent without a value
    for kind, payload in found:
        fields.setdefault(kind.name, set()).update(json.loads(payload))
    assert fields == documented


def test_bytes_in_json() -> None:
    (declared, *_) = [payload for kind, payload in changes() if kind is Kind.QUEUE_DECLARED]
    assert json.loads(declared)["arguments"] == {"x-note": {"$bytes": "00"}}
