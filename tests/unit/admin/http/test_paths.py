"""The paths of the management API."""

from __future__ import annotations

import pytest

from escrowmq.admin.http.paths import LONGEST_PATH, PathTable, segments

TABLE = PathTable({"queues": 1, "queues/{vhost}": 2, "queues/{vhost}/{name}": 3, "queues/{vhost}/{name}/bindings": 4})


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"/api/queues", ["api", "queues"]),
        (b"/api/queues/%2F/a%2Fb", ["api", "queues", "/", "a/b"]),
        (b"/api/queues/%2f/..%2f..?x=/y", ["api", "queues", "/", "../.."]),
        (b"/api/queues/../users", ["api", "queues", "..", "users"]),
        (b"/api/%252F", ["api", "%2F"]),
        (b"/api/%C3%BC", ["api", "ü"]),
        (b"/api/", ["api", ""]),
    ],
)
def test_a_path_is_divided_before_it_is_decoded(raw: bytes, found: list[str]) -> None:
    assert segments(raw) == found


@pytest.mark.parametrize("raw", [b"/api/%FF", b"/" + b"a" * LONGEST_PATH])
def test_a_path_that_is_no_text_or_too_long_is_refused(raw: bytes) -> None:
    assert segments(raw) is None


def test_a_table_finds_the_pattern_with_its_names() -> None:
    assert TABLE.find(["queues"]) == (1, {})
    assert TABLE.find(["queues", "/"]) == (2, {"vhost": "/"})
    assert TABLE.find(["queues", "/", "q"]) == (3, {"vhost": "/", "name": "q"})
    assert TABLE.find(["queues", "/", "q", "bindings"]) == (4, {"vhost": "/", "name": "q"})
    assert TABLE.find(["queues", "/", "q", "other"]) is None
    assert TABLE.find(["users"]) is None
