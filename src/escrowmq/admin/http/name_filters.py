"""Filters of lists by name: a text, or a regular expression.

Python's regular expressions can take exponential time, and nothing can interrupt them. So only those are taken whose
time is bounded: quantifiers stand behind single characters and classes, not behind groups, and the number of ways in
which a name can match is limited.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

LONGEST: Final = 200
"""Characters of an expression."""
SECONDS: Final = 1.0
"""The time after which no further names are searched."""
_WAYS: Final = 64 * 64 * 16
"""The most ways to match: 64 for each repetition, 2 for something optional, the number of branches for each group."""
_PART: Final = re.compile(
    r"""(?P<group>\((?P<kind>\?:|(?!\?)))
    | (?P<end>\))
    | (?P<branch>\|)
    | (?P<atom>\\[^0-9] | \[\^?\]?(?:\\.|[^\]\\])*\] | [^()|*+?{}\[\\])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER: Final = re.compile(r"(?:(?P<optional>\?)|[*+]|\{[0-9,]*\})[?+]?")


class BadQuery(Exception):  # noqa: N818 - named for what happened
    """A parameter of the query is invalid. The text is for the client."""


def containing(text: str) -> Callable[[str], bool]:
    """Return the filter for names that contain a text, whatever the case of its letters."""
    lower = text.lower()
    return lambda name: lower in name.lower()


def matching(pattern: str) -> Callable[[str], bool]:
    """Return the filter for names in which a regular expression is found; it raises BadQuery after `SECONDS`. Raises
    BadQuery for an expression that is not valid or too costly.
    """
    if len(pattern) > LONGEST:
        raise BadQuery(f"name: a regular expression has at most {LONGEST} characters")
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadQuery(f"name: this is no regular expression: {error}") from None
    if _ways(pattern) > _WAYS:
        raise BadQuery("name: this regular expression has too many repetitions or branches")
    end = time.monotonic() + SECONDS

    def found(name: str) -> bool:
        if time.monotonic() > end:
            raise BadQuery("name: searching with this regular expression takes too long")
        return compiled.search(name) is not None

    return found


def _ways(pattern: str) -> int:
    """Return an upper bound of the ways to match. Raises BadQuery for what has none."""
    at, total = 0, 1
    branches = [1]
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            raise BadQuery(f"name: {pattern[at : at + 4]!r} is not supported in regular expressions here")
        at = part.end()
        if part["group"]:
            branches.append(1)
        elif part["end"]:
            total *= branches.pop()
        elif part["branch"]:
            branches[-1] += 1
        quantifier = _QUANTIFIER.match(pattern, at)
        if quantifier is None:
            continue
        if not part["atom"]:
            raise BadQuery("name: a quantifier can only be behind a character or a class, not behind a group")
        at = quantifier.end()
        total *= 2 if quantifier["optional"] else 64
    return total * branches.pop()
