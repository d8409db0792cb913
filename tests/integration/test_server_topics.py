"""Topics and consumer groups of a real process, by the commands of its operator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import BrokerProcess, running_broker


def escrowmq(broker: BrokerProcess, *args: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", *args, "--data-dir", str(broker.data_dir)],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def test_an_operator_manages_topics_which_survive_a_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert escrowmq(broker, "topic", "create", "t", "--partitions", "2") == "topic 't' has 2 partitions\n"
        assert escrowmq(broker, "topic", "create", "t", "--partitions", "1").endswith("but never shrinks\n")
        wrong = escrowmq(broker, "topic", "create", "t", "--type", "fifo", code=1)
        assert "has type normal, which cannot be changed; delete it first" in wrong
        broker.kill()
        broker.start()
        (row,) = json.loads(escrowmq(broker, "topic", "list", "--json"))
        assert (row["name"], row["partitions"]) == ("t", 2)
        assert [row["queue"] for row in json.loads(escrowmq(broker, "topic", "show", "t", "--json"))] == ["t-0", "t-1"]
        assert "nothing was deleted" in escrowmq(broker, "topic", "delete", "t", code=1)
        assert escrowmq(broker, "topic", "delete", "t", "--yes") == "the topic is deleted\n"
        assert json.loads(escrowmq(broker, "topic", "list", "--json")) == []


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker without topics and groups."""
    with running_broker(tmp_path_factory.mktemp("empty")) as broker:
        yield broker


@pytest.mark.parametrize("command", [("show", "g"), ("delete", "g", "--yes"), ("reset", "g", "t", "first")])
def test_a_group_that_does_not_exist_is_an_error_in_one_line(empty: BrokerProcess, command: tuple[str, ...]) -> None:
    (line,) = escrowmq(empty, "group", *command, code=1).splitlines()
    assert "`escrowmq group list` shows" in line


def test_without_groups_the_list_is_empty_and_a_missing_topic_is_an_error_in_one_line(empty: BrokerProcess) -> None:
    assert json.loads(escrowmq(empty, "group", "list", "--json")) == []
    (line,) = escrowmq(empty, "topic", "delete", "t", code=1).splitlines()
    assert "`escrowmq topic list` shows" in line


def test_an_operator_creates_a_group_which_survives_a_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        shown = escrowmq(broker, "group", "create", "g", "--fifo", "--attempts", "5")
        assert shown == "group 'g' gets messages in order, each at most 5 times\n"
        broker.kill()
        broker.start()
        (row,) = json.loads(escrowmq(broker, "group", "list", "--json"))
        assert (row["name"], row["fifo"], row["max_attempts"], row["dead_letters"]) == ("g", True, 5, "%DLQ%g")
        missing = escrowmq(broker, "group", "create", "h", "--vhost", "none", code=1)
        assert len(missing.splitlines()) == 1
