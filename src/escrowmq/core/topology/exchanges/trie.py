"""A tree of routing-key patterns with wildcards, so that matching does not look at every pattern.

A key consists of words separated by dots. The empty key has no words; the key `.` has two empty words. In a pattern `*`
stands for exactly one word, empty or not, and `#` for any number of words, including none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("any_words", "one_word", "values", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node[V]] = {}
        self.one_word: _Node[V] | None = None
        self.any_words: _Node[V] | None = None
        self.values: dict[Hashable, V] = {}

    def child(self, word: str) -> _Node[V] | None:
        if word == "*":
            return self.one_word
        if word == "#":
            return self.any_words
        return self.words.get(word)

    def grow(self, word: str) -> _Node[V]:
        node: _Node[V] = _Node()
        if word == "*":
            self.one_word = node
        elif word == "#":
            self.any_words = node
        else:
            self.words[word] = node
        return node

    def cut(self, word: str) -> None:
        if word == "*":
            self.one_word = None
        elif word == "#":
            self.any_words = None
        else:
            del self.words[word]

    @property
    def leaf(self) -> bool:
        return not self.words and self.one_word is None and self.any_words is None


class Trie(Generic[V]):
    """Values under patterns; an identity distinguishes several values under one pattern."""

    __slots__ = ("_leading", "_root")

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self._leading: dict[int | None, int] = {}  # how many values have patterns that read this number of words

    def add(self, pattern: str, identity: Hashable, value: V) -> None:
        """Store `value` under `pattern`."""
        node = self._root
        for word in _words(pattern):
            node = node.child(word) or node.grow(word)
        if identity not in node.values:
            read = _leading_words(pattern)
            self._leading[read] = self._leading.get(read, 0) + 1
        node.values[identity] = value

    def remove(self, pattern: str, identity: Hashable) -> None:
        """Remove the value that `add` stored, and the nodes that no other pattern needs. Raises KeyError."""
        node = self._root
        path: list[tuple[_Node[V], str]] = []
        for word in _words(pattern):
            path.append((node, word))
            child = node.child(word)
            if child is None:
                raise KeyError(pattern)
            node = child
        del node.values[identity]
        read = _leading_words(pattern)
        self._leading[read] -= 1
        if not self._leading[read]:
            del self._leading[read]
        while path and node.leaf and not node.values:
            node, word = path.pop()
            node.cut(word)

    @property
    def empty(self) -> bool:
        return self._root.leaf and not self._root.values

    @property
    def leading_words(self) -> int | None:
        """How many words at the beginning of a key, with the number of its words, determine what it matches. None if
        every word may.
        """
        if None in self._leading:
            return None
        return max(self._leading, default=0)  # type: ignore[type-var]  # there is no None

    def match(self, key: str) -> list[V]:
        """Return the values under all patterns that match `key`; a value may occur more than once.

        The search follows all nodes that the words so far can reach at the same time, so its time is bounded by words
        times nodes, for any patterns. A node behind `#` stays reached until the last word, and can be reached in
        several ways, so the search remembers these nodes. Every other node can be reached in one way only.
        """
        here = [self._root]
        loops: dict[_Node[V], None] = {}
        ends: dict[_Node[V], None] = {}  # `#` nodes without children, which have matched already
        _enter_loops(self._root, loops, ends)
        for word in _words(key):
            there: list[_Node[V]] = []
            for place in (here, loops) if loops else (here,):
                for node in place:
                    child = node.words.get(word)
                    if child is not None:
                        there.append(child)
                    child = node.one_word
                    if child is not None:
                        there.append(child)
            if not there and not loops:
                here = there
                break
            for node in there:
                if node.any_words is not None:
                    _enter_loops(node, loops, ends)
            here = there
        found: list[V] = []
        for last in (here, loops, ends):
            for node in last:
                found += node.values.values()
        return found


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _leading_words(pattern: str) -> int | None:
    """Return how many words of a key are compared with words of the pattern, None if some have no fixed place."""
    read, floating = 0, False
    for number, word in enumerate(_words(pattern), 1):
        if word == "#":
            floating = True
        elif word != "*":
            if floating:
                return None
            read = number
    return read


def _enter_loops(node: _Node[V], loops: dict[_Node[V], None], ends: dict[_Node[V], None]) -> None:
    loop = node.any_words
    while loop is not None:
        if loop.leaf:
            ends[loop] = None
        else:
            loops[loop] = None
        loop = loop.any_words
