"""Names that at most one connection holds."""

from __future__ import annotations

from escrowmq.core.access.claims import Claims


def test_a_name_has_one_holder_in_each_virtual_host() -> None:
    claims, one, two = Claims(), object(), object()
    assert claims.take("/", "a", one)
    assert claims.take("/", "a", one)
    assert not claims.take("/", "a", two)
    assert claims.take("other", "a", two)
    claims.release("/", "a", two)
    assert not claims.take("/", "a", two), "only the holder frees it"
    claims.release("/", "a", one)
    assert claims.take("/", "a", two)
