"""The progress of applications, and whom it belongs to."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.progress import application_key
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.core.xa_site import XaSite

APP = application_key("/", "app")


def decide(site: XaSite, epoch: int, user: str = "ann") -> None:
    site.coordinator.decide(b"g", 1, [], application=APP, epoch=epoch, user=user)
    site.turn()


def seen(site: XaSite) -> list[tuple[str, str, int, str]]:
    return [(each.vhost, each.application, each.epoch, each.user) for each in site.coordinator.progress.all()]


@pytest.mark.parametrize("snapshot", [False, True])
def test_owner_and_epoch_survive_a_restart(snapshot: bool) -> None:
    site = XaSite()
    decide(site, 3)
    decide(site, 4, "bob")
    if snapshot:
        site.snapshot()
    assert seen(site.restart()) == seen(site) == [("/", "app", 4, "ann")]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_new_owner_and_a_reset_survive_a_restart(snapshot: bool) -> None:
    site = XaSite()
    decide(site, 3)
    table = site.coordinator.progress
    table.assign(APP, "bob")
    table.assign(application_key("/", "new"), "eve")
    decide(site, 1)
    site.coordinator.decide(b"g", 1, [], application=application_key("/", "old"), epoch=1, user="ann")
    table.reset(application_key("/", "old"))
    site.turn()
    if snapshot:
        site.snapshot()
    assert seen(site.restart()) == seen(site) == [("/", "app", 3, "bob"), ("/", "new", -1, "eve")]
    assert site.restart().coordinator.progress.epoch(application_key("/", "new")) is None


def test_unknown_progress_cannot_be_reset() -> None:
    with pytest.raises(BrokerError, match="application 'app' in vhost '/' is not known") as refused:
        XaSite().coordinator.progress.reset(APP)
    assert refused.value.condition is Condition.NOT_FOUND
