"""Half messages as protocols and operators see them."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.core.half.half_site import GROUP, TOPIC, USER, AskedProducer, HalfSite


def test_a_half_message_shows_what_was_stored() -> None:
    site = HalfSite()
    stored = site.store("m", b"body", producer=AskedProducer("client-1"))
    half = site.named("m")
    assert half.number == stored.number
    assert (half.vhost, half.topic, half.group, half.user, half.label) == ("/", TOPIC, GROUP, USER, "client-1")
    assert (half.message_id, half.checks, half.born, half.queue) == ("m", 0, site.now, site.target)
    assert (half.envelope.routing_key, half.content) == ("q", b"body")


def test_its_content_is_read_from_the_log_after_a_restart() -> None:
    site = HalfSite()
    site.store("m", b"body")
    site.sync()
    half = site.again().named("m")
    assert (half.content, half.envelope.routing_key) == (b"body", "q")


def test_the_content_of_a_decided_message_is_gone() -> None:
    site = HalfSite()
    site.store("m", b"body")
    half = site.named("m")
    site.roll_back("m")
    with pytest.raises(BrokerError, match="waits no longer") as caught:
        half.content  # noqa: B018 - reading it is the test
    assert caught.value.condition is Condition.NOT_FOUND


def test_a_deleted_destination_is_none() -> None:
    site = HalfSite()
    site.store("m")
    site.broker.directory.delete_queue(site.target)
    assert site.named("m").queue is None


def test_it_concerns_the_right_to_write_to_its_topic() -> None:
    site = HalfSite()
    site.store("m")
    assert list(site.named("m").concerns.names) == [("exchange", TOPIC, "write")]
    assert site.named("m").title.startswith("half message 0000000000000001")
