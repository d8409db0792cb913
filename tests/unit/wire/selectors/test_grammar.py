"""The tokens of SQL selectors, and the parser of a dialect."""

from __future__ import annotations

import pytest

from escrowmq.wire.selectors.grammar import AMQP, JMS, parser
from escrowmq.wire.selectors.sql import Compiler, jms_selector
from escrowmq.wire.selectors.values import SelectorError
from tests.unit.wire.selectors.message import Message

NAMES = Compiler(lambda name: lambda values: values.value(name))


@pytest.mark.parametrize("part", [JMS, AMQP])
def test_the_parser_of_a_dialect_is_built_once(part: str) -> None:
    assert parser(part, NAMES) is parser(part, NAMES)


@pytest.mark.parametrize("word", ["and", "Or", "NOT", "between", "In", "LIKE", "escape", "is", "Null"])
def test_words_of_the_language_are_no_identifiers_in_any_case(word: str) -> None:
    with pytest.raises(SelectorError):
        jms_selector(f"{word} = 1")


@pytest.mark.parametrize(
    "name", ["android", "orange", "nothing", "inside", "is_it", "nullable", "_a", "$a", "a1", "größe"]
)
def test_identifiers_may_begin_with_a_word_of_the_language(name: str) -> None:
    assert jms_selector(f"{name} = 1")(Message({name: 1}))


def test_an_identifier_in_double_quotes_may_have_any_characters() -> None:
    assert jms_selector('"x-my ""key""" = 1')(Message({'x-my "key"': 1}))


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\r\n", "\f"])
def test_any_white_space_divides(space: str) -> None:
    assert jms_selector(space.join(["", "a", "=", "1", "and", "not", "b", ""]))(Message({"a": 1, "b": False}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("57", 57),
        ("+62", 62),
        ("-957", -957),
        ("9223372036854775807L", (1 << 63) - 1),
        ("0x1F", 31),
        ("0XffL", 255),
        ("017", 15),
        ("0", 0),
        ("7.", 7.0),
        (".5", 0.5),
        ("-95.7", -95.7),
        ("7E3", 7000.0),
        ("-57.9e2", -5790.0),
        ("1e-2d", 0.01),
        ("2f", 2.0),
        ("0.5F", 0.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert jms_selector(f"a = {text}")(Message({"a": value}))
    assert not jms_selector(f"a = {text}")(Message({"a": value + 1}))


@pytest.mark.parametrize("text", ["5x", "0x", "0xg", "1.2.3", "1e", "09", "18446744073709551616"])
def test_malformed_numbers_are_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        jms_selector(f"a = {text}")
