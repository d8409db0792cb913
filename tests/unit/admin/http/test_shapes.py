"""The names of bindings in paths."""

from __future__ import annotations

from escrowmq.admin.http.shapes import properties_key


def test_a_binding_is_named_by_key_and_arguments() -> None:
    assert properties_key("k", {}) == "k"
    assert properties_key("", {}) == "~"
    assert properties_key("k", {"a": 1, "b": 2}) == properties_key("k", {"b": 2, "a": 1})
    assert properties_key("k", {"a": 1}) not in {properties_key("k", {"a": 2}), properties_key("l", {"a": 1}), "k"}
