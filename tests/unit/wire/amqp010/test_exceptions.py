"""Refusals of the core as execution exceptions."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import Condition
from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.spec import DtxStart, ErrorCode
from escrowmq.wire.amqp010.exceptions import ERROR_CODES, exception


@pytest.mark.parametrize("condition", Condition)
def test_every_condition_has_a_code(condition: Condition) -> None:
    assert ERROR_CODES[condition] in ErrorCode


def test_an_exception_names_its_command() -> None:
    found = exception(ErrorCode.NOT_ALLOWED, "known", (1 << 32) + 7, DtxStart.CODE)
    assert (found.error_code, found.command_id, found.class_code, found.command_code) == (530, 7, 6, 2)
    assert found.description == "known"


def test_an_exception_without_a_command() -> None:
    found = exception(ErrorCode.INTERNAL_ERROR, "x")
    assert (found.command_id, found.class_code, found.command_code) == (None, None, None)


def test_a_long_description_is_cut_at_a_character() -> None:
    found = exception(ErrorCode.INTERNAL_ERROR, "é" * 40_000, 0)
    assert found.description == "é" * 2000
    assert len(encode_command(found)) < 4096


def test_a_description_is_always_text() -> None:
    assert exception(ErrorCode.INTERNAL_ERROR, "\ud800", 0).description == "?"
