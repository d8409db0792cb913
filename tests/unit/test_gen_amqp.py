"""The generated modules equal the generator's output, and `--check` verifies this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.sources import ROOT

GENERATOR = ROOT / "tools" / "gen_amqp.py"
PUBLISHED = Path("/usr/share/amqp/specs/0-9-1-rabbit/amqp0-9-1.stripped.extended.xml")

needs_published_xml = pytest.mark.skipif(not PUBLISHED.exists(), reason="Debian's package amqp-specs is not installed")


def run(generator: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(generator), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the generator in a tree of its own, with its inputs and outputs."""
    for name in ("tools/gen_amqp.py", "tools/overlay_amqp091.xml", *GENERATED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path / "tools" / "gen_amqp.py"


GENERATED = ("src/escrowmq/wire/amqp091/codes.py", "src/escrowmq/wire/amqp091/spec.py")


@needs_published_xml
def test_the_checked_in_files_are_up_to_date() -> None:
    result = run(GENERATOR, "--check")
    assert (result.returncode, result.stderr) == (0, "")


@needs_published_xml
@pytest.mark.parametrize("name", GENERATED)
def test_a_file_changed_by_hand_is_found_and_put_right(copy: Path, name: str) -> None:
    target = copy.parent.parent / name
    original = target.read_text(encoding="utf-8")
    target.write_text(original.replace("60", "61", 1), encoding="utf-8")
    result = run(copy, "--check")
    assert result.returncode == 1
    assert name in result.stderr
    assert target.read_text(encoding="utf-8") != original
    assert run(copy).returncode == 0
    assert target.read_text(encoding="utf-8") == original


@needs_published_xml
def test_a_default_for_a_field_that_does_not_exist_is_refused(copy: Path) -> None:
    overlay = copy.parent / "overlay_amqp091.xml"
    text = overlay.read_text(encoding="utf-8")
    overlay.write_text(text.replace('field="requeue"', 'field="requeued"', 1), encoding="utf-8")
    result = run(copy, "--check")
    assert result.returncode == 1
    assert "requeued" in result.stderr


def test_a_missing_xml_is_told_apart(tmp_path: Path) -> None:
    result = run(GENERATOR, "--check", "--spec", str(tmp_path / "none.xml"))
    assert result.returncode == 2
    assert "amqp-specs" in result.stderr
