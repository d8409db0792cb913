"""The errors of each driver are classified by their meaning for the branch."""

from __future__ import annotations

from types import SimpleNamespace

import psycopg
import pytest

from escrowmq.client import ChannelClosed, HeuristicOutcome, NotFound, OperationalError, RolledBack, Timeout
from escrowmq.client import xid as make_xid
from escrowmq.xa.drivers import Answer, answer_of, heuristic_state, is_closed, is_reply, unsound, wrong_place
from escrowmq.xa.states import BranchState

XID = make_xid(1, "g", "b")


def oracle(code: str) -> Exception:
    """Oracledb puts an object with the code into `args`."""
    return RuntimeError(SimpleNamespace(full_code=code))


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (NotFound(404, "unknown xid"), Answer.UNKNOWN_XID),
        (psycopg.errors.UndefinedObject(), Answer.UNKNOWN_XID),
        (oracle("ORA-24756"), Answer.UNKNOWN_XID),
        (RolledBack(XID, timed_out=True), Answer.ROLLED_BACK),
        (oracle("ORA-24761"), Answer.ROLLED_BACK),
        (HeuristicOutcome(XID, "mixed", "commit"), Answer.HEURISTIC),
        (oracle("ORA-24765"), Answer.HEURISTIC),
        (psycopg.OperationalError("gone"), Answer.UNCLEAR),
        (psycopg.errors.ObjectInUse(), Answer.UNCLEAR),
        (OperationalError("?"), Answer.UNCLEAR),
        (ValueError(), Answer.UNCLEAR),
    ],
)
def test_answers_of_drivers_are_classified(error: Exception, answer: Answer) -> None:
    assert answer_of(error) is answer


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("committed", BranchState.HEURISTIC_COMMIT),
        ("rolled back", BranchState.HEURISTIC_ROLLBACK),
        ("mixed", BranchState.HEURISTIC_MIXED),
        ("hazard", BranchState.HEURISTIC_HAZARD),
    ],
)
def test_heuristic_outcomes_are_recognized(outcome: str, state: BranchState) -> None:
    assert heuristic_state(HeuristicOutcome(XID, outcome, "commit")) is state
    assert heuristic_state(ValueError()) is None


def test_errors_of_the_participant_are_distinguished_from_lost_connections() -> None:
    open_, closed = SimpleNamespace(closed=False), SimpleNamespace(closed=True)
    assert is_reply(open_, psycopg.errors.UniqueViolation())
    assert not is_reply(closed, psycopg.errors.AdminShutdown())
    assert not is_reply(open_, psycopg.OperationalError("no answer"))
    assert is_reply(open_, ChannelClosed(506, "too large"))
    assert not is_reply(open_, Timeout("nothing in 60 s"))
    assert is_reply(SimpleNamespace(is_healthy=lambda: True), oracle("ORA-00001"))
    assert not is_reply(SimpleNamespace(is_healthy=lambda: False), oracle("ORA-03113"))


def test_closed_connections_are_recognized() -> None:
    assert is_closed(SimpleNamespace(is_open=False))
    assert not is_closed(SimpleNamespace())
    assert unsound(SimpleNamespace(info=SimpleNamespace(transaction_status=psycopg.pq.TransactionStatus.INERROR)))
    assert (
        unsound(SimpleNamespace(info=SimpleNamespace(transaction_status=psycopg.pq.TransactionStatus.INTRANS))) is None
    )
    assert unsound(SimpleNamespace()) is None
    here = SimpleNamespace(info=SimpleNamespace(dbname="bank"))
    assert wrong_place(here, SimpleNamespace(database="shop")) == "shop"
    assert wrong_place(here, SimpleNamespace(database="bank")) is None
    assert wrong_place(SimpleNamespace(), XID) is None
