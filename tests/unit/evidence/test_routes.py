"""Messages and the journal as programs read them: who may, and what is answered while something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.evidence.files import BrokerFiles
from escrowmq.evidence.routes import MOST_RECORDS, file_routes
from tests.unit.admin.http.sites import login
from tests.unit.evidence.sites import FileSite, index, no_indexer
from tests.unit.evidence.test_audits import write
from tests.unit.evidence.test_log import damaged, journal_with
from tests.unit.history.test_following import written

__all__ = ("no_indexer",)
NAMES = {"vhost": "%2F", "queue": "q", "position": "0", "run": "1"}
ROUTES = file_routes(BrokerFiles(Path("/nonexistent")))
PATHS = tuple("/api/" + path.format(**NAMES) for path in ROUTES.reading)
CHANGES = [(method, "/api/" + path) for path, methods in ROUTES.changes.items() for method in methods]


@pytest.fixture
def site(tmp_path: Path) -> FileSite:
    """A site whose queue `q` got three messages, which were settled."""
    written(tmp_path, 3).journal.close()
    index(tmp_path)
    return FileSite(tmp_path)


@pytest.mark.parametrize("path", PATHS)
def test_a_route_needs_a_login_and_a_tag(site: FileSite, path: str) -> None:
    assert site.get(path, user=None).status == 401
    assert site.get(path, password="wrong").status == 401
    assert site.get(path, "plain").status == 401


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_else_can_be_changed(site: FileSite, path: str, method: str) -> None:
    if (method, path) not in CHANGES:
        answer = site.request(method, path, login("guest"))
        assert (answer.status, answer.headers["allow"].startswith("GET, HEAD")) == (405, True)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_change_needs_an_administrator_and_no_foreign_page(site: FileSite, method: str, path: str) -> None:
    for user in (None, "plain", "u", "m"):
        assert site.call(method, path, {}, user).status == 401
    foreign = login("guest") | {"sec-fetch-site": "cross-site", "content-type": "application/json"}
    assert site.request(method, path, foreign, b"{}").status == 403
    form = login("guest") | {"content-type": "application/x-www-form-urlencoded"}
    assert site.request(method, path, form, b"{}").status == 400
    assert not site.files.audit.running


def test_an_audit_without_a_folder_is_refused_with_the_setting(site: FileSite) -> None:
    answer = site.post("/api/escrow/audits", {})
    assert (answer.status, answer.json["reason"]) == (400, "no folder for audits is configured; set http.audits")
    assert site.get("/api/escrow/audits").json["configured"] is False


def test_the_verdicts_of_audits_are_listed_and_shown(tmp_path: Path) -> None:
    for run in (1, 2):
        write(tmp_path, run, violations=run - 1)
    site = FileSite(tmp_path, audits=tmp_path)
    listed = site.get("/api/escrow/audits", "m").json
    assert [(run["run"], run["clean"]) for run in listed["runs"]] == [(2, False), (1, True)]
    assert "rules" not in listed["runs"][0]
    assert listed["job"]["running"] is False
    assert site.get("/api/escrow/audits/1", "m").json["rules"]
    assert site.get("/api/escrow/audits/3").status == 404
    assert site.get("/api/escrow/audits/..%2F1").status == 400


def test_a_message_is_found_by_its_id_with_its_life(site: FileSite) -> None:
    answer = site.get("/api/escrow/messages?id=m1").json
    (message,) = answer["messages"]
    assert {key: message[key] for key in ("message_id", "correlation_id", "vhost", "queue", "position")} == {
        "message_id": "m1",
        "correlation_id": None,
        "vhost": "/",
        "queue": "q",
        "position": 1,
    }
    assert [moment["what"] for moment in message["life"]] == ["published", "accepted"]
    assert answer["indexed_lsn"] > message["life"][1]["lsn"]
    assert answer["complete"] == (answer["indexed_lsn"] >= answer["end_lsn"])


def test_a_message_is_found_by_its_place(site: FileSite) -> None:
    (message,) = site.get("/api/escrow/messages/%2F/q/2").json["messages"]
    assert message["message_id"] == "m2"


def test_an_id_is_not_a_correlation_id(site: FileSite) -> None:
    assert site.get("/api/escrow/messages?correlation_id=m1").json["messages"] == []


@pytest.mark.parametrize("query", ["", "?id=", "?id=a&correlation_id=b"])
def test_a_search_needs_one_of_both_ids(site: FileSite, query: str) -> None:
    assert site.get("/api/escrow/messages" + query).status == 400


def test_a_message_that_is_not_there_is_not_found(site: FileSite) -> None:
    answer = site.get("/api/escrow/messages/%2F/q/99")
    assert (answer.status, "has reached LSN" in answer.json["reason"]) == (404, True)
    assert site.get("/api/escrow/messages/%2F/q/-1").status == 400


@pytest.mark.parametrize("user", ["m", "u"])
def test_others_see_the_messages_of_queues_that_they_may_read(site: FileSite, user: str) -> None:
    assert site.get("/api/escrow/messages?id=m1", user).json["messages"] == []
    assert site.get("/api/escrow/messages/%2F/q/1", user).status == 401
    site.server.broker.access.set_permission(user, "/", "", "", "^q$")
    assert len(site.get("/api/escrow/messages?id=m1", user).json["messages"]) == 1
    assert site.get("/api/escrow/messages/%2F/q/1", user).status == 200
    assert site.get("/api/escrow/messages/%2F/other/1", user).status == 401


@pytest.mark.rule("SEC-1")
def test_a_token_shows_messages_by_its_scopes_and_not_by_the_permissions_of_a_listed_user(site: FileSite) -> None:
    site.server.broker.access.set_permission("u", "/", "", "", "^q$")
    for scopes, seen, status in (("read:%2F/other", 0, 401), ("read:%2F/q", 1, 200)):
        for name in ("u", "unlisted"):
            token = {"authorization": f"Bearer {name}:tag:management {scopes}"}
            assert len(site.request("GET", "/api/escrow/messages?id=m1", token).json["messages"]) == seen
            assert site.request("GET", "/api/escrow/messages/%2F/q/1", token).status == status


def test_without_an_index_nothing_is_found_and_that_is_said(tmp_path: Path) -> None:
    answer = FileSite(tmp_path).get("/api/escrow/messages?id=m1").json
    assert (answer["messages"], answer["complete"], answer["indexed_lsn"]) == ([], False, 0)


def test_records_are_paged_by_address(tmp_path: Path) -> None:
    site = FileSite(journal_with(tmp_path, 10))
    whole = [record["lsn"] for record in site.get("/api/escrow/journal?from=0").json["records"]]
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        page = site.get(f"/api/escrow/journal?from={start:#x}&count=3").json
        found += [record["lsn"] for record in page["records"]]
        start = page["next_lsn"]
    assert found == whole
    assert [each["lsn"] for each in site.get("/api/escrow/journal?count=3").json["records"]] == whole[-3:]
    between = site.get(f"/api/escrow/journal?from={whole[2]}&to={whole[5]}").json
    assert [each["lsn"] for each in between["records"]] == whole[2:5]


def test_records_are_chosen_by_kind_and_group(tmp_path: Path) -> None:
    site = FileSite(journal_with(tmp_path, 2))
    kinds = [each["kind"] for each in site.get("/api/escrow/journal?kind=publish").json["records"]]
    assert kinds == ["PUBLISH", "PUBLISH"]
    kinds = [each["kind"] for each in site.get("/api/escrow/journal?kind=names,messages").json["records"]]
    assert sorted(set(kinds)) == ["PUBLISH", "QUEUE_DECLARED"]


@pytest.mark.parametrize("query", ["from=x", "to=-1", "kind=none", "count=0", f"count={MOST_RECORDS + 1}", "count=x"])
def test_an_invalid_query_is_refused(site: FileSite, query: str) -> None:
    assert site.get("/api/escrow/journal?" + query).status == 400


def test_damage_is_reported_beside_the_records(tmp_path: Path) -> None:
    site = FileSite(damaged(journal_with(tmp_path, 10)))
    answer = site.get("/api/escrow/journal?from=0").json
    (damage,) = answer["damage"]
    assert "checksum" in damage["why"]
    lsns = [record["lsn"] for record in answer["records"]]
    assert lsns[0] < damage["lsn"] < lsns[-1]
    assert not any(damage["lsn"] <= lsn < damage["lsn"] + damage["size"] for lsn in lsns)


def test_the_journal_needs_the_tag_of_a_monitor(site: FileSite) -> None:
    assert site.get("/api/escrow/journal", "m").status == 200
    assert site.get("/api/escrow/journal", "u").status == 401
