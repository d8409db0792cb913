"""Runs calls to participants concurrently, each with a time limit that does not depend on the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class CallTimeout(TimeoutError):  # noqa: N818 - named like the standard library's errors
    """A participant did not answer in time. The call still hangs in its thread, which is abandoned."""


class _Call(Generic[T]):
    __slots__ = ("_function", "_result", "finished")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | BaseException | None = None
        self.finished = threading.Event()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - returned to the waiting caller
            self._result = error
        self.finished.set()

    def result(self, deadline: float | None, timeout: float | None) -> T | BaseException:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.finished.wait(left):
            return CallTimeout(f"no answer within {timeout:g} s")
        assert self._result is not None, "functions never return None"
        return self._result


class Callers:
    """A pool of daemon threads for calls. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: list[SimpleQueue[_Call[object]]] = []

    def run(self, functions: Sequence[Callable[[], T]], timeout: float | None) -> list[T | BaseException]:
        """Run the functions concurrently. Returns what each returned (never None) or raised.

        The result is a CallTimeout for each that took longer than `timeout` seconds (None: no limit).
        """
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
        inbox.put(call)  # type: ignore[arg-type]  # the queue holds calls of any type

    def _work(self, inbox: SimpleQueue[_Call[object]]) -> None:
        while True:
            inbox.get().run()
            with self._mutex:
                if len(self._idle) >= 64:
                    return
                self._idle.append(inbox)
