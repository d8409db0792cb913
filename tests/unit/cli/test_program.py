"""The framework of the command line: help, version, exit codes, one line for each error, late imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest

from escrowmq import __version__
from escrowmq.cli import program as cli
from tests.unit.inspection.journals import small_journal


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


Run = Callable[..., tuple[int, str, str]]


def command(name: str) -> click.Command:
    found = cli.cli.get_command(click.Context(cli.cli), name)
    assert found
    return found


@pytest.mark.parametrize("name", ["topic", "group", "half"])
def test_the_help_of_a_group_lists_whole_sentences_and_begins_with_list(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    commands = out.partition("Commands:\n")[2].splitlines()
    assert code == 0
    assert commands[0].split()[0] == "list"
    assert not [line for line in commands if line.endswith("...")]


def leaves(name: str, found: click.Command) -> list[tuple[str, click.Command]]:
    """Return the command, and all below it."""
    below = found.commands.items() if isinstance(found, click.Group) else ()
    return [(name, found), *(leaf for sub, child in below for leaf in leaves(f"{name} {sub}", child))]


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"escrowmq {__version__}\n", "")


def test_help_lists_every_command_and_imports_none() -> None:
    script = (
        "import sys; from escrowmq.cli import main; main(['--help']);"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pydantic', 'rich', 'asyncio', 'argon2')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    listed = done.stdout.splitlines()
    assert listed[-1] == "[]"
    words = " ".join(done.stdout.split())
    assert all(f" {name} {mount.summary}" in words for name, mount in cli.COMMANDS.items())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(run: Run, name: str) -> None:
    found = command(name)
    for path, leaf in leaves(name, found):
        code, text, _ = run(*path.split(), "--help")
        assert code == 0
        assert leaf.help, path
        examples = "".join((leaf.help or "", found.help or "")).partition("Example")[2]
        assert f"escrowmq {name} " in examples, f"no example of {path}, nor of {name}"
        assert text.startswith(f"Usage: escrowmq {path} ")
        assert all(option.help for option in leaf.params if isinstance(option, click.Option)), path


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    assert (command(name).help or "").splitlines()[0] == cli.COMMANDS[name].summary


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "escrowmq: No such command 'nope' (see escrowmq --help)\n"),
        (["serve", "--nope"], "escrowmq: No such option '--nope' (see escrowmq serve --help)\n"),
        (["serve", "extra"], "escrowmq: Got unexpected extra argument (extra) (see escrowmq serve --help)\n"),
        (["serve", "--listen", "nowhere"], "escrowmq: command line: listen.address: expected an address"),
        (["serve", "--config", "absent.toml"], "escrowmq: configuration file absent.toml: No such file or directory\n"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run: Run, arguments: list[str], line: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_every_error_of_a_configuration_has_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("limits.connections = 0\nlimits.nope = 1\n")
    code, _, err = run("serve", "--config", str(file))
    assert code == 2
    assert [line.split(": ")[:3] for line in err.splitlines()] == [
        ["escrowmq", str(file), "limits.connections"],
        ["escrowmq", str(file), "limits.nope"],
    ]


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (PermissionError(13, "Permission denied", "/var/x"), 1, "escrowmq: /var/x: Permission denied\n"),
        (OSError("no route"), 1, "escrowmq: no route\n"),
        (click.ClickException("it failed"), 1, "escrowmq: it failed\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_a_foreseeable_failure_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, line: str
) -> None:
    @click.command()
    def fail() -> None:
        raise raised

    monkeypatch.setattr(cli, "fail", fail, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "fail", cli.Mount("escrowmq.cli.program", "fail", "Fail."))
    assert run("fail") == (code, "", line)


@pytest.mark.parametrize("arguments", [[], ["user"], ["journal"]])
def test_without_arguments_the_help_is_printed(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: escrowmq")
    assert "escrowmq: " not in err


def test_control_characters_do_not_reach_the_terminal(run: Run) -> None:
    code, _, err = run("no\x1b[31mpe")
    assert code == 2
    assert err == "escrowmq: No such command 'no\\x1b[31mpe' (see escrowmq --help)\n"


def test_a_reader_that_closes_the_pipe_is_no_failure(tmp_path: Path) -> None:
    small_journal(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "escrowmq", "inspect", str(tmp_path), "--records"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (cli.UNREAD, "")


def test_python_m_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", "nope"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "escrowmq: No such command 'nope' (see escrowmq --help)\n"


@pytest.mark.parametrize(
    ("given", "sent"), [("7D", "7D"), ("7d", "604800s"), ("1h", "1h"), ("90", "90s"), ("6M", "6M"), ("10ms", "1s")]
)
def test_the_age_of_messages_of_a_topic_has_the_usual_units(
    given: str, sent: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def ask(data_dir: Path, operation: str, **arguments: Any) -> dict[str, Any]:
        asked.update(arguments)
        return {"partitions": 8}

    monkeypatch.setattr("escrowmq.cli.topics.ask", ask)
    assert run("topic", "create", "t", "--max-age", given)[0] == 0
    assert asked["max_age"] == sent


def test_a_topic_whose_name_rocketmq_refuses_is_warned_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.cli.topics.ask", Mock(return_value={"partitions": 8}))
    assert "clients of RocketMQ refuse this name" in run("topic", "create", "a b")[2]
    assert run("topic", "create", "a-b")[2] == ""


@pytest.mark.parametrize(
    ("arguments", "text"), [(("",), "the name is empty"), (("t", "--max-age", "soon"), "is not a duration")]
)
def test_a_topic_without_a_name_or_with_a_wrong_age_is_refused(arguments: tuple[str, ...], text: str, run: Run) -> None:
    code, _, error = run("topic", "create", *arguments)
    assert code == 2
    assert text in error
