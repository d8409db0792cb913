"""What is unsettled by connection, link and bulk reader."""

from __future__ import annotations

from tests.unit.admin.processes import FakeConnection
from tests.unit.console.sites import Browser, notices


def test_the_unsettled_deliveries_of_a_connection_are_summed_with_the_oldest_age() -> None:
    site = Browser()
    for address, channels in (("10.0.0.1:5", 2), ("10.0.0.2:6", 1), ("10.0.0.3:7", 0)):
        site.broker.process.connections[FakeConnection(address, channels=channels)] = None
    text = site.text("/console/unsettled")
    row = text.partition("10.0.0.1:5</a>")[2].partition("</tr>")[0]
    assert '<td class="n" data-label="Unsettled">3</td><td class="n" data-label="Oldest">2 s</td>' in row
    assert text.index("10.0.0.1:5</a>") < text.index("10.0.0.2:6</a>")
    assert "10.0.0.3:7" not in text


def test_a_connection_is_closed_from_the_list() -> None:
    site, connection = Browser(), FakeConnection("10.0.0.1:5", channels=1)
    site.broker.process.connections[connection] = None
    done = site.fill("/console/unsettled", "connection-close", reason="it is stuck")
    assert (notices(done)[0][0], connection.reasons) == ("done", ["it is stuck"])


def test_the_lists_of_links_and_of_bulk_readers_open() -> None:
    site = Browser()
    assert "There is no link." in site.text("/console/unsettled?list=links")
    assert "No bulk reader holds anything." in site.text("/console/unsettled?list=holds")
    assert "No client has unsettled deliveries." in site.text("/console/unsettled?list=other")
