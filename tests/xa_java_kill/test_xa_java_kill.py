"""DTX-15 with a Java transaction manager: Narayana, Qpid JMS over AMQP 0-10 and PostgreSQL, with kill -9 of each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from escrowmq.client import connect
from tests.broker import BrokerProcess
from tests.interop.java_clients import jars, needs
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL, needs_postgresql
from tests.xa_java_kill.rounds import EXAMPLE, JARS, JavaRounds
from tests.xa_java_kill.steps import EVERY, FEW, TRANSFER, schedule
from tests.xa_kill.rounds import BALANCE
from tests.xa_kill.steps import VICTIMS, Kill
from tests.xa_kill.worker import AMOUNT

pytestmark = [pytest.mark.interop, needs_postgresql, needs("narayana-jta", JARS)]


def transfer_orders(broker: BrokerProcess, bank: PostgreSQL, log: Path, *orders: str) -> str:
    """Run the example as its guide says, and return what it prints."""
    done = run_example(broker.port, bank.port, log, *orders)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_example(broker_port: int, bank_port: int, log: Path, *orders: str) -> subprocess.CompletedProcess[str]:
    database = f"jdbc:postgresql://127.0.0.1:{bank_port}/shop?user=escrow"
    command = ["java", "-cp", str(jars(JARS) / "*"), str(EXAMPLE / "OrderTransfer.java")]
    arguments = [f"127.0.0.1:{broker_port}", database, str(log), *orders]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)


@pytest.mark.rule("DTX-15")
@pytest.mark.slow
def test_the_example_moves_orders_and_pays_for_them(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path) as bank, BrokerProcess(tmp_path) as broker:
        assert transfer_orders(broker, bank, tmp_path / "log", "25") == "25 orders shipped, none waiting\n"
        assert transfer_orders(broker, bank, tmp_path / "log") == "0 orders shipped, none waiting\n"
        with connect(broker.url) as connection, connection.channel() as channel:
            assert [channel.message_count(queue) for queue in ("orders", "shipments")] == [0, 25]
        with bank.connect("shop") as database:
            assert database.execute("SELECT balance FROM account").fetchall() == [(BALANCE - 25 * AMOUNT,)]
            assert database.execute("SELECT count(*) FROM payment").fetchall() == [(25,)]


@pytest.mark.slow
@pytest.mark.parametrize("orders", [(), ("25",)])
def test_the_example_says_in_one_line_that_it_cannot_reach_the_broker(tmp_path: Path, orders: tuple[str, ...]) -> None:
    absent = BrokerProcess(tmp_path)
    done = run_example(absent.port, absent.port, tmp_path / "log", *orders)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"cannot connect to the broker at 127.0.0.1:{absent.port}: ")


@pytest.mark.slow
def test_the_example_says_in_one_line_that_it_cannot_reach_the_database(tmp_path: Path) -> None:
    absent = BrokerProcess(tmp_path / "absent")
    with BrokerProcess(tmp_path) as broker:
        done = run_example(broker.port, absent.port, tmp_path / "log")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    address = f"jdbc:postgresql://127.0.0.1:{absent.port}/shop"
    assert line.startswith(f"cannot connect to the database at {address}: "), "without the user and the password"


@pytest.mark.slow
def test_the_example_says_in_one_line_that_it_cannot_ship_an_order(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path) as bank, BrokerProcess(tmp_path) as broker:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("orders", durable=True)
            channel.basic_publish("", "orders", b"tea")
        done = run_example(broker.port, bank.port, tmp_path / "log", "1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "an order cannot be shipped, and stays in the queue: it is not a text message\n"
        with connect(broker.url) as connection, connection.channel() as channel:
            assert channel.message_count("orders") == 2


@pytest.mark.rule("DTX-8", "DTX-10", "DTX-13", "DTX-15")
@pytest.mark.slow
@pytest.mark.timeout(900)  # the client may wait for a minute in a round (`rounds.STEP_SECONDS`)
def test_kills_at_the_most_critical_steps(tmp_path: Path) -> None:
    JavaRounds(tmp_path).run(tmp_path, FEW)


@pytest.mark.rule("DTX-15")
@pytest.mark.slow
def test_recovery_that_could_not_reach_the_broker_completes_the_decision_later(tmp_path: Path) -> None:
    JavaRounds(tmp_path, long_outage=True).run(tmp_path, [Kill("broker", "decided", 1, None)])


@pytest.mark.long
@pytest.mark.timeout(0)
def test_kills_at_every_step(tmp_path: Path) -> None:
    """`XA_JAVA_KILL_ROUNDS` and `XA_JAVA_KILL_SEED` set the number of rounds and their order."""
    rounds = int(os.environ.get("XA_JAVA_KILL_ROUNDS", str(len(EVERY))))
    seed = int(os.environ.get("XA_JAVA_KILL_SEED", "1"))
    JavaRounds(tmp_path).run(tmp_path, schedule(rounds, seed), lambda line: print(line, flush=True))


def test_a_long_run_reaches_every_step_of_every_victim() -> None:
    kills = {kill._replace(order=0) for kill in schedule(len(EVERY), seed=5)}
    assert kills > {Kill(victim, step, 0, None) for victim in VICTIMS for step in TRANSFER}
    assert kills > {kill._replace(order=0) for kill in FEW}
