"""Errors about unknown commands and misplaced options name the command or the place that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.cli import main


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["quues"], "No such command 'quues'; did you mean queues? (see escrowmq --help)"),
        (["half", "lst"], "No such command 'lst'; did you mean list? (see escrowmq half --help)"),
        (["connections", "clsoe"], "No such command 'clsoe'; did you mean close? (see escrowmq connections --help)"),
        (["half", "xyz"], "No such command 'xyz' (see escrowmq half --help)"),
    ],
)
def test_a_similar_command_is_suggested(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert refusal(capsys, *arguments) == f"escrowmq: {line}\n"


@pytest.mark.parametrize(
    ("arguments", "option", "command"),
    [
        (["half", "--data-dir", "data", "list"], "--data-dir", "escrowmq half"),
        (["half", "--data-dir=data", "list"], "--data-dir", "escrowmq half"),
        (["--data-dir", "data", "queues"], "--data-dir", "escrowmq"),
        (["connections", "--reason", "x", "close"], "--reason", "escrowmq connections"),
    ],
)
def test_an_option_of_a_subcommand_is_sent_behind_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], option: str, command: str
) -> None:
    said = f"No such option '{option}' before the subcommand; put it after the subcommand"
    assert refusal(capsys, *arguments) == f"escrowmq: {said} (see {command} --help)\n"


def test_an_option_that_no_subcommand_has_is_only_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "half", "--nope", "list") == "escrowmq: No such option '--nope' (see escrowmq half --help)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["connections", "--data-dir", "DIR", "close", "127.0.0.1:5672"],
        ["holds", "--data-dir", "DIR", "release", "q", "g", "--yes"],
        ["links", "--data-dir", "DIR", "release", "c", "l", "--yes"],
        ["connections", "--data-dir", "elsewhere", "close", "127.0.0.1:5672", "--data-dir", "DIR"],
    ],
    ids=" ".join,
)
def test_an_option_of_the_list_before_a_subcommand_holds_for_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "broker")
    assert main([folder if word == "DIR" else word for word in arguments]) == 1
    assert folder in capsys.readouterr().err


def test_an_option_that_only_the_list_has_is_refused_before_a_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    said = "The option '--json' does not apply to 'escrowmq connections close'"
    refused = refusal(capsys, "connections", "--json", "close", "127.0.0.1:5672")
    assert refused == f"escrowmq: {said} (see escrowmq connections --help)\n"
