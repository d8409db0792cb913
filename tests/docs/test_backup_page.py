"""docs/guides/backup.md quotes messages that the commands really print."""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.sources import ROOT

PAGE = (ROOT / "docs" / "guides" / "backup.md").read_text(encoding="utf-8")
QUOTED = [message for row in re.findall(r"^\| (`.*`) \|", PAGE, re.MULTILINE) for message in re.findall("`(.*?)`", row)]


def texts() -> list[str]:
    """Return the texts in the sources of backups, with … in place of what is filled in."""
    files = [*(ROOT / "src/escrowmq/backup").glob("*.py"), ROOT / "src/escrowmq/cli/backup.py"]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    found = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
            found.append("".join(parts))
    return found


@pytest.mark.parametrize("message", [each for each in QUOTED if not each.startswith("escrowmq ")])
def test_the_message_is_one_of_the_program(message: str) -> None:
    pattern = ".+".join(re.escape(part) for part in message.split("…") if part)
    assert any(re.search(pattern, text) for text in texts()), f"no source has the text {message!r}"
