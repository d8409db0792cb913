"""The broker's own paths: what is in doubt, and what operators do about it."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from urllib.parse import quote

import pytest

from escrowmq.admin.audit import LONGEST_REASON
from escrowmq.admin.http.escrow import CHANGES, ESCROW_ROUTES, STATES
from escrowmq.admin.http.writing import LONGEST_BODY
from escrowmq.core.branches.branch import State
from tests.unit.admin.http.sites import HttpSite, login
from tests.unit.admin.test_half import Bench
from tests.unit.wire.amqp091.clients import pair
from tests.unit.wire.amqp091.test_dtx_methods import prepared

REASON = {"reason": "its manager is gone"}
NAMES = {"vhost": "%2F", "transaction": "t", "xid": "x", "container": "c", "link": "l", "queue": "q", "group": "g"}


class InDoubt(HttpSite):
    """A site with two prepared branches; `paths` are those of the branches."""

    def __init__(self) -> None:
        server, client = pair()
        self.xids = prepared(server, client, 2)
        super().__init__(server)
        server.broker.access.add_user("m", "hash", ("monitoring",))
        server.broker.access.add_user("u", "hash", ("management",))
        self.paths = [f"/api/escrow/branches/{quote(str(xid), safe='')}" for xid in self.xids]

    def state(self, number: int) -> State | None:
        branch = self.server.broker.branches.by_xid.get(self.xids[number])
        return None if branch is None else branch.state


def test_branches_are_listed_and_shown() -> None:
    site = InDoubt()
    rows = site.get("/api/escrow/branches", "m").json
    assert [(row["xid"], row["state"]) for row in rows] == [(str(xid), "prepared") for xid in site.xids]
    (published,) = site.get(site.paths[0], "m").json["published"]
    assert (published["queue"], published["messages"]) == ("q", 1)


def test_the_messages_of_a_branch_are_shown_to_administrators() -> None:
    site = InDoubt()
    found = site.get(f"{site.paths[0]}/messages").json
    assert (found["taken"], found["all"]) == ([], True)
    assert [row["queues"] for row in found["brought"]] == [["q"]]
    assert site.get(f"{site.paths[0]}/messages", "m").status == 401
    assert site.get("/api/escrow/branches/1%3A00%3A00/messages").status == 404


def test_a_branch_is_found_by_the_name_that_postgresql_has_for_it() -> None:
    site = InDoubt()
    xid = site.xids[0]
    name = f"{xid.format_id}_{b64encode(xid.gtrid).decode()}_{b64encode(xid.bqual).decode()}"
    assert site.get(f"/api/escrow/branches/{quote(name, safe='')}").json["xid"] == str(xid)


@pytest.mark.parametrize(
    ("decision", "state"), [("commit", State.HEURISTIC_COMMITTED), ("rollback", State.HEURISTIC_ROLLED_BACK)]
)
def test_a_branch_is_decided_with_a_reason_that_is_logged(
    decision: str, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    site = InDoubt()
    answer = site.post(f"{site.paths[0]}/{decision}", REASON)
    assert answer.status == 200, answer.body
    assert (site.state(0), site.state(1)) == (state, State.PREPARED)
    line = f"tx.{decision} xid={str(site.xids[0])!r} by='guest' why='its manager is gone'"
    assert line in caplog.messages


def test_a_reason_with_half_of_a_surrogate_pair_is_kept_as_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site = InDoubt()
    answer = site.request(
        "POST",
        site.paths[0] + "/commit",
        login("guest") | {"content-type": "application/json"},
        b'{"reason": "gone \\ud800"}',
    )
    assert (answer.status, site.state(0)) == (200, State.HEURISTIC_COMMITTED)
    assert "why='gone ?'" in caplog.text


def test_a_decided_branch_is_forgotten() -> None:
    site = InDoubt()
    site.post(f"{site.paths[0]}/commit", REASON)
    assert site.post(f"{site.paths[0]}/commit", REASON).status == 400
    assert site.post(f"{site.paths[0]}/forget", REASON).status == 200
    assert site.state(0) is None


@pytest.mark.parametrize(
    "body", [{}, {"reason": ""}, {"reason": " "}, {"reason": 1}, [], "x", {"reason": "x" * (LONGEST_REASON + 1)}]
)
def test_a_change_without_a_reason_is_refused(body: object) -> None:
    site = InDoubt()
    answer = site.post(f"{site.paths[0]}/commit", body)
    assert (answer.status, site.state(0)) == (400, State.PREPARED)
    assert "reason" in answer.json["reason"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_a_foreign_page_is_refused(kind: str) -> None:
    site = InDoubt()
    assert site.post(f"{site.paths[0]}/commit", REASON, kind=kind).status == 400
    assert site.state(0) is State.PREPARED


def test_a_body_that_is_too_long_or_no_json_is_refused() -> None:
    site = InDoubt()
    headers = login("guest") | {"content-type": "application/json"}
    long = json.dumps(REASON).encode() + b" " * LONGEST_BODY
    assert site.request("POST", f"{site.paths[0]}/commit", headers, long).status == 413
    assert site.request("POST", f"{site.paths[0]}/commit", headers, b"\xff{").status == 400
    assert site.request("POST", f"{site.paths[0]}/commit", headers, b"[" * LONGEST_BODY).status == 400
    assert site.state(0) is State.PREPARED


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("user", [None, "m", "u"])
def test_a_change_needs_an_administrator(path: str, user: str | None) -> None:
    site = InDoubt()
    answer = site.post("/api/" + path.format(**NAMES | {"xid": site.paths[0].rpartition("/")[2]}), REASON, user)
    assert (answer.status, site.state(0)) == (401, State.PREPARED)


@pytest.mark.parametrize("path", CHANGES)
def test_what_does_not_exist_cannot_be_changed(path: str) -> None:
    answer = HttpSite().post("/api/" + path.format(**NAMES), REASON)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "unexpected" not in answer.json["reason"]


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_cannot_be_a_get(path: str) -> None:
    assert HttpSite().get("/api/" + path.format(**NAMES)).status == 404


def test_only_changes_can_be_posted() -> None:
    site = InDoubt()
    answer = site.post("/api/escrow/branches", REASON)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert site.post("/api/escrow/none", REASON).status == 501
    answer = site.request("PUT", f"{site.paths[0]}/commit", login("guest"))
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ESCROW_ROUTES)
def test_reading_needs_one_of_the_tags(path: str) -> None:
    site = InDoubt()
    assert site.get("/api/" + path.format(**NAMES), "u").status == 401
    if "monitoring" not in ESCROW_ROUTES[path].tags:
        assert site.get("/api/" + path.format(**NAMES), "m").status == 401


@pytest.mark.parametrize("path", ["branches/1%3A00%3A00", "half-messages/%2F/t"])
def test_an_object_that_does_not_exist_is_not_found(path: str) -> None:
    answer = HttpSite().get("/api/escrow/" + path)
    assert (answer.status, answer.json["error"]) == (404, "Object Not Found")
    assert answer.json["reason"].startswith("no ")


def test_an_xid_that_is_malformed_is_refused() -> None:
    assert HttpSite().get("/api/escrow/branches/x").status == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"a": "parked", "c": "pending"}),
        ("?state=committed", {"b": "committed"}),
        ("?state=parked,committed", {"a": "parked", "b": "committed"}),
        ("?state=rolled_back", {}),
    ],
)
def test_half_messages_are_listed_by_state_and_by_default_if_undecided(query: str, found: dict[str, str]) -> None:
    answer = HttpSite(Bench().server).get("/api/escrow/half-messages" + query)
    assert {row["message_id"]: row["state"] for row in answer.json} == found


def test_an_unknown_state_is_refused_with_the_known_ones() -> None:
    answer = HttpSite().get("/api/escrow/half-messages?state=parked,done")
    assert answer.status == 400
    assert answer.json["reason"] == "unknown state 'done'; known ones: " + ", ".join(STATES)


@pytest.mark.parametrize("name", ["half-messages", "links", "holds"])
def test_other_lists_are_empty_without_such_objects(name: str) -> None:
    assert HttpSite().get(f"/api/escrow/{name}").json == []


def test_a_change_whose_client_leaves_in_the_middle_is_not_made() -> None:
    site = InDoubt()
    site.client_leaves = True
    assert site.post(f"{site.paths[0]}/commit", REASON).status == 400
    assert site.state(0) is State.PREPARED
