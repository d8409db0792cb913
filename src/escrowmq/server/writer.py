"""The thread that writes the journal."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from escrowmq.journal.batch import Batch


class Writer:
    """Writes one batch at a time. `done` and `failed` are called on the writer's thread."""

    def __init__(self, done: Callable[[Batch], None], failed: Callable[[BaseException], None]) -> None:
        self.busy = False
        """A batch is being written. Only the event loop changes this, and clears it when it handles the report."""
        self._done = done
        self._failed = failed
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal-writer", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Write `batch`. The previous batch must have been reported."""
        assert not self.busy
        self.busy = True
        self._batches.put(batch)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._batches.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                batch.write()
            except BaseException as error:  # noqa: BLE001 - after any failure, nothing more may be answered (DUR-2)
                self._failed(error)
                return
            self._done(batch)
