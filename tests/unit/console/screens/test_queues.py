"""Queues on the console: neither the list nor the page of one makes the broker list all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.console.sites import Browser
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
