"""A leader that is cut off from the log disconnects its clients once, and lets them in again when the log answers."""

from __future__ import annotations

from typing import cast

import pytest

from escrowmq.server.replica.cut_off import CutOff
from escrowmq.server.runtime import Runtime
from tests.unit.server.benches import Bench, on_loop, until


class Clients:
    """Stands for the runtime."""

    def __init__(self) -> None:
        self.cut_off = False
        self.aborts = 0

    def abort(self) -> None:
        """Count the call."""
        self.aborts += 1


def test_clients_are_disconnected_once_and_may_connect_again_when_the_log_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        silent, clients = True, Clients()
        bench = Bench(withheld=lambda: silent)
        CutOff(bench.turns, cast("Runtime", clients), 0.3)
        bench.turns.begin()
        await until(lambda: bench.turns.silent_seconds > 0.6)
        assert (clients.cut_off, clients.aborts) == (True, 1)
        silent = False
        await until(lambda: not clients.cut_off)
        assert bench.turns.silent_seconds == 0
        await bench.close()
        assert [record.message.partition(":")[0] for record in caplog.records if "client" in record.message] == [
            "the replicated log has not answered for the time of the lease",
            "clients can connect again",
        ]

    on_loop(test)


def test_clients_stay_while_the_log_is_late_for_less_than_the_lease() -> None:
    async def test() -> None:
        silent, clients = True, Clients()
        bench = Bench(withheld=lambda: silent)
        CutOff(bench.turns, cast("Runtime", clients), 3600)
        bench.turns.begin()
        await until(lambda: bench.turns.silent_seconds > 0.2)
        silent = False
        await until(lambda: bench.turns.silent_seconds == 0)
        assert not clients.aborts
        await bench.close()

    on_loop(test)
