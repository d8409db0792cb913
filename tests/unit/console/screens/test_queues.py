"""Queues on the console: neither the list nor the page of one makes the broker list all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.admin.test_delayed import Bench
from tests.unit.admin.test_groups import Bench as GroupBench
from tests.unit.console.sites import Browser, notices
from tests.unit.wire.amqp091.clients import pair


def browser() -> tuple[Browser, list[str]]:
    """Return a browser at a broker with two queues, and the operations that it asks for."""
    server, client = pair()
    for name in ("short", "long"):
        client.declare(1, name)
    client.publish(1, "long", b"1", b"2")
    found, asked = Browser(server), list[str]()
    ask = found.broker.ask

    async def noted(command: str, **arguments: Any) -> Any:
        asked.append(command)
        return await ask(command, **arguments)

    found.broker.ask = noted  # type: ignore[method-assign]
    return found, asked


def test_the_longest_queues_come_first() -> None:
    text = browser()[0].text("/console/queues")
    assert text.index(">long<") < text.index(">short<")


@pytest.mark.parametrize("page", ["/console/queues", "/console/queues/%2F/long"])
def test_no_page_asks_for_the_rows_of_all_queues(page: str) -> None:
    site, asked = browser()
    assert "long" in site.text(page)
    assert not {"queue.list", "counter.queues"} & set(asked)


def test_a_queue_is_shown_with_its_counters() -> None:
    site, asked = browser()
    assert "There is no queue" not in site.text("/console/queues/%2F/long")
    assert {"queue.show", "counter.queue"} <= set(asked)


def test_a_queue_that_does_not_exist_is_not_shown() -> None:
    assert "There is no queue" in browser()[0].text("/console/queues/%2F/none")


def test_delayed_messages_are_shown_with_their_times() -> None:
    bench = Bench()
    bench.send(3600, b"seven pears")
    site = Browser(bench.server)
    assert "Delayed in virtual host /" in site.text("/console/queues")
    text = site.text("/console/queues/%2F/amq.delayed")
    assert "seven pears" in text
    assert "<dt>Due (UTC)</dt>" in text
    bench.client.declare(1, "q")
    assert '<a href="/console/queues/%2F/amq.delayed">1 delayed message</a>' in site.text("/console/queues/%2F/q")


def test_a_user_who_only_watches_sees_no_delayed_message() -> None:
    bench = Bench()
    bench.send(3600, b"seven pears")
    text = Browser(bench.server, "watcher").text("/console/queues/%2F/amq.delayed")
    assert "seven pears" not in text
    assert "<dd>1</dd>" in text


def test_a_virtual_host_without_delayed_messages_says_so() -> None:
    assert "No message is delayed." in browser()[0].text("/console/queues/%2F/amq.delayed")


def topic_site() -> Browser:
    """Return a browser at a broker with topic `t` and group `g`, which has a lag of two."""
    return Browser(GroupBench().server)


def test_a_topic_is_shown_with_its_streams_published_to_and_deleted() -> None:
    site = topic_site()
    assert "t-1" in site.text("/console/topics/%2F/t")
    assert "t" in site.text("/console/topics")
    done = site.fill("/console/topics/%2F/t", "message-publish", routing_key="tag", payload="p", properties="{}")
    assert notices(done) == [("done", "The message was published, and reached a queue.")]
    assert ">4<" in site.text("/console/topics")
    done = site.fill("/console/topics/%2F/t", "topic-delete", typed="t")
    assert notices(done) == [("done", "Topic t was deleted.")]
    assert site.open("/console/topics/%2F/t").status == 404


def test_a_group_is_shown_with_its_lag_reset_and_deleted() -> None:
    site = topic_site()
    assert "<dt>Lag</dt><dd>2</dd>" in site.text("/console/groups/%2F/g")
    done = site.fill("/console/groups/%2F/g", "group-reset", topic="t", to="next", typed="g")
    assert notices(done) == [("done", "The progress of group g in topic t was set to next.")]
    assert "<dt>Lag</dt><dd>0</dd>" in site.text("/console/groups/%2F/g")
    done = site.fill("/console/groups/%2F/g", "group-delete", typed="g")
    assert notices(done) == [("done", "Group g was deleted.")]
    assert site.open("/console/groups/%2F/g").status == 404
