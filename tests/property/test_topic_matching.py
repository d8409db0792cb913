"""The pattern tree matches as the definition says, after any additions and removals."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.topology.exchanges.trie import Trie


def matches(pattern: list[str], key: list[str]) -> bool:
    """Return the definition of a topic match, word by word."""
    if not pattern:
        return not key
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(matches(rest, key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and first in {"*", key[0]} and matches(rest, key[1:])


def words(text: str) -> list[str]:
    return text.split(".") if text else []


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "c", "*", "#"]), max_size=7).map(".".join)


@given(added=st.lists(patterns, max_size=25), removed=st.sets(st.integers(0, 24)), asked=st.lists(keys, min_size=1))
def test_against_the_definition(added: list[str], removed: set[int], asked: list[str]) -> None:
    trie: Trie[int] = Trie()
    for number, pattern in enumerate(added):
        trie.add(pattern, number, number)
    for number in removed:
        if number < len(added):
            trie.remove(added[number], number)
    left = {number: pattern for number, pattern in enumerate(added) if number not in removed}
    assert trie.empty is not bool(left)
    for key in asked:
        expected = {number for number, pattern in left.items() if matches(words(pattern), words(key))}
        assert set(trie.match(key)) == expected
    leading = trie.leading_words
    if leading is not None:
        routes = {(*words(key)[:leading], None, len(words(key))): set(trie.match(key)) for key in asked}
        for key in asked:
            assert set(trie.match(key)) == routes[*words(key)[:leading], None, len(words(key))]


def test_every_short_pattern_against_every_short_key() -> None:
    trie: Trie[str] = Trie()
    every = [".".join(chosen) for length in range(6) for chosen in product("a*#", repeat=length)]
    for pattern in every:
        trie.add(pattern, None, pattern)
    for length in range(5):
        for key in product("ab", repeat=length):
            expected = {pattern for pattern in every if matches(words(pattern), list(key))}
            assert set(trie.match(".".join(key))) == expected
