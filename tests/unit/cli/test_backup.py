"""The options of `escrowmq backup`."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq import cli


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--interval", "5s"], "--interval has no effect without --follow"),
        (["--interval", "0"], "--interval has no effect without --follow"),
        (["--follow", "--interval", "0"], "the pause must be longer than 0"),
        (["--interval", "0ms", "--follow"], "the pause must be longer than 0"),
        (["--follow", "--interval", "soon"], "'soon' is not"),
    ],
)
def test_an_interval_that_cannot_be_kept_is_refused(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["backup", str(tmp_path / "b"), "--data-dir", str(tmp_path), *options]) == 2
    assert text in capsys.readouterr().err
