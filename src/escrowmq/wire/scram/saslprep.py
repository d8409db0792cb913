"""SASLprep (RFC 4013): the form in which passwords enter SCRAM."""

from __future__ import annotations

import stringprep
from collections.abc import Callable
from typing import Final
from unicodedata import ucd_3_2_0

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_a1,  # unassigned, since the result is stored
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Return the prepared form of a text that is stored. Raises ValueError if it has characters that are prohibited."""
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(prohibited(each) for prohibited in _PROHIBITED):
            raise ValueError("the text has a character that SASLprep prohibits")
    _check_directions(prepared)
    return prepared


def _check_directions(text: str) -> None:
    """Raises ValueError if right-to-left text is mixed with other text (RFC 3454, section 6)."""
    if any(map(stringprep.in_table_d1, text)):
        ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
        if not ends or any(map(stringprep.in_table_d2, text)):
            raise ValueError("the text mixes directions in a way that SASLprep prohibits")


def password_bytes(password: str) -> bytes:
    """Return the bytes of a password for SCRAM: its prepared form, or the password itself if it cannot be prepared.

    PostgreSQL does the same, since passwords were often chosen before SCRAM was used. Raises UnicodeEncodeError for
    lone surrogates.
    """
    try:
        return saslprep(password).encode() or password.encode()
    except ValueError:
        return password.encode()
