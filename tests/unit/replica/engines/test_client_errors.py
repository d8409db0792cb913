"""The last errors of a client, each once."""

from __future__ import annotations

from escrowmq.replica.engines.client_errors import ClientErrors


def test_the_last_three_different_errors_are_kept() -> None:
    errors = ClientErrors()
    assert not str(errors)
    for text in ("a", "b", "c", "b", "d"):
        errors.note(text)
    assert str(errors) == "c; b; d"
