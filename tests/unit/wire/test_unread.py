"""Bytes that were received and cannot be processed yet."""

from __future__ import annotations

from escrowmq.wire.unread import Unread


def test_chunks_are_returned_joined_in_order_and_once() -> None:
    unread = Unread()
    assert not unread
    unread.add(b"ab")
    unread.add(b"c")
    assert unread
    assert unread.take() == b"abc"
    assert not unread


def test_a_single_chunk_is_not_copied() -> None:
    unread, chunk = Unread(), bytes(1000)
    unread.add(chunk)
    assert unread.take() is chunk


def test_unread_bytes_are_ready_when_there_are_enough() -> None:
    unread = Unread()
    ready = []
    for chunk in (b"ab", b"c", b"d"):
        unread.add(chunk, 4)
        ready.append(unread.ready)
    assert ready == [False, False, True]


def test_no_bytes_are_needed_after_clearing() -> None:
    unread = Unread()
    unread.add(b"ab", 4)
    unread.clear()
    assert unread.ready
    assert not unread
