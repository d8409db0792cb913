"""docs/configuration.md is complete and fresh, and its example loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.config.config import Config
from escrowmq.config.sources import load
from tests.unit.sources import ROOT
from tools import configuration

PAGE = ROOT / "docs" / "configuration.md"

KEYS = [(table, name) for table, section in configuration.sections() for name, _ in configuration.keys(section)]


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == configuration.render()


@pytest.mark.parametrize(("table", "name"), KEYS)
def test_every_key_is_described(table: str, name: str) -> None:
    section = dict(configuration.sections())[table]
    assert section.model_fields[name].description
    assert configuration.accepts(section, name)
    chapter = configuration.render().split(f"## `[{table}]`" if table else "## Keys outside any table")[1]
    assert f"| `{name}` |" in chapter.split("\n## ")[0]


def test_the_example_is_the_default_configuration(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(configuration.example(), encoding="utf-8")
    loaded = load(file, {"data_dir": Config().data_dir.absolute()})
    assert loaded == Config().model_copy(update={"data_dir": Config().data_dir.absolute()})
