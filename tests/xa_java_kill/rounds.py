"""Rounds of transfers by the Java program `examples/xa-java`, with a kill -9 in each, followed by checks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from escrowmq.client import connect
from tests.broker import BrokerProcess, wait_until
from tests.interop.java_clients import jars
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL
from tests.xa_java_kill.steps import DECIDED
from tests.xa_kill.rounds import TRANSFERS_PER_ROUND, Worker, run_rounds
from tests.xa_kill.steps import Kill

JARS = "xa-java"
EXAMPLE = ROOT / "examples" / "xa-java"
SOURCE = Path(__file__).parent / "Worker.java"
NO_STEP = "none"
RECOVERY_SECONDS = 120.0
STEP_SECONDS = 180.0
"""Qpid JMS waits 60 s for a connection that has broken during an XA call (`XAResourceImpl.end` makes a new session)."""
MISSED = "No XAResource to recover"
"""Narayana says this of a branch whose participant it cannot reach."""


def end_sessions(bank: PostgreSQL) -> None:
    """End the sessions of the program, as an administrator does, or a server that shuts down."""
    query = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'bank'"
    with bank.connect("postgres") as connection:
        assert connection.execute(query).fetchall(), "the program has no session"


class JavaRounds:
    """The compiled program, with its log of decisions in `folder`.

    `long_outage` leaves a killed participant down until the program has no order left, and recovery has missed it.
    """

    def __init__(self, folder: Path, *, long_outage: bool = False) -> None:
        self._long_outage = long_outage
        self._classes = folder / "classes"
        self._log = folder / "decisions"
        path = str(jars(JARS) / "*")
        compiler = ["javac", "-proc:none", "-cp", path, "-sourcepath", str(EXAMPLE), "-d", str(self._classes)]
        subprocess.run([*compiler, str(SOURCE)], check=True)
        # The virtual machine lives too briefly for its slower compiler.
        self._java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self._classes}:{path}", "Worker"]

    def run(self, folder: Path, kills: Sequence[Kill], report: Callable[[str], object] = len) -> None:
        """Run the rounds. Raises AssertionError with the round and the kill if queue, table and queue disagree."""
        run_rounds(folder, kills, report, self._play, DECIDED)

    def _play(self, kill: Kill, broker: BrokerProcess, bank: PostgreSQL, folder: Path) -> None:
        with self._worker(broker, bank, folder, TRANSFERS_PER_ROUND, kill.step, kill.order) as application:
            step = application.run_until(lambda line: line in (kill.step, "finished"))
            assert step == kill.step, f"the program never reached the step\n{application.said()}"
            match kill.victim:
                case "application":
                    application.kill()
                case "broker":
                    self._outlive(application, broker, bank, broker.kill, broker.start)
                case "session":
                    self._outlive(application, broker, bank, lambda: end_sessions(bank), lambda: None)
                case _:
                    self._outlive(application, broker, bank, bank.kill, bank.start)
        if kill.victim == "application":
            self._recover(kill, broker, bank, folder)

    def _outlive(
        self,
        application: Worker,
        broker: BrokerProcess,
        bank: PostgreSQL,
        kill: Callable[[], object],
        revive: Callable[[], object],
    ) -> None:
        kill()
        application.go()
        # Further calls on the broken connection fail, and must not affect the other participant.
        application.run_until(lambda line: line == "moved" or line.startswith("failed"))
        if not self._long_outage:
            revive()
        application.go()
        assert application.run_until(lambda line: line == "finished"), f"the program has ended\n{application.said()}"
        if self._long_outage:
            wait_until(lambda: MISSED in application.said(), RECOVERY_SECONDS, "an attempt of recovery")
            revive()
        self._wait(application, broker, bank)
        application.finish()

    def _recover(self, kill: Kill, broker: BrokerProcess, bank: PostgreSQL, folder: Path) -> None:
        # PostgreSQL may still be executing the application's last call.
        wait_until(lambda: not bank.sessions("bank"), what="the end of the application's sessions")
        if kill.manager is not None:
            with self._worker(broker, bank, folder, 0, kill.manager) as first:
                step = first.run_until(lambda line: line == kill.manager)
                assert step, f"recovery never reached the step\n{first.said()}"
            wait_until(lambda: not bank.sessions("bank"), what="the end of recovery's sessions")
        with self._worker(broker, bank, folder, 0) as second:
            assert second.run_until(lambda line: line == "finished"), f"the program has ended\n{second.said()}"
            self._wait(second, broker, bank)
            second.finish()

    def _worker(
        self,
        broker: BrokerProcess,
        bank: PostgreSQL,
        folder: Path,
        transfers: int,
        step: str = NO_STEP,
        order: int = 0,
    ) -> Worker:
        database = f"jdbc:postgresql://127.0.0.1:{bank.port}/bank?user=escrow"
        arguments = (f"127.0.0.1:{broker.port}", database, self._log, transfers, step, order)
        return Worker([*self._java, *map(str, arguments)], folder, STEP_SECONDS)

    def _wait(self, application: Worker, broker: BrokerProcess, bank: PostgreSQL) -> None:
        """Wait until recovery has nothing left to do."""
        try:
            wait_until(lambda: not self._unfinished(broker, bank), RECOVERY_SECONDS, "the end of recovery")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._unfinished(broker, bank)}\n{application.said()}") from None

    def _unfinished(self, broker: BrokerProcess, bank: PostgreSQL) -> object:
        """Return what is left of transactions: decisions in the log, else branches in doubt."""
        decisions = [path.name for path in self._log.rglob("AtomicAction/**/*") if path.is_file()]
        if decisions:
            return decisions
        with connect(broker.url) as connection:
            in_doubt = connection.tpc_recover()
        if in_doubt:
            return in_doubt
        with bank.connect() as bank_connection:
            return bank_connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
