"""A leader that is cut off from the replicated log ends its clients' connections, so that they look for another node.

Such a leader still answers heartbeats, so its clients would wait for as long as it is cut off. Nothing that it has not
answered yet is answered: the next leader, or this one if it still leads later, has it or not, as after a crash.
"""

from __future__ import annotations

import logging

from escrowmq.server.runtime import Runtime
from escrowmq.server.turn import Turns

_log = logging.getLogger("escrowmq.replication")


class CutOff:
    """Looks at the end of each turn. `patience_seconds` is how long deliveries are withheld before connections end.

    A process that was suspended waits for as long anew, since it may still lead.
    """

    def __init__(self, turns: Turns, runtime: Runtime, patience_seconds: float) -> None:
        self._turns = turns
        self._runtime = runtime
        self._patience_seconds = patience_seconds
        turns.after.append(self._step)

    def _step(self) -> None:
        cut_off = self._turns.silent_seconds > self._patience_seconds
        if cut_off == self._runtime.cut_off:
            return
        self._runtime.cut_off = cut_off
        if cut_off:
            _log.warning(
                "the replicated log has not answered for the time of the lease: all connections of clients are closed, "
                "and no more are accepted until it answers"
            )
            self._runtime.abort()
        else:
            _log.warning("clients can connect again")
