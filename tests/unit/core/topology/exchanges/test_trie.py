"""The tree of patterns."""

from __future__ import annotations

import pytest

from escrowmq.core.topology.exchanges.trie import Trie


def matched(patterns: list[str], key: str) -> set[str]:
    trie: Trie[str] = Trie()
    for pattern in patterns:
        trie.add(pattern, 0, pattern)
    return set(trie.match(key))


@pytest.mark.parametrize(
    ("key", "patterns"),
    [
        ("", {"", "#", "#.#"}),
        ("a", {"a", "*", "#", "#.#", "*.#", "#.*", "a.#", "#.a"}),
        (".", {"#", "#.#", "*.#", "#.*", "*.*", "."}),
        ("a.b", {"#", "#.#", "*.#", "#.*", "*.*", "a.#", "a.*"}),
        ("b.a", {"#", "#.#", "*.#", "#.*", "*.*", "#.a"}),
        ("a.b.a", {"#", "#.#", "*.#", "#.*", "a.#", "#.a"}),
    ],
)
def test_wildcards_match_words(key: str, patterns: set[str]) -> None:
    every = ["", "a", "*", "#", "#.#", "*.#", "#.*", "*.*", ".", "a.#", "a.*", "#.a"]
    assert matched(every, key) == patterns


def test_a_wildcard_within_a_word_is_an_ordinary_character() -> None:
    assert matched(["a*", "#b", "*.*"], "a*.#b") == {"*.*"}


def test_wildcards_in_a_key_are_ordinary_words() -> None:
    assert matched(["a", "*", "#", "*.b", "a.b"], "*") == {"*", "#"}
    assert matched(["a", "#", "*.b"], "#.b") == {"#", "*.b"}


def test_many_wildcards_are_matched_in_bounded_time() -> None:
    pattern = ".".join(["#", "a"] * 30)
    assert matched([pattern], ".".join(["a"] * 200)) == {pattern}
    assert not matched([pattern], ".".join(["a"] * 200 + ["b"]))


def test_a_pattern_can_have_several_values() -> None:
    trie: Trie[str] = Trie()
    trie.add("a.#", 1, "one")
    trie.add("a.#", 2, "two")
    assert sorted(trie.match("a")) == ["one", "two"]
    trie.remove("a.#", 1)
    assert trie.match("a") == ["two"]


def test_removing_all_values_empties_the_tree() -> None:
    trie: Trie[int] = Trie()
    patterns = ["", "a", "a.b", "a.*", "#", "a.#.b", "*.*", "#.#"]
    for pattern in patterns:
        trie.add(pattern, 0, 0)
    assert not trie.empty
    for pattern in patterns:
        trie.remove(pattern, 0)
    assert trie.empty


@pytest.mark.parametrize("pattern", ["a", "a.b.c", "#", ""])
def test_removing_a_missing_value_raises_key_error(pattern: str) -> None:
    trie: Trie[int] = Trie()
    trie.add("a.b", 0, 0)
    with pytest.raises(KeyError):
        trie.remove(pattern, 0)
    assert trie.match("a.b") == [0]


@pytest.mark.parametrize(
    ("patterns", "leading"),
    [
        ([], 0),
        (["#", "*", "*.*.#", "#.*"], 0),
        (["a.#", "b.*"], 1),
        (["a.#", "*.*.b.*", "c"], 3),
        (["a", "#.b"], None),
        (["a.#.b"], None),
    ],
)
def test_as_many_words_are_read_as_the_patterns_compare(patterns: list[str], leading: int | None) -> None:
    trie: Trie[int] = Trie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number, number)
    assert trie.leading_words == leading
    for number, pattern in enumerate(patterns):
        trie.remove(pattern, number)
    assert trie.leading_words == 0
