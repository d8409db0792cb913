"""The container file and the compose file in deploy/: their variables exist, and their tools accept them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from escrowmq.config.sources import FILE_SUFFIX, load, variables
from tests.unit.sources import ROOT

DEPLOY = ROOT / "deploy"
_VARIABLE = re.compile(r"^\s+(?:ENV )?(ESCROWMQ_[A-Z_]+)(?:=|: )\"?([^\s\"]+)", re.MULTILINE)


def settings(name: str) -> dict[str, str]:
    return dict(_VARIABLE.findall((DEPLOY / name).read_text(encoding="utf-8")))


def test_the_variables_are_keys_of_the_configuration(tmp_path: Path) -> None:
    found = settings("Containerfile") | settings("compose.yaml")
    assert found.keys() >= {
        "ESCROWMQ_DATA_DIR",
        "ESCROWMQ_HTTP_OPEN_METRICS",
        "ESCROWMQ_SECURITY_DEFAULT_PASSWORD_FILE",
    }
    assert {name.removesuffix(FILE_SUFFIX) for name in found} <= variables().keys()
    secret = tmp_path / "password"
    secret.write_text("a password")
    config = load(None, {}, found | {"ESCROWMQ_SECURITY_DEFAULT_PASSWORD_FILE": str(secret)})
    assert config.http.address is not None
    assert config.http.open_metrics


def test_every_file_that_is_mounted_or_copied_exists() -> None:
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    mounted = re.findall(r"- \./(\S+):/\S+:ro", compose)
    assert len(mounted) == 5
    assert [name for name in mounted if not (DEPLOY / name).is_file()] == []
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "command",
    [("docker-compose", "--file", "deploy/compose.yaml", "config", "--quiet"), ("hadolint", "deploy/Containerfile")],
)
def test_the_tools_accept_the_files(command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
