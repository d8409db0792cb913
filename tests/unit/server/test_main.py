"""Errors that are found before the broker starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.config.config import Config
from escrowmq.config.errors import ConfigError
from escrowmq.config.limits import LimitsSection
from escrowmq.server import main
from escrowmq.server.main import fitting, run


def test_a_missing_file_of_definitions_is_told_before_anything_is_made(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", load_definitions=tmp_path / "none.json")
    with pytest.raises(ConfigError, match=r"none\.json: No such file"):
        run(config, lambda: config)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("missing", "verb"), [(["jinja2"], "jinja2 is not"), (["jinja2", "uvicorn"], "uvicorn are not")]
)
def test_missing_packages_are_named(missing: list[str], verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "missing_modules", lambda: missing)
    config = Config.model_validate({"http": {"address": "127.0.0.1:0"}})
    with pytest.raises(ConfigError, match=f"{verb} installed: pip install"):
        run(config, lambda: config)


def test_the_limits_stay_when_the_system_allows_them() -> None:
    limits = LimitsSection(connections=100, unauthenticated_connections=50)
    assert fitting(limits, lambda wanted: wanted) == limits


def test_few_open_files_leave_room_for_logins_and_for_those_that_have_logged_in() -> None:
    limits = LimitsSection(connections=1000, unauthenticated_connections=500)
    fewer = fitting(limits, lambda _: 400)
    assert (fewer.connections, fewer.unauthenticated_connections) == (300, 100)
    none = fitting(limits, lambda _: 0)
    assert (none.connections, none.unauthenticated_connections) == (1, 1)
