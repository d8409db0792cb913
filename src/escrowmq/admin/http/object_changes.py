"""Changes of RabbitMQ's management API to exchanges, queues, bindings and messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.refusals import refusal
from escrowmq.admin.http.writing import DONE, ChangeAnswer, WriteRoute, Writing, made

_ACK_MODES: Final[Mapping[str, str]] = {
    "ack_requeue_true": "requeue",
    "reject_requeue_true": "requeue",
    "ack_requeue_false": "accept",
    "reject_requeue_false": "reject",
}
"""What becomes of the messages of a get."""


async def _put_exchange(writing: Writing) -> ChangeAnswer:
    return made(
        await writing.do(
            "exchange.declare",
            vhost=writing.names["vhost"],
            name=writing.name,
            type=writing.text("type", "direct"),
            durable=writing.flag("durable", True),
            auto_delete=writing.flag("auto_delete", False),
            internal=writing.flag("internal", False),
            arguments=writing.table("arguments"),
        )
    )


async def _delete_exchange(writing: Writing) -> ChangeAnswer:
    vhost, if_unused = writing.names["vhost"], writing.asked("if-unused")
    await writing.do("exchange.delete", vhost=vhost, name=writing.name, if_unused=if_unused)
    return DONE


async def _put_queue(writing: Writing) -> ChangeAnswer:
    return made(
        await writing.do(
            "queue.declare",
            vhost=writing.names["vhost"],
            name=writing.names["name"],
            durable=writing.flag("durable", True),
            auto_delete=writing.flag("auto_delete", False),
            arguments=writing.table("arguments"),
        )
    )


async def _delete_queue(writing: Writing) -> ChangeAnswer:
    if_unused, if_empty = writing.asked("if-unused"), writing.asked("if-empty")
    await writing.do("queue.delete", **writing.names, if_unused=if_unused, if_empty=if_empty)
    return DONE


async def _purge_queue(writing: Writing) -> ChangeAnswer:
    await writing.do("queue.purge", **writing.names)
    return DONE


def _ends(writing: Writing, kind: str) -> dict[str, str]:
    names = writing.names
    source = "" if names["source"] == "amq.default" else names["source"]
    return {
        "vhost": names["vhost"],
        "source": source,
        "destination": names["destination"],
        "destination_type": kind,
    }


def _bind(kind: str) -> Callable[[Writing], Awaitable[ChangeAnswer]]:
    async def change(writing: Writing) -> ChangeAnswer:
        ends, key, arguments = _ends(writing, kind), writing.text("routing_key", ""), writing.table("arguments")
        properties_key = await writing.do("binding.add", **ends, routing_key=key, arguments=arguments)
        # As in RabbitMQ, relative to the path of the request, and escaped once more than the key itself.
        return ChangeAnswer(201, location=f"{quote(ends['destination'], safe='')}/{quote(properties_key, safe='~')}")

    return change


def _unbind(kind: str) -> Callable[[Writing], Awaitable[ChangeAnswer]]:
    async def change(writing: Writing) -> ChangeAnswer:
        await writing.do("binding.delete", **_ends(writing, kind), properties_key=writing.names["properties"])
        return DONE

    return change


async def _publish(writing: Writing) -> ChangeAnswer:
    """Publish a message. A missing permission is answered with 400 here, as in RabbitMQ."""
    try:
        routed = await writing.do(
            "message.publish",
            vhost=writing.names["vhost"],
            exchange=writing.name,
            routing_key=writing.text("routing_key"),
            properties=writing.table("properties"),
            payload=writing.text("payload"),
            payload_encoding=writing.text("payload_encoding"),
        )
    except BrokerRefused as refused:
        found = refusal(refused, publishing=True)
        if found.status != 400:
            raise
        raise BadQuery(found.reason) from refused
    return ChangeAnswer(200, {"routed": routed})


async def _get(writing: Writing) -> ChangeAnswer:
    mode = writing.text("ackmode", "ack_requeue_true")
    if mode not in _ACK_MODES:
        raise BadQuery(f"ackmode: one of {', '.join(_ACK_MODES)} is needed")
    given: dict[str, Any] = {} if "truncate" not in writing.body else {"truncate": writing.number("truncate")}
    found = await writing.do(
        "message.get",
        vhost=writing.names["vhost"],
        queue=writing.names["name"],
        count=writing.number("count"),
        disposition=_ACK_MODES[mode],
        encoding=writing.text("encoding"),
        **given,
    )
    for row in found:
        row["properties"] = row["properties"] or []
    return ChangeAnswer(200, found)


OBJECT_CHANGES: Final[Mapping[str, Mapping[str, WriteRoute]]] = {
    "exchanges/{vhost}/{name}": {"PUT": WriteRoute(_put_exchange), "DELETE": WriteRoute(_delete_exchange)},
    "exchanges/{vhost}/{name}/publish": {"POST": WriteRoute(_publish)},
    "queues/{vhost}/{name}": {"PUT": WriteRoute(_put_queue), "DELETE": WriteRoute(_delete_queue)},
    "queues/{vhost}/{name}/contents": {"DELETE": WriteRoute(_purge_queue)},
    "queues/{vhost}/{name}/get": {"POST": WriteRoute(_get)},
    "bindings/{vhost}/e/{source}/q/{destination}": {"POST": WriteRoute(_bind("queue"))},
    "bindings/{vhost}/e/{source}/e/{destination}": {"POST": WriteRoute(_bind("exchange"))},
    "bindings/{vhost}/e/{source}/q/{destination}/{properties}": {"DELETE": WriteRoute(_unbind("queue"))},
    "bindings/{vhost}/e/{source}/e/{destination}/{properties}": {"DELETE": WriteRoute(_unbind("exchange"))},
}
"""The changes by path below `/api/` and by method."""
