"""A repeated epoch has the same global transaction; each attempt at a task has branches of its own."""

from __future__ import annotations

import pytest

from escrowmq.client import Xid
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.identity import FORMAT_ID, SETTLE, Epoch, application_of

QUERY = "0b1f7a9e-5a4e-4a3c-9d4a-2d3c0a1b2c3d"


def test_an_epoch_is_a_global_transaction() -> None:
    epoch = Epoch(QUERY, 12)
    assert epoch.gtrid == f"{QUERY}#12".encode()
    assert epoch.settle == Xid(FORMAT_ID, epoch.gtrid, SETTLE)
    assert epoch.branch(b"0.x.1").bqual == b"0.x.1"
    again = Epoch(QUERY, 12, run="again")
    assert again.gtrid == epoch.gtrid
    assert again.settle != epoch.settle


@pytest.mark.parametrize("application", [f"{QUERY}/{'s' * 150}", "ü" * 40, "a#1"])
def test_long_names_are_shortened_and_stay_unique(application: str) -> None:
    epoch = Epoch(application, 1 << 60)
    assert len(epoch.gtrid) <= 64
    assert epoch.gtrid != Epoch(application + "x", 1 << 60).gtrid
    assert epoch.gtrid != Epoch(application, (1 << 60) + 1).gtrid
    assert epoch.stale(Epoch(application, 1).settle)


def test_jobs_that_run_only_once_have_different_transactions() -> None:
    assert Epoch("", 0, "one").gtrid != Epoch("", 0, "two").gtrid


def test_a_query_claims_the_epochs_of_an_application_with_another_name() -> None:
    assert Epoch(QUERY, 12).claim is None
    assert Epoch("job/late", 12, query=QUERY).claim == Epoch(f"job/late@{QUERY}", 12)


def test_branches_of_decided_epochs_are_stale() -> None:
    epoch = Epoch(QUERY, 12)
    assert epoch.stale(Epoch(QUERY, 12).branch(b"0"))
    assert epoch.stale(Epoch(QUERY, 3).branch(b"0"))
    assert not epoch.stale(Epoch(QUERY, 13).branch(b"0"))
    assert not epoch.stale(Epoch(QUERY + "/sink", 3).branch(b"0"))
    assert not epoch.stale(Xid(1, f"{QUERY}#3".encode(), b"0"))
    assert not epoch.stale(Xid(FORMAT_ID, f"{QUERY}#x".encode(), b"0"))


def test_an_application_is_named_after_its_options_or_its_query() -> None:
    assert application_of(QUERY, None, None) == QUERY
    assert application_of(QUERY, "job", None) == "job"
    assert application_of(QUERY, None, "late") == f"{QUERY}/late"
    with pytest.raises(EscrowSparkError, match="together may have at most 200 bytes"):
        application_of(QUERY, "a" * 150, "b" * 50)
