"""A node is refused whose name another one has that was there before it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from escrowmq.replica.entries import NodeReport, encode
from escrowmq.replica.errors import NameTaken
from escrowmq.replica.fold import Fold, SeenReport
from escrowmq.server.replica import names
from escrowmq.server.replica.names import NameCheck
from tests.unit.replica.entries import ONE
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import led_by_another, standby


def report(node: str, url: str, time_ms: int) -> NodeReport:
    return NodeReport(ONE, node, url, 0, time_ms)


def reported(fold: Fold, node: str, url: str, time_ms: int) -> Fold:
    fold.reports[node, url] = SeenReport(report(node, url, time_ms), 0)
    return fold


def test_a_node_with_the_name_of_one_that_is_there_is_refused() -> None:
    check, fold = NameCheck("a", "amqp://1"), reported(Fold(), "a", "amqp://2", 1)
    check.check(fold)
    with pytest.raises(NameTaken, match="another node at amqp://2 has the name 'a', too; give each node a name of its"):
        check.check(reported(fold, "a", "amqp://2", 2))


@pytest.mark.parametrize(("node", "url"), [("b", "amqp://2"), ("a", "amqp://1")])
def test_reports_of_other_nodes_and_old_ones_of_itself_are_no_reason(node: str, url: str) -> None:
    check, fold = NameCheck("a", "amqp://1"), reported(Fold(), node, url, 1)
    reported(fold, "a", "amqp://where it was before", 1)
    check.check(fold)
    check.check(reported(fold, node, url, 2))


def test_of_two_that_start_at_the_same_time_one_stays() -> None:
    checks = {url: NameCheck("a", url) for url in ("amqp://1", "amqp://2")}
    fold = Fold()
    for number in range(3):
        for url, check in list(checks.items()):
            try:
                check.check(fold)
            except NameTaken:
                del checks[url]
        for url in checks:
            reported(fold, "a", url, number)
    assert list(checks) == ["amqp://1"]


def test_a_node_that_was_there_first_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "WINDOW_SECONDS", 0)
    check, fold = NameCheck("a", "amqp://1"), reported(Fold(), "a", "amqp://2", 1)
    check.check(fold)
    check.check(reported(fold, "a", "amqp://2", 2))


def test_a_standby_ends_if_its_name_is_taken(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    log.stored.append(encode(report("n1", "amqp://other", 1)))
    follower = standby(log, tmp_path, lease=3600)

    def again() -> None:
        log.stored.append(encode(report("n1", "amqp://other", 2)))

    with pytest.raises(NameTaken):
        follower.run(threading.Thread(target=again).start)
