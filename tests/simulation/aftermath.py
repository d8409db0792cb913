"""The part of the oracle that judges the state found after the process or the machine died.

Either all effects of an operation are in the log, or none is (TX-5). The log is a sequence, so operations of a later
turn can be there only if all of earlier turns are (DUR-3). Operations that were promised are there (DUR-1, TX-8).
"""

from __future__ import annotations

from tests.simulation.ledger import Copy, Found, Identity, Ledger, Operation, Queue, State, Violation


class Aftermath:
    """Judges the state found by one recovery; `settle` then adopts it as the state from which the history continues.

    If the medium was `damaged`, promises may be broken, but all other rules still hold.
    """

    def __init__(self, ledger: Ledger, found: dict[str, list[Found]], *, damaged: bool = False) -> None:
        self._ledger = ledger
        self._found = found
        self._damaged = damaged
        self._there: set[Copy] = set()
        self._done: dict[Operation, str] = {}
        self._undone: dict[Operation, str] = {}
        self._queues: dict[str, Queue] = {}

    def settle(self) -> None:
        """Judge and adopt the state.

        Raises:
            Violation: the broker broke a rule.
        """
        for queue in list(self._ledger.queues.values()):
            if not queue.durable:
                self._ledger.queues.pop(queue.name)
        for name, items in self._found.items():
            self._queues[name] = self._generation(name, items)
            self._find(self._queues[name], items)
        for queue in self._queues.values():
            self._weigh(queue)
        for queue in [*self._ledger.queues.values(), *self._ledger.old]:
            if queue not in self._queues.values():
                self._miss(queue)
        self._judge()
        self._adopt()

    def _generation(self, name: str, items: list[Found]) -> Queue:
        """Determine which of the successive queues of this name was found."""
        old = [*self._ledger.forgotten, *self._ledger.old] if self._damaged else self._ledger.old
        known = [queue for queue in old if queue.name == name]
        if name in self._ledger.queues:
            known.append(self._ledger.queues[name])
        if not known:
            raise Violation(f"queue {name} exists after the restart, although it cannot")
        for queue in reversed(known):
            if any(Identity(item.serial, item.via) in {**queue.copies, **queue.gone} for item in items):
                return queue
        return known[-1]

    def _find(self, queue: Queue, items: list[Found]) -> None:
        for item in items:
            copy = self._ledger.identify(queue, item.serial, item.via, item.body, item.header)
            if copy in self._there:
                raise Violation(f"{copy} exists twice after the restart")
            if not copy.durable:
                raise Violation(f"{copy} exists after the restart, although it is transient")
            if item.held:
                raise Violation(f"{copy} is unsettled after the restart")
            self._there.add(copy)

    def _miss(self, queue: Queue) -> None:
        """Judge the absence of a durable queue."""
        if queue.deleted is not None:
            return  # the deletion may or may not have reached the disk
        if queue.born.promised and not self._damaged:
            raise Violation(f"queue {queue.name} is lost, although its declaration was answered")
        for copy in queue.copies.values():
            if copy.durable:
                self._undone[copy.added] = f"{copy} and its queue are missing"

    def _weigh(self, queue: Queue) -> None:
        """Conclude from the presence or absence of each copy which operations were done or undone."""
        for copy in (*queue.copies.values(), *queue.gone.values()):
            if not copy.durable:
                continue
            here = copy in self._there
            if here:
                self._done[copy.added] = f"{copy} exists"
                if copy.removed is not None:
                    self._undone[copy.removed] = f"{copy} exists"
            elif copy.removed is None:
                if not copy.maybe:
                    self._undone[copy.added] = f"{copy} is missing"
                elif self._must_be_somewhere(copy):
                    raise Violation(f"{copy} is lost, and was not dead-lettered either")
            elif copy.added.promised and not self._damaged:
                self._done[copy.removed] = f"{copy} is gone"

    def _must_be_somewhere(self, copy: Copy) -> bool:
        promised = copy.added.promised and not self._damaged
        return promised and copy.queue.dead_letters and not copy.doubtful

    def _judge(self) -> None:
        for operation, why in self._undone.items():
            if operation in self._done:
                raise Violation(f"half of {operation.what}: {why}, but {self._done[operation]}")
            if operation.promised and not self._damaged:
                raise Violation(f"{operation.what} was answered, but undone by the restart: {why}")
        done = [operation for operation in self._done if operation.turn is not None]
        undone = [operation for operation in self._undone if operation.turn is not None]
        if not done or not undone:
            return
        last = max(done, key=lambda operation: operation.turn or 0)
        first = min(undone, key=lambda operation: operation.turn or 0)
        if (last.turn or 0) > (first.turn or 0):
            raise Violation(
                f"{last.what} of turn {last.turn} survived ({self._done[last]}), but "
                f"{first.what} of the earlier turn {first.turn} did not ({self._undone[first]})"
            )

    def _adopt(self) -> None:
        """Adopt the state that was found."""
        ledger = self._ledger
        for operation in self._undone:
            ledger.count("undone by a crash")
            if operation.transaction:
                ledger.count("transactions undone by a crash")
        ledger.queues.clear()
        ledger.old.clear()
        for name, queue in self._queues.items():
            queue.deleted = None
            queue.sealed_by.clear()
            queue.overfull = True  # the broker drops the excess when the next message arrives
            ledger.queues[name] = queue
            for copy in [*queue.copies.values(), *queue.gone.values()]:
                if copy in self._there:
                    if copy.state is State.GONE:
                        if copy.removed is not None and copy.removed.promised:
                            copy.key = None  # its key was lost with the damage, and others have been given new keys
                        ledger.restore(copy)
                    copy.state = State.READY
                    copy.delivered = False
                elif self._is_back_at_its_source(copy):
                    queue.copies.pop(copy.identity, None)
                    queue.gone.pop(copy.identity, None)
                elif copy.state is not State.GONE:
                    ledger.remove(copy, Operation("the crash", None, promised=True))
        ledger.compare(self._found)

    def _is_back_at_its_source(self, copy: Copy) -> bool:
        """Return whether a copy's dead-lettering was undone, so that it may happen again."""
        serial, via = copy.identity
        return via in self._found and any(item.serial == serial for item in self._found[via])
