"""Calls to participants: several at once, each with a time limit, whatever the driver does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class CallTimeout(TimeoutError):  # noqa: N818 - as in the standard library's words
    """A participant has not answered in time; the call still hangs, in a thread that is left alone."""


class _Call(Generic[T]):
    __slots__ = ("_function", "_result", "finished")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | BaseException | None = None
        self.finished = threading.Event()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._result = error
        self.finished.set()

    def result(self, deadline: float | None, timeout: float | None) -> T | BaseException:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.finished.wait(left):
            return CallTimeout(f"no answer in {timeout:g} s")
        assert self._result is not None, "functions return something"
        return self._result


class Callers:
    """Daemon threads that are kept for a while, so that a call costs no new thread. Any thread may use it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: list[SimpleQueue[_Call[object]]] = []

    def run(self, functions: Sequence[Callable[[], T]], timeout: float | None) -> list[T | BaseException]:
        """What each returns (never None) or raises, CallTimeout for those that took over `timeout` seconds."""
        if timeout is None and len(functions) == 1:
            alone = _Call(functions[0])
            alone.run()
            return [alone.result(None, None)]
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = [_Call(function) for function in functions]
        for call in calls:
            self._start(call)
        return [call.result(deadline, timeout) for call in calls]

    def _start(self, call: _Call[T]) -> None:
        with self._mutex:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="escrowmq-xa-call", daemon=True).start()
        inbox.put(call)  # type: ignore[arg-type]  # the queue does not care what it returns

    def _work(self, inbox: SimpleQueue[_Call[object]]) -> None:
        while True:
            inbox.get().run()
            with self._mutex:
                if len(self._idle) >= 64:
                    return
                self._idle.append(inbox)
