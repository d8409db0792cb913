"""Queues that take only some of the messages that are routed to them."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.admission import MessageFilter, filter_of
from tests.unit.core.site import Site


def beginning(value: object) -> MessageFilter:
    """The filter `x-beginning`: messages that begin with its value."""
    if not isinstance(value, bytes):
        raise BrokerError(Condition.PRECONDITION_FAILED, "no bytes")
    return lambda _, content: content.startswith(value)


def filtering(site: Site | None = None) -> Site:
    site = site or Site()
    site.broker.admissions["x-beginning"] = beginning
    return site


@pytest.fixture
def site() -> Site:
    site = filtering()
    for name, arguments in (("some", {"x-beginning": b"a"}), ("all", {})):
        site.queue(name, arguments=arguments)
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    return site


def route(site: Site, content: bytes, exchange: str = "amq.fanout", key: str = "") -> set[str]:
    return {queue.name for queue in site.broker.engine.route(site.vhost, Envelope(exchange, key), content)}


def test_a_filter_is_made_of_the_argument() -> None:
    admissions = {"x-beginning": beginning}
    assert filter_of({}, admissions) is None
    found = filter_of({"x-beginning": b"a"}, admissions)
    assert found is not None
    assert [found(Envelope("", ""), content) for content in (b"abc", b"bc")] == [True, False]


def test_a_message_must_pass_all_filters_of_a_queue() -> None:
    admissions = {"x-beginning": beginning, "x-short": lambda limit: lambda _, content: len(content) <= limit}
    admits = filter_of({"x-beginning": b"a", "x-short": 2}, admissions)
    assert admits is not None
    assert [content for content in (b"az", b"abc", b"z") if admits(Envelope("", "q"), content)] == [b"az"]


def test_a_queue_with_an_invalid_filter_is_not_declared(site: Site) -> None:
    with pytest.raises(BrokerError, match="no bytes"):
        site.queue("other", arguments={"x-beginning": 5})
    assert "other" not in site.vhost.queues


def test_messages_that_a_queue_does_not_want_are_not_routed_to_it(site: Site) -> None:
    assert site.vhost.needs_content("amq.fanout")
    assert not site.vhost.needs_headers("amq.fanout")
    assert route(site, b"abc") == {"some", "all"}
    assert route(site, b"bc") == {"all"}


def test_filters_count_at_any_exchange_of_the_route(site: Site) -> None:
    directory = site.broker.directory
    directory.bind_exchange(site.vhost, "amq.direct", "amq.fanout", "k")
    assert site.vhost.needs_content("amq.direct")
    assert route(site, b"bc", "amq.direct", "k") == {"all"}
    directory.delete_queue(site.vhost.queue("some"))
    assert not site.vhost.needs_content("amq.direct")


def test_messages_that_are_published_to_a_queue_by_name_are_not_filtered(site: Site) -> None:
    assert not site.vhost.needs_content("")
    assert route(site, b"bc", "", "some") == {"some"}


def test_dead_letters_are_filtered(site: Site) -> None:
    queue = site.queue("dying", arguments={"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 5})
    site.publish("dying", b"abc", b"bc")
    site.after(10)
    assert queue.ready == 0
    assert [site.vhost.queue(name).ready for name in ("some", "all")] == [1, 2]
