"""Locks of exclusive queues that outlive their session."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp010.exclusive import QueueLocks, SessionOwner
from tests.unit.wire.amqp010.clients import server

ONE, OTHER = SessionOwner(), SessionOwner()


def queue() -> Queue:
    directory = server().broker.directory
    return directory.declare_queue(directory.vhost("/"), "q", Declaration(), Session("one"))


@pytest.mark.rule("EXC-2")
def test_a_lock_excludes_other_owners_until_it_is_released() -> None:
    locks, locked = QueueLocks(), queue()
    locks.check(locked, OTHER)
    assert locks.lock(locked, ONE)
    locks.check(locked, ONE)
    with pytest.raises(BrokerError) as refused:
        locks.check(locked, OTHER)
    assert refused.value.condition is Condition.RESOURCE_LOCKED
    locks.release(locked)
    locks.check(locked, OTHER)


@pytest.mark.rule("EXC-2")
def test_an_owner_gets_a_lock_once() -> None:
    locks, locked = QueueLocks(), queue()
    assert locks.lock(locked, ONE)
    assert not locks.lock(locked, ONE)
    with pytest.raises(BrokerError):
        locks.lock(locked, OTHER)


def test_to_release_what_is_not_locked_does_nothing() -> None:
    locks, locked = QueueLocks(), queue()
    locks.release(locked)
    assert locks.lock(locked, OTHER)
