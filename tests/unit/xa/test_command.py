"""`python -m escrowmq.xa`: its output and its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.xa.command import main
from escrowmq.xa.log import DecisionLog, commit_decision


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.db"
    log = DecisionLog(path, "shop")
    log.write(commit_decision("shop.1.a", ["bank.1", "queue.2"]))
    log.close()
    return path


def test_unfinished_decisions_are_listed(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(log)]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("manager shop, log ")
    assert [line.split("  ")[0::3] for line in lines] == [["shop.1.a", "bank"], ["shop.1.a", "queue"]]
    assert all(line.endswith("  prepared") for line in lines)


def test_decisions_are_listed_while_a_manager_uses_the_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = DecisionLog(log, "shop")
    assert main(["list", str(log)]) == 0
    assert main(["recover", str(log), "-p", "bank=postgresql://127.0.0.1:1/x"]) == 1
    held.close()
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list", "nowhere.db"], 2, "'nowhere.db' does not exist"),
        (["list", __file__], 1, "is damaged: file is not a database"),
        (["recover", "LOG", "-p", "bank"], 2, "--participant must be NAME=URL, not 'bank'"),
        (["recover", "LOG", "-p", "bank=mysql://x"], 2, "must begin with amqp, amqps or postgresql, not 'mysql'"),
        (["recover", "LOG", "-p", "a b=amqp://x"], 1, "a participant's name must be"),
        (["recover", "LOG"], 2, "Missing option"),
        (["forget", "LOG", "shop.1.a", "-p", "q=amqp://127.0.0.1:1/"], 1, "no transaction shop.1.a that was completed"),
        (["nothing"], 2, "No such command"),
    ],
)
def test_invalid_arguments_are_refused(
    log: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert main([str(log) if argument == "LOG" else argument for argument in arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("command", [[], ["list"], ["recover"], ["forget"]])
def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "python -m escrowmq.xa" in capsys.readouterr().out.partition("Example")[2]
