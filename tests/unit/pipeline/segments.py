"""Makes a broker's journal long enough that a snapshot deletes segments."""

from __future__ import annotations

from tests.unit.core.site import Site


def fill_segments(site: Site) -> None:
    """Append messages that do not stay until their segments are full."""
    for _ in range(20):
        site.publish("other", b"passing" * 10)
        site.turn()
    site.broker.directory.purge(site.vhost.queue("other"))
    site.turn()
