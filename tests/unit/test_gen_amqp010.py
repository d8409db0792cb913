"""The generated module of AMQP 0-10 equals the generator's output, and `--check` verifies this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.sources import ROOT

GENERATOR = ROOT / "tools" / "gen_amqp010.py"
PUBLISHED = Path("/usr/share/amqp/specs/0-10-qpid/amqp.0-10-qpid-errata.stripped.xml")
GENERATED = "src/escrowmq/wire/amqp010/codec/spec.py"

needs_published_xml = pytest.mark.skipif(not PUBLISHED.exists(), reason="Debian's package amqp-specs is not installed")


def run(generator: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(generator), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@needs_published_xml
def test_the_checked_in_file_is_up_to_date() -> None:
    result = run(GENERATOR, "--check")
    assert (result.returncode, result.stderr) == (0, "")


@needs_published_xml
def test_a_file_changed_by_hand_is_found_and_put_right(tmp_path: Path) -> None:
    for name in ("tools/gen_amqp010.py", GENERATED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    copy, target = tmp_path / "tools" / "gen_amqp010.py", tmp_path / GENERATED
    original = target.read_text(encoding="utf-8")
    target.write_text(original.replace("0x0102", "0x0103", 1), encoding="utf-8")
    result = run(copy, "--check")
    assert result.returncode == 1
    assert GENERATED in result.stderr
    assert run(copy).returncode == 0
    assert target.read_text(encoding="utf-8") == original


def test_a_missing_xml_is_told_apart(tmp_path: Path) -> None:
    result = run(GENERATOR, "--check", "--spec", str(tmp_path / "none.xml"))
    assert result.returncode == 2
    assert "amqp-specs" in result.stderr
