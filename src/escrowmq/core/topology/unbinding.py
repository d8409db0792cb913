"""The bindings of deleted queues and exchanges. They are removed in pieces, since there may be very many.

A deleted queue or exchange is gone at once: nothing is routed to it, and its name is free. `VirtualHost` and `Router`
ignore the bindings that are left of it. An exchange that is deleted automatically is deleted with its last binding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias

from escrowmq.core.topology.exchange import Binding, Exchange, Q

PIECE: Final = 100
"""Bindings and exchanges that are removed in one piece."""

Inbound: TypeAlias = dict[tuple[bool, str], dict[Binding[Q], None]]
"""The bindings to each destination, by whether it is an exchange, and its name."""


@dataclass(frozen=True, slots=True)
class Removal(Generic[Q]):
    """The removals of one step: first an exchange that was deleted, then those that were deleted because of it."""

    bindings: tuple[Binding[Q], ...] = ()
    exchanges: tuple[Exchange[Q], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bindings or self.exchanges)


class Unbinding(Generic[Q]):
    """Removes bindings from the exchanges and from `inbound` of one virtual host.

    `gone` has the deleted queues and exchanges whose bindings are not all removed yet. While `restoring`, nothing is
    deleted automatically, because automatic deletions have records of their own. `most` is the size of a piece.
    """

    __slots__ = ("_changed", "_exchanges", "_inbound", "_removed", "_work", "gone", "most", "restoring")

    def __init__(self, exchanges: dict[str, Exchange[Q]], inbound: Inbound[Q], changed: Callable[[], None]) -> None:
        """`changed` is called when routes may have changed."""
        self._exchanges = exchanges
        self._inbound = inbound
        self._changed = changed
        self._work: deque[tuple[Q | Exchange[Q], dict[Binding[Q], None]]] = deque()
        self._removed: list[Exchange[Q]] = []
        self.gone: dict[Q | Exchange[Q], None] = {}
        self.restoring = False
        self.most = PIECE

    def __bool__(self) -> bool:
        return bool(self._work)

    def delete_queue(self, queue: Q) -> bool:
        """Note that `queue` was deleted. Return False if it has no bindings."""
        inbound = self._inbound.pop((False, queue.name), None)
        if inbound is None:
            return False
        self._add(queue, inbound)
        return True

    def delete_exchange(self, exchange: Exchange[Q]) -> None:
        """Delete an exchange. Its bindings follow by `piece`."""
        del self._exchanges[exchange.name]
        self._removed.append(exchange)
        inbound = self._inbound.pop((True, exchange.name), {})
        if inbound or exchange.bindings:
            self._add(exchange, inbound)
        else:
            self._changed()

    def _add(self, gone: Q | Exchange[Q], inbound: dict[Binding[Q], None]) -> None:
        self.gone[gone] = None
        self._work.append((gone, inbound))
        self._changed()

    def remove(self, binding: Binding[Q]) -> bool:
        """Remove a binding, and its source if it is deleted automatically. Return False if it was removed before."""
        source = binding.source
        if source.bindings.get(binding.key) is not binding:
            return False
        source.unbind(binding.key)
        self._forget(binding)
        last = source.auto_delete and not source.bindings and not self.restoring
        if last and self._exchanges.get(source.name) is source:
            self.delete_exchange(source)
        return True

    def _forget(self, binding: Binding[Q]) -> None:
        inbound = self._inbound.get(binding.key[:2])
        if inbound is not None:
            inbound.pop(binding, None)
            if not inbound:
                del self._inbound[binding.key[:2]]

    def piece(self) -> Removal[Q]:
        """Remove at most `most` bindings of deleted queues and exchanges. Return them, with the exchanges that were
        deleted since the last piece.
        """
        most = self.most
        bindings: list[Binding[Q]] = []
        while self._work and most > 0:
            most -= 1
            gone, inbound = self._work[0]
            if isinstance(gone, Exchange) and gone.bindings:
                bindings.append(gone.unbind_last())
                self._forget(bindings[-1])
            elif inbound:
                binding, _ = inbound.popitem()
                if self.remove(binding):
                    bindings.append(binding)
            else:
                self._work.popleft()
                del self.gone[gone]
                if not self.gone:
                    self._changed()  # routes no longer depend on attributes of such bindings
        removed, self._removed = self._removed, []
        return Removal(tuple(bindings), tuple(removed))

    def dismantle(self) -> Iterator[int]:
        """Delete all exchanges with their bindings, since their virtual host was deleted. Yield the cost of each piece
        in units of the turn's budget.
        """
        for exchange in list(self._exchanges.values()):
            if self._exchanges.get(exchange.name) is exchange:
                self.delete_exchange(exchange)
            yield 1
            while self:
                self.piece()
                yield self.most
