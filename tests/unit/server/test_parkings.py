"""Parked half messages in the log."""

from __future__ import annotations

import pytest

from escrowmq.core.half.options import CheckOptions
from escrowmq.server.parkings import PERIOD_MS, Parkings
from tests.unit.core.half.half_site import HalfSite


def parked(site: HalfSite, *names: str) -> None:
    """Have half messages parked."""
    for name in names:
        site.store(name)
    site.after(10)
    site.after(10)


@pytest.mark.rule("HALF-6")
def test_a_flood_of_parked_half_messages_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    site = HalfSite()
    site.half.options.check = CheckOptions(10, 10, 1)
    site.join()
    Parkings(site.broker)
    parked(site, *(f"m{number}" for number in range(100)))
    assert len(caplog.messages) == 1
    assert "of topic 'orders' in vhost '/', message id 'm0', is parked: no producer of group 'shop'" in caplog.text
    site.after(PERIOD_MS)
    assert caplog.messages[1:] == [
        "99 more half messages in vhost '/' were parked in the last 10 s; see `escrowmq half list --state parked`"
    ]


def test_a_half_message_that_is_parked_later_has_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    site = HalfSite()
    site.half.options.check = CheckOptions(10, 10, 1)
    site.join()
    Parkings(site.broker)
    parked(site, "a")
    site.after(PERIOD_MS)
    parked(site, "b")
    assert len(caplog.messages) == 2
    assert "message id 'b', is parked" in caplog.messages[1]
