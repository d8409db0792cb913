"""The behaviour that all methods share: equality and representation."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method


def test_methods_are_equal_if_class_and_arguments_are() -> None:
    assert spec.BasicAck(7, True) == spec.BasicAck(7, True)
    assert spec.BasicAck(7, True) != spec.BasicAck(8, True)
    assert spec.BasicAck(7, True) != spec.BasicReject(7, True)
    assert spec.TxCommit() == spec.TxCommit()
    assert spec.TxCommit() != spec.TxRollback()
    assert spec.TxCommit() != "tx.commit"


def test_methods_can_be_changed_and_so_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(spec.BasicAck(7))


def test_representation_shows_the_arguments() -> None:
    method = spec.BasicPublish("logs", "a.b", mandatory=True)
    assert repr(method) == "BasicPublish(exchange='logs', routing_key='a.b', mandatory=True, immediate=False)"
    assert repr(spec.TxCommit()) == "TxCommit()"


@pytest.mark.parametrize(
    "method",
    [
        spec.ConnectionStartOk(response=b"\0guest\0secret"),
        spec.ConnectionSecureOk(b"secret"),
        spec.ConnectionUpdateSecret(b"secret", "token expired"),
    ],
)
def test_representation_hides_secrets(method: Method) -> None:
    assert "secret" not in repr(method).removeprefix("ConnectionUpdateSecret(new_secret=")
    assert "bytes>" in repr(method)


def test_slots_keep_misspelt_arguments_out() -> None:
    method = spec.BasicAck(7)
    with pytest.raises(AttributeError):
        method.delivery_tga = 8  # type: ignore[attr-defined]
