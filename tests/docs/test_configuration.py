"""Configuration in the pages: every TOML block can be loaded, and every named key exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from escrowmq.config.config import Config
from escrowmq.config.sources import load
from tests.docs.pages import PAGES, Block, blocks, name

TABLES = {
    table: field.annotation
    for table, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
KEY = re.compile(rf"`({'|'.join(TABLES)})\.(?!py`)([a-z_]+)`")
TOML = [(page, block) for page in PAGES for block in blocks(page, "toml")]


@pytest.mark.parametrize("page", [page for page in PAGES if KEY.search(page.read_text(encoding="utf-8"))], ids=name)
def test_every_key_that_is_named_exists(page: Path) -> None:
    for table, key in KEY.findall(page.read_text(encoding="utf-8")):
        model = TABLES[table]
        assert model is not None
        assert key in model.model_fields, f"{name(page)} names {table}.{key}"


@pytest.mark.parametrize(("page", "block"), TOML, ids=[f"{name(page)}:{block.line}" for page, block in TOML])
def test_every_block_loads(page: Path, block: Block, tmp_path: Path) -> None:
    file = tmp_path / "escrowmq.toml"
    file.write_text(block.text, encoding="utf-8")
    load(file)
