"""A connection accepts calls from one thread of one process."""

from __future__ import annotations

import threading

import pytest

from escrowmq.client.errors import InterfaceError
from escrowmq.client.guard import Guard


def test_a_callback_may_call_again() -> None:
    guard = Guard()
    with guard, guard:
        pass
    with guard:
        pass


def test_another_thread_is_refused_until_it_is_free() -> None:
    guard, refused = Guard(), []

    def enter() -> None:
        try:
            with guard:
                refused.append(False)
        except InterfaceError:
            refused.append(True)

    def try_in_thread() -> None:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()

    with guard:
        try_in_thread()
    try_in_thread()
    assert refused == [True, False]


def test_another_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert guard.forked
    with pytest.raises(InterfaceError, match="open a new connection in the child process"), guard:
        pass
