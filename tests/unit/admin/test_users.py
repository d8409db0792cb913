"""Operations on users."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.users import LONGEST_PASSWORD, UserAdmin
from escrowmq.core.conditions import BrokerError
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, perform
from tests.unit.core.termini.links import TestedLink, incoming
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the user `guest`."""

    def __init__(self, pieces: Pieces | None = None) -> None:
        self.process = FakeProcess(pair()[0])
        pieces = pieces or Pieces()
        self.operations = UserAdmin(self.process, ConnectionAdmin(self.process, pieces), pieces).operations
        self.users = self.process.broker.access.users


def _row(**fields: Any) -> dict[str, Any]:
    """Alice in the list of users."""
    none = {
        "name": "alice",
        "tags": [],
        "password": False,
        "max_connections": None,
        "max_channels": None,
        "access_keys": [],
    }
    return none | fields


def test_the_limits_of_a_user_are_set_shown_and_removed() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    perform(bench.operations, "user.limits", name="alice", max_connections=0, max_channels=7)
    assert perform(bench.operations, "user.list")[-1] == _row(max_connections=0, max_channels=7)
    perform(bench.operations, "user.tags", name="alice", tags=["ops"])
    kept = _row(tags=["ops"], max_connections=0, max_channels=7)
    assert perform(bench.operations, "user.list")[-1] == kept, "another change keeps the limits"
    perform(bench.operations, "user.limits", name="alice")
    assert perform(bench.operations, "user.list")[-1] == _row(tags=["ops"])
    with pytest.raises(BrokerError, match="no such user 'nobody'"):
        perform(bench.operations, "user.limits", name="nobody")


def test_a_user_is_added_changed_and_deleted() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice", password="first", tags=["ops"])
    assert perform(bench.operations, "user.list")[-1] == _row(tags=["ops"], password=True)
    assert bench.users["alice"].password_hash == "hash of first"
    assert bench.users["alice"].scram_hashes == ("keys of first",)
    perform(bench.operations, "user.password", name="alice", password="second")
    assert bench.users["alice"].password_hash == "hash of second"
    assert bench.users["alice"].scram_hashes == ("keys of second",)
    perform(bench.operations, "user.password", name="alice")
    perform(bench.operations, "user.tags", name="alice", tags=[])
    assert perform(bench.operations, "user.list")[-1] == _row()
    perform(bench.operations, "user.delete", name="alice")
    assert "alice" not in bench.users


def test_the_connections_of_a_deleted_user_are_closed_and_no_others() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    hers, other = FakeConnection("a:1", user="alice"), FakeConnection("b:2")
    bench.process.connections = {hers: None, other: None}
    perform(bench.operations, "user.delete", name="alice")
    assert ({*hers.reasons}, other.reasons) == ({"user 'alice' was deleted"}, [])


@pytest.mark.rule("FAIR-1")
def test_the_termini_of_a_deleted_user_end_in_pieces_and_no_others() -> None:
    pieces = CountingPieces(10)
    bench = Bench(pieces)
    perform(bench.operations, "user.add", name="alice")
    broker = bench.process.broker
    for number in range(25):
        TestedLink(broker, incoming(f"l{number}"), user="alice")
    TestedLink(broker, incoming("other"), user="guest")
    bench.process.connections = {}
    perform(bench.operations, "user.delete", name="alice")
    assert list(broker.termini.by_key) == [incoming("other")]
    assert pieces.count == 6, "four for the termini, and two for connections that there are not"


def test_a_user_that_exists_cannot_be_added_and_an_empty_password_cannot_be_set() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    with pytest.raises(OperationRefused, match="user 'alice' already exists"):
        perform(bench.operations, "user.add", name="alice")
    with pytest.raises(OperationRefused, match="the password is empty"):
        perform(bench.operations, "user.password", name="alice", password="")


@pytest.mark.parametrize("operation", ["user.delete", "user.password", "user.tags"])
def test_an_unknown_user_is_refused(operation: str) -> None:
    arguments: dict[str, Any] = {"tags": []} if operation == "user.tags" else {}
    with pytest.raises(BrokerError, match="no such user 'bob'"):
        perform(Bench().operations, operation, name="bob", **arguments)


def test_an_access_key_is_shown_with_its_secret_once() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    assert perform(bench.operations, "user.key.add", name="alice", key="mine") == {
        "access_key": "mine",
        "secret_key": "secret of mine",
    }
    made = perform(bench.operations, "user.key.add", name="alice")["access_key"]
    assert perform(bench.operations, "user.list")[-1] == _row(access_keys=["mine", made])
    perform(bench.operations, "user.key.delete", name="alice", key="mine")
    assert perform(bench.operations, "user.list")[-1] == _row(access_keys=[made])


@pytest.mark.parametrize("key", ["a b", "a/b", "a,b", "k" * 65])
def test_an_access_key_must_fit_into_a_header(key: str) -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    with pytest.raises(OperationRefused):
        perform(bench.operations, "user.key.add", name="alice", key=key)


def test_deleting_a_key_closes_the_connections_of_its_user() -> None:
    bench = Bench()
    perform(bench.operations, "user.add", name="alice")
    perform(bench.operations, "user.key.add", name="alice", key="mine")
    connection = FakeConnection("127.0.0.1:1", "alice")
    bench.process.connections[connection] = None
    perform(bench.operations, "user.key.delete", name="alice", key="mine")
    assert connection.reasons == ["access key 'mine' of user 'alice' was deleted"]


@pytest.mark.parametrize("name", ["x" * 256, "\ud800"])
def test_a_name_that_no_client_could_use_is_refused(name: str) -> None:
    bench = Bench()
    with pytest.raises(BrokerError):
        perform(bench.operations, "user.add", name=name)
    assert name not in bench.users


@pytest.mark.parametrize("operation", ["user.add", "user.put", "user.tags"])
def test_a_tag_that_is_no_text_is_refused(operation: str) -> None:
    with pytest.raises(BrokerError, match="the tag is not valid Unicode"):
        perform(Bench().operations, operation, name="alice", tags=["\udcff"])


@pytest.mark.parametrize("operation", ["user.add", "user.put", "user.password"])
def test_a_password_that_is_no_text_is_refused(operation: str) -> None:
    name = "guest" if operation == "user.password" else "alice"
    given: dict[str, Any] = {"tags": []} if operation == "user.put" else {}
    with pytest.raises(OperationRefused, match="the password is not valid UTF-8"):
        perform(Bench().operations, operation, name=name, password="\udcff", **given)


@pytest.mark.parametrize("operation", ["user.add", "user.put", "user.password"])
def test_a_password_that_would_take_seconds_to_prepare_is_refused(operation: str) -> None:
    name = "guest" if operation == "user.password" else "alice"
    given: dict[str, Any] = {"tags": []} if operation == "user.put" else {}
    with pytest.raises(OperationRefused, match="the password has more than 1,024 bytes"):
        perform(Bench().operations, operation, name=name, password="p" * (LONGEST_PASSWORD + 1), **given)
