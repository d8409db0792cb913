"""Users, virtual hosts and permissions are restored from records unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import Entry, Permission, TopicPermission, User, Vhost
from escrowmq.core.access.records import ACCESS_KINDS, deleted_record, restore, set_record, vhost_of
from escrowmq.core.broker import Broker
from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.replay import Recovery
from escrowmq.core.recovery.snapshot import snapshot

ALICE = User("alice", "$argon2id$x", ("administrator", "monitoring"))
ORDERS = Vhost("orders")
BOB = User("bob", "$argon2id$y", (), 3, 4, ("SCRAM-SHA-256$4096:a$b:c",), ("key", "other"))
ENTRIES: tuple[Entry, ...] = (
    ALICE,
    ORDERS,
    Permission("alice", "orders", "^a", "", ".*"),
    TopicPermission("alice", "orders", "amq.topic", "^a\\.", "é"),
)


class Tape:
    """A log that only supports appending."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.end_lsn = self.synced_lsn = 0

    def proof_lsn(self, after: int) -> int:
        return after

    def append(self, kind: int, *parts: bytes) -> int:
        self.records.append((kind, b"".join(parts)))
        self.end_lsn += 1
        return self.end_lsn

    def read(self, lsn: int, length: int) -> bytes:
        raise NotImplementedError

    def read_ahead(self, lsn: int, most: int) -> bytes:
        raise NotImplementedError

    def retain(self, lsn: int, count: int) -> None:
        """This log contains no messages."""

    def retain_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """This log contains no messages."""

    def release(self, lsn: int, count: int) -> None:
        """This log contains no messages."""

    def release_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """This log contains no messages."""


def replayed(records: list[tuple[int, bytes]]) -> Broker:
    broker = Broker(Tape(), Random(1))
    recovery = Recovery(broker)
    for kind, payload in records:
        recovery.apply(0, kind, payload)
    recovery.finish()
    broker.directory.end_restore()
    return broker


def filled() -> tuple[Broker, Tape]:
    tape = Tape()
    broker = Broker(tape, Random(1))
    broker.directory.record_access(broker.access.add_user("alice", "hash", ("administrator",)))
    broker.directory.add_vhost("orders")
    broker.directory.record_access(broker.access.set_permission("alice", "orders", "", "^w", ".*"))
    broker.directory.record_access(broker.access.set_topic_permission("alice", "orders", "t", "^w", ".*"))
    return broker, tape


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_survives_its_record(entry: Entry) -> None:
    kind, fields = set_record(entry)
    fields = decode_change(encode_change(**fields))
    if kind is Kind.VHOST_SET:  # the directory restores these, together with the names in them
        assert fields == {"name": "orders"}
        return
    access = Access()
    restore(access, kind, fields)
    assert list(access.entries()) == [entry]


def test_the_keys_of_scram_survive_and_are_optional() -> None:
    kind, fields = set_record(BOB)
    access = Access()
    restore(access, kind, decode_change(encode_change(**fields)))
    assert access.users["bob"] == BOB
    assert "scram_hashes" not in set_record(ALICE)[1]
    assert "SCRAM" not in repr(BOB)


def test_a_removed_entry_is_not_restored() -> None:
    access = Access()
    for entry in ENTRIES:
        access.put(entry)
    for entry in ENTRIES[:1:-1]:
        restore(access, *deleted_record(entry))
    assert list(access.entries()) == [ALICE, ORDERS]


def test_removing_a_user_removes_its_permissions() -> None:
    access = Access()
    for entry in ENTRIES:
        access.put(entry)
    restore(access, *deleted_record(ALICE))
    assert list(access.entries()) == [ORDERS]


def test_restore_accepts_exactly_the_kinds_of_access_control() -> None:
    kinds = {make(entry)[0] for make in (set_record, deleted_record) for entry in ENTRIES}
    assert kinds == ACCESS_KINDS | {Kind.VHOST_SET, Kind.VHOST_DELETED}
    with pytest.raises(AssertionError, match="QUEUE_DECLARED"):
        restore(Access(), Kind.QUEUE_DECLARED, {})


def test_the_log_restores_all_entries() -> None:
    broker, tape = filled()
    again = replayed(tape.records)
    assert list(again.access.entries()) == list(broker.access.entries())
    assert list(again.directory.vhosts) == ["orders"]


def test_a_snapshot_restores_all_entries() -> None:
    broker, _ = filled()
    again = replayed([(kind, b"".join(parts)) for kind, parts in snapshot(broker)])
    assert list(again.access.entries()) == list(broker.access.entries())


def test_setting_a_vhost_again_keeps_its_content_even_if_the_record_has_limits() -> None:
    """Records of earlier versions contain limits, which had no effect."""
    broker, tape = filled()
    broker.directory.declare_exchange(broker.directory.vhosts["orders"], "e", "direct", durable=True)
    tape.append(Kind.VHOST_SET, encode_change(name="orders", limits={}))
    again = replayed(tape.records)
    assert again.access.vhost("orders") == ORDERS
    assert "e" in again.directory.vhosts["orders"].exchanges


def test_removed_entries_are_absent_after_a_replay() -> None:
    broker, tape = filled()
    broker.directory.record_access_removed(broker.access.remove_user("alice"))
    broker.directory.delete_vhost("orders")
    assert [kind for kind, _ in tape.records[-2:]] == [Kind.USER_DELETED, Kind.VHOST_DELETED]
    again = replayed(tape.records)
    assert not list(again.access.entries())
    assert not again.directory.vhosts


def test_a_user_that_is_added_again_has_no_permissions() -> None:
    broker, tape = filled()
    broker.directory.record_access_removed(broker.access.remove_user("alice"))
    broker.directory.record_access(broker.access.add_user("alice", "other"))
    again = replayed(tape.records)
    assert not again.access.permissions
    assert not again.access.topic_permissions


def test_removing_one_permission_keeps_the_others() -> None:
    broker, tape = filled()
    broker.directory.record_access_removed(broker.access.clear_permission("alice", "orders"))
    broker.directory.record_access_removed(broker.access.clear_topic_permission("alice", "orders"))
    again = replayed(tape.records)
    assert not again.access.permissions
    assert not again.access.topic_permissions
    assert "alice" in again.access.users


@pytest.mark.parametrize("entry", [User("bob", "", (), 0, 7), User("bob", "", (), None, 0)])
def test_the_limits_of_a_user_survive_their_record(entry: User) -> None:
    access = Access()
    kind, fields = set_record(entry)
    restore(access, kind, decode_change(encode_change(**fields)))
    assert list(access.entries()) == [entry]


@pytest.mark.parametrize("entry", [Vhost("v", 3, 0), Vhost("v", None, 9), Vhost("v")])
def test_the_limits_of_a_virtual_host_survive_their_record(entry: Vhost) -> None:
    kind, fields = set_record(entry)
    assert kind is Kind.VHOST_SET
    assert vhost_of(decode_change(encode_change(**fields))) == entry
