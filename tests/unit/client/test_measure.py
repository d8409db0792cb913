"""`python -m escrowmq.client.measure` reports a failure on one line."""

from __future__ import annotations

import socket

import pytest

from escrowmq.client.measure import main


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "example: python -m escrowmq.client.measure amqp://" in capsys.readouterr().out


def test_a_missing_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # the port is bound, but has no listener
        assert main([f"amqp://guest:secret@127.0.0.1:{free.getsockname()[1]}/"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("python -m escrowmq.client.measure: ")
    assert said.count("\n") == 1
    assert "refused" in said
    assert "secret" not in said


def test_an_invalid_url_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["localhost"]) == 1
    assert "the scheme must be amqp or amqps" in capsys.readouterr().err
