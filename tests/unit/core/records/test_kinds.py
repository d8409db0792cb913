"""The numbers of record kinds."""

from __future__ import annotations

from escrowmq.core.records.kinds import Kind


def test_kinds_are_part_of_the_journals_format() -> None:
    assert {kind.name: int(kind) for kind in Kind if kind < 16} == {
        "PUBLISH": 1,
        "SETTLE": 2,
        "COMMIT": 3,
        "RELOCATE": 4,
        "RETURNED": 5,
        "QUEUE_STATE": 6,
        "PAGE": 7,
        "DELIVERED": 8,
        "READDRESSED": 9,
        "PREPARE": 10,
        "PLACED": 11,
        "ROLLBACK": 12,
        "HEURISTIC": 13,
        "FORGET": 14,
        "DECIDE": 15,
    }
