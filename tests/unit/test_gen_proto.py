"""The generated modules of RocketMQ's messages equal the generator's output, and `--check` verifies this."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.gen_proto import generated, main


def test_the_checked_in_modules_are_up_to_date() -> None:
    assert main(["--check"]) == 0


def test_a_module_changed_by_hand_is_found_and_put_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = generated()
    for path in texts:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    changed = next(iter(texts))
    (tmp_path / changed).write_text("changed by hand\n")
    assert main(["--check"], tmp_path) == 1
    assert str(changed) in capsys.readouterr().err
    assert main([], tmp_path) == 0
    assert (tmp_path / changed).read_text() == texts[changed]
