"""docs/commands.md is fresh and lists every command and option."""

from __future__ import annotations

import re

import click

from tests.unit.sources import ROOT
from tools import commands

PAGE = ROOT / "docs" / "commands.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == commands.render()


def test_every_command_and_option_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for path, command in commands.commands():
        assert f"# `escrowmq {path}`\n" in page
        chapter = page.split(f"# `escrowmq {path}`\n")[1].split("\n##")[0]
        options = [option for option in command.params if isinstance(option, click.Option)]
        missing = [name for option in options for name in option.opts if not re.search(rf"[` ]{name}\b", chapter)]
        assert not missing, path


def test_what_click_leaves_as_it_is_becomes_a_shell_block() -> None:
    text = "First\nline.\n\n\b\nExamples:\n  escrowmq a\n  escrowmq b"
    assert commands.prose(text) == "First\nline.\n\nExamples:\n\n```sh\nescrowmq a\nescrowmq b\n```"
