"""The help of `escrowmq serve`."""

from __future__ import annotations

from pathlib import Path

from escrowmq.cli.serve import DATA_DIR
from escrowmq.config.config import Config


def test_the_default_in_the_help_is_that_of_the_configuration() -> None:
    assert Config().data_dir == Path(DATA_DIR)
