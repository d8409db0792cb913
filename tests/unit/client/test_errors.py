"""The client's errors follow PEP 249's hierarchy and the broker's reply codes."""

from __future__ import annotations

import pickle

import pytest

import escrowmq.client as mq
from escrowmq.client import errors
from escrowmq.client.errors import channel_closed
from escrowmq.wire.amqp091.codes import HARD_ERRORS, REPLY_NAMES
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import BasicReturn

XID = mq.xid(1, "g", "b")


def test_the_hierarchy_is_pep_249s() -> None:
    assert issubclass(mq.Warning, Exception)
    assert not issubclass(mq.Warning, mq.Error)
    assert {kind.__name__ for kind in mq.Error.__subclasses__()} == {"InterfaceError", "DatabaseError"}
    for name in ("Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"):
        assert issubclass(getattr(mq, f"{name}Error"), mq.DatabaseError)


NAMES = """Warning Error InterfaceError DatabaseError DataError OperationalError IntegrityError InternalError
    ProgrammingError NotSupportedError"""


@pytest.mark.parametrize("name", NAMES.split())
def test_exceptions_are_attributes_of_connections(name: str) -> None:
    assert getattr(mq.Connection, name) is getattr(mq, name) is getattr(errors, name)


@pytest.mark.parametrize("code", REPLY_NAMES)
def test_every_reply_code_has_an_exception(code: int) -> None:
    error = channel_closed(code, "TEXT", "queue.declare", 3)
    assert isinstance(error, mq.ChannelClosed)
    assert (error.code, error.text, error.method) == (code, "TEXT", "queue.declare")
    assert str(error) == f"channel 3: {code} TEXT (answer to queue.declare)"
    again = error.again()
    assert type(again) is type(error)
    assert again is not error
    assert str(again) == str(error)
    if code in (403, 404, 405, 406) or (code in HARD_ERRORS and code in (503, 506, 530, 540, 541)):
        assert len(type(error).__mro__) > len(mq.ChannelClosed.__mro__), "each error is also a class of PEP 249"


def test_errors_have_readable_texts() -> None:
    assert str(mq.ConnectionClosed(0, "gone")) == "gone"
    returned = mq.Returned(BasicReturn(312, "NO_ROUTE", "e", "k"), Properties(), b"")
    assert str(mq.UnroutableError([returned])) == "312 NO_ROUTE: exchange 'e', key 'k'"
    assert str(mq.UnroutableError([returned] * 3)).endswith("and 2 more")
    assert "first is number 4" in str(mq.NackError([4, 5]))
    assert str(mq.RolledBack(XID, timed_out=False)) == "branch 1:67:62: rolled back"
    assert "timeout" in str(mq.RolledBack(XID, timed_out=True))


@pytest.mark.parametrize(
    ("outcome", "asked", "as_asked"),
    [
        ("committed", "commit", True),
        ("committed", "rollback", False),
        ("rolled back", "rollback", True),
        ("mixed", "commit", False),
    ],
)
def test_heuristic_outcomes_say_whether_they_equal_the_requested_one(outcome: str, asked: str, as_asked: bool) -> None:
    error = mq.HeuristicOutcome(XID, outcome, asked)
    assert error.as_asked is as_asked
    assert outcome in str(error)
    assert asked in str(error)


def test_a_refused_login_names_the_user() -> None:
    error = mq.AuthenticationError(403, "ACCESS_REFUSED - no", where="h:5672", user="ada")
    for each in (error, error.again(), pickle.loads(pickle.dumps(error))):
        assert str(each) == "h:5672: 403 ACCESS_REFUSED - no (user 'ada')"
        assert each.text == "ACCESS_REFUSED - no"
