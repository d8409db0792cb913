"""Durability is tested by killing the real process with -9 under load and then checking what it had confirmed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kill.ledger import Ledger, Transaction
from tests.kill.rounds import ChannelCrew, Crew, SessionCrew, fill_disk, run_rounds


@pytest.mark.rule("TX-5")
@pytest.mark.rule("TX-8")
@pytest.mark.rule("DUR-1")
@pytest.mark.rule("DUR-3")
@pytest.mark.rule("ORD-1")
@pytest.mark.rule("ORD-4")
@pytest.mark.rule("ORD-5")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika leaves sockets open
def test_ten_kills(tmp_path: Path) -> None:
    run_rounds(tmp_path, 10, seed=1)


@pytest.mark.rule("DUR-1")
@pytest.mark.rule("TX-5")
@pytest.mark.rule("TX-8")
@pytest.mark.rule("DTX-8")
@pytest.mark.rule("DTX-9")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_kills_under_sessions(tmp_path: Path) -> None:
    """Over AMQP 0-10, with raw clients that send ahead."""
    run_rounds(tmp_path, 10, seed=3, crew=SessionCrew)


@pytest.mark.rule("DUR-1")
@pytest.mark.rule("DUR-2")
@pytest.mark.rule("TX-5")
@pytest.mark.rule("DTX-8")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika leaves sockets open
@pytest.mark.parametrize("crew", [ChannelCrew, SessionCrew])
def test_four_full_disks(tmp_path: Path, crew: type[Crew]) -> None:
    run_rounds(tmp_path, 4, seed=4, crew=crew, end=fill_disk)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_two_hundred_kills(tmp_path: Path) -> None:
    """`KILL_ROUNDS` and `KILL_SEED` set the number of rounds and the seed."""
    rounds, seed = int(os.environ.get("KILL_ROUNDS", "200")), int(os.environ.get("KILL_SEED", "2"))
    run_rounds(tmp_path, rounds, seed, lambda line: print(line, flush=True))


class TestTheReckoning:
    """The checks detect each kind of violation."""

    def test_a_lost_message(self) -> None:
        with pytest.raises(AssertionError, match="lost"):
            Ledger(confirmed={1, 2}, sent=3).check_confirmed([1])

    def test_a_duplicate_message_is_detected(self) -> None:
        with pytest.raises(AssertionError, match="twice"):
            Ledger(confirmed={1}, sent=3).check_confirmed([1, 1])

    def test_a_message_out_of_order(self) -> None:
        with pytest.raises(AssertionError, match="out of order"):
            Ledger(sent=3).check_confirmed([2, 1])

    def test_half_a_transaction(self) -> None:
        transaction = Transaction(7, {"left": [b"7:0"], "right": [b"7:0", b"7:1"]})
        ledger = Ledger(doubtful={7: transaction})
        ledger.check_transactions({"left": [], "right": []})
        ledger.check_transactions({"left": [b"7:0"], "right": [b"7:0", b"7:1"]})
        with pytest.raises(AssertionError, match="is only in"):
            ledger.check_transactions({"left": [b"7:0"], "right": []})
        with pytest.raises(AssertionError, match="not contiguous"):
            ledger.check_transactions({"left": [b"7:0"], "right": [b"7:0"]})

    def test_a_transaction_that_was_rolled_back(self) -> None:
        with pytest.raises(AssertionError, match="commit was never requested"):
            Ledger().check_transactions({"left": [b"3:0"], "right": []})

    def test_a_move_that_did_half(self) -> None:
        ledger = Ledger(fed={b"1", b"2"}, moved={b"1"})
        ledger.check_moves([b"2"], [b"1"])
        with pytest.raises(AssertionError, match="in both queues"):
            ledger.check_moves([b"1", b"2"], [b"1"])
        with pytest.raises(AssertionError, match="in neither queue"):
            ledger.check_moves([b"2"], [])
        with pytest.raises(AssertionError, match="came back"):
            ledger.check_moves([b"1", b"2"], [])

    def test_half_a_move(self) -> None:
        ledger = Ledger(fed={b"1", b"2"}, together=[frozenset((b"1", b"2"))])
        ledger.check_moves([b"1", b"2"], [])
        with pytest.raises(AssertionError, match="only some"):
            ledger.check_moves([b"1"], [b"2"])

    def test_a_message_that_came_back_after_its_acceptance(self) -> None:
        ledger = Ledger(kept={1, 2}, acked={1}, removed={1})
        ledger.check_kept([2])
        with pytest.raises(AssertionError, match="came back"):
            ledger.check_kept([1, 2])
