"""Where a command finds the data directory."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from escrowmq import cli
from escrowmq.cli import program
from escrowmq.cli.options import DATA_DIR, data_dir_option
from escrowmq.cli.subcommands import CommandGroup


@click.group(cls=CommandGroup, invoke_without_command=True)
@data_dir_option
@click.pass_context
def things(context: click.Context, data_dir: Path) -> None:
    """List things."""
    if context.invoked_subcommand is None:
        click.echo(data_dir)


@things.command()
@data_dir_option
def close(data_dir: Path) -> None:
    """Close a thing."""
    click.echo(data_dir)


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, [], str(DATA_DIR)),
        ({}, ["--data-dir", "given"], "given"),
        ({}, ["--config", "{file}"], "{folder}/filed"),
        ({}, ["--config", "{file}", "--data-dir", "given"], "given"),
        ({"ESCROWMQ_DATA_DIR": "varied"}, [], "varied"),
        ({"ESCROWMQ_DATA_DIR": "varied"}, ["--config", "{file}"], "varied"),
        ({"ESCROWMQ_DATA_DIR": "varied"}, ["--data-dir", "given"], "given"),
        ({"ESCROWMQ_CONFIG": "{file}"}, [], "{folder}/filed"),
        ({"ESCROWMQ_CONFIG": "{file}"}, ["--data-dir", "given"], "given"),
    ],
)
@pytest.mark.parametrize("where", ["alone", "after", "before"])
def test_the_command_line_is_before_the_environment_and_that_before_the_file(
    tmp_path: Path, variables: dict[str, str], arguments: list[str], expected: str, where: str
) -> None:
    file = tmp_path / "escrowmq.toml"
    file.write_text('data_dir = "filed"\n[unknown]\nkey = 1\n')
    words = {"{file}": str(file), "{folder}": str(tmp_path)}
    given = [words.get(each, each) for each in arguments]
    line = {"alone": given, "after": ["close", *given], "before": [*given, "close"]}[where]
    environment = {key: words.get(each, each) for key, each in variables.items()}
    unset: dict[str, str | None] = {"ESCROWMQ_DATA_DIR": None, "ESCROWMQ_CONFIG": None}
    done = CliRunner().invoke(things, line, env=unset | environment)
    assert done.output == expected.replace("{folder}", str(tmp_path)) + "\n"


@pytest.mark.parametrize(
    ("text", "fault"), [("data_dir = 7", "data_dir: expected a path"), ("=", "not TOML"), (None, "No such file")]
)
def test_a_file_that_cannot_be_used_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, fault: str
) -> None:
    file = tmp_path / "escrowmq.toml"
    if text is not None:
        file.write_text(text)
    assert program.main(["status", "--config", str(file)]) == program.USAGE
    told = capsys.readouterr().err
    assert fault in told
    assert told.count("\n") == 1


def leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        found = [(f"{path} {name}", command.get_command(context, name)) for name in command.list_commands(context)]
        return [leaf for name, each in found if each is not None for leaf in leaves(each, name)]
    return [(path, command)]


ELSEWHERE = {" perf"}
"""It loads a broker through its ports only."""


def test_every_command_takes_the_data_directory_from_the_environment() -> None:
    missing = [
        name
        for name, command in leaves(program.cli, "")
        if name not in ELSEWHERE
        and not any(
            param.envvar == "ESCROWMQ_DATA_DIR" or (param.name == "data_dir" and name == " serve")
            for param in command.params
        )
    ]
    assert missing == []
    assert cli.main is program.main
