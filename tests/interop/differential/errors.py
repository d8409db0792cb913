"""Errors that close a channel or a connection, and their texts."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pika

from tests.interop.differential.script import Script


def not_found(s: Script) -> None:
    s.step("declare passively", lambda ch: ch.queue_declare("errors.none", passive=True))
    s.step("declare passively, no name", lambda ch: ch.queue_declare("", passive=True))
    s.step("exchange passively", lambda ch: ch.exchange_declare("errors.none", passive=True))
    s.step("bind queue", lambda ch: ch.queue_bind("errors.none", "amq.direct", "k"))
    s.step("bind queue, no name", lambda ch: ch.queue_bind("", "amq.direct", "k"))
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.step("bind to no exchange", lambda ch: ch.queue_bind(s.queue, "errors.none", "k"))
    s.step("unbind from no exchange", lambda ch: ch.queue_unbind(s.queue, "errors.none", "k"))
    s.step("unbind what is not bound", lambda ch: ch.queue_unbind(s.queue, "amq.direct", "k"))
    s.step("unbind no queue", lambda ch: ch.queue_unbind("errors.none", "amq.direct", "k"))
    s.step("bind exchange, no source", lambda ch: ch.exchange_bind("amq.fanout", "errors.none"))
    s.step("bind exchange, no destination", lambda ch: ch.exchange_bind("errors.none", "amq.fanout"))
    s.step("unbind exchange", lambda ch: ch.exchange_unbind("amq.fanout", "errors.none"))
    s.step("consume", lambda ch: ch.basic_consume("errors.none", print))
    s.step("consume, no name", lambda ch: ch.basic_consume("", print))
    s.step("get", lambda ch: ch.basic_get("errors.none"))
    s.step("purge", lambda ch: ch.queue_purge("errors.none"))
    s.step("delete queue", lambda ch: ch.queue_delete("errors.none"))
    s.step("delete exchange", lambda ch: ch.exchange_delete("errors.none"))
    s.step("publish", lambda ch: ch.basic_publish("errors.none", "k", b""))
    s.step("publish, mandatory", lambda ch: ch.basic_publish("errors.none", "k", b"", mandatory=True))
    s.step("cancel", lambda ch: ch.basic_cancel("errors.none"))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def locked(s: Script) -> None:
    owner = s.connect().channel()
    owner.queue_declare(s.queue, exclusive=True)
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.step("declare exclusively", lambda ch: ch.queue_declare(s.queue, exclusive=True))
    s.step("declare passively", lambda ch: ch.queue_declare(s.queue, passive=True))
    s.step("bind", lambda ch: ch.queue_bind(s.queue, "amq.direct", "k"))
    s.step("unbind", lambda ch: ch.queue_unbind(s.queue, "amq.direct", "k"))
    s.step("consume", lambda ch: ch.basic_consume(s.queue, print))
    s.step("get", lambda ch: ch.basic_get(s.queue))
    s.step("purge", lambda ch: ch.queue_purge(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    s.step("publish", lambda ch: ch.basic_publish("", s.queue, b"anybody may"))
    s.say("arrived", owner.basic_get(s.queue, auto_ack=True)[2])
    s.step("exclusive consumer", lambda ch: ch.queue_declare(s.queue + "2"))
    owner.basic_consume(s.queue + "2", print, exclusive=True)
    s.step("second consumer", lambda ch: ch.basic_consume(s.queue + "2", print))
    s.step("second, exclusive", lambda ch: ch.basic_consume(s.queue + "2", print, exclusive=True))
    s.step("get", lambda ch: ch.basic_get(s.queue + "2"))
    s.step("delete used", lambda ch: ch.queue_delete(s.queue + "2", if_unused=True))
    s.step("purge", lambda ch: ch.queue_purge(s.queue + "2"))
    s.step("delete", lambda ch: ch.queue_delete(s.queue + "2"))


def refused(s: Script) -> None:
    s.step("declare amq. queue", lambda ch: ch.queue_declare("amq.mine"))
    s.step("declare amq. queue passively", lambda ch: ch.queue_declare("amq.mine", passive=True))
    s.step("declare amq. exchange", lambda ch: ch.exchange_declare("amq.mine"))
    s.step("declare amq.direct as it is", lambda ch: ch.exchange_declare("amq.direct", "direct", durable=True))
    s.step("declare amq.direct otherwise", lambda ch: ch.exchange_declare("amq.direct", "fanout", durable=True))
    s.step("declare amq.direct passively", lambda ch: ch.exchange_declare("amq.direct", passive=True))
    s.step("delete amq.direct", lambda ch: ch.exchange_delete("amq.direct"))
    s.step("declare the default exchange", lambda ch: ch.exchange_declare("", "direct", durable=True))
    s.step("the default exchange passively", lambda ch: ch.exchange_declare("", passive=True))
    s.step("delete the default exchange", lambda ch: ch.exchange_delete(""))
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.step("bind to the default exchange", lambda ch: ch.queue_bind(s.queue, "", "k"))
    s.step("unbind from the default exchange", lambda ch: ch.queue_unbind(s.queue, "", s.queue))
    s.step("bind the default exchange", lambda ch: ch.exchange_bind("amq.fanout", ""))
    s.step("bind an exchange to the default exchange", lambda ch: ch.exchange_bind("", "amq.fanout"))
    s.step("internal", lambda ch: ch.exchange_declare(s.exchange, internal=True))
    s.step("publish to internal", lambda ch: ch.basic_publish(s.exchange, "k", b""))
    s.step("type unknown", lambda ch: ch.exchange_declare(s.exchange + "2", "errors.type"))
    s.step(
        "alternate exchange that is not there",
        lambda ch: ch.exchange_declare(s.exchange + "3", arguments={"alternate-exchange": "errors.none"}),
    )
    s.step(
        "alternate exchange of wrong type",
        lambda ch: ch.exchange_declare(s.exchange + "4", arguments={"alternate-exchange": 5}),
    )
    s.step(
        "user-id of another", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(user_id="somebody"))
    )
    s.step("user-id", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(user_id="guest")))
    for name in (s.exchange, s.exchange + "2", s.exchange + "3"):
        s.fresh().exchange_delete(name)
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def inequivalent(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue, durable=True, arguments={"x-message-ttl": 60000}))
    declare = partial(_declare, s.queue)
    s.step("same", declare(durable=True, arguments={"x-message-ttl": 60000}))
    s.step("transient", declare(durable=False, arguments={"x-message-ttl": 60000}))
    s.step("auto-delete", declare(durable=True, auto_delete=True, arguments={"x-message-ttl": 60000}))
    s.step("exclusive", declare(durable=True, exclusive=True, arguments={"x-message-ttl": 60000}))
    s.step("other ttl", declare(durable=True, arguments={"x-message-ttl": 60001}))
    s.step("ttl of another type", declare(durable=True, arguments={"x-message-ttl": Decimal(60000)}))
    s.step("no ttl", declare(durable=True))
    s.step("one more", declare(durable=True, arguments={"x-message-ttl": 60000, "x-max-length": 5}))
    s.step("one more, unknown", declare(durable=True, arguments={"x-message-ttl": 60000, "x-mine": 5}))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    pairs: list[tuple[str, Any, Any]] = [
        ("x-expires", 60000, 60001),
        ("x-max-length", 5, 6),
        ("x-max-length-bytes", 5, 6),
        ("x-dead-letter-exchange", "a", "b"),
        ("x-max-priority", 5, 6),
        ("x-overflow", "drop-head", "reject-publish"),
        ("x-single-active-consumer", True, False),
        ("x-queue-mode", "lazy", "default"),
        ("x-queue-type", "classic", "quorum"),
        ("x-mine", 1, 2),
    ]
    for name, one, other in pairs:
        s.step(f"{name} {one}", declare(durable=True, arguments={name: one}))
        s.step(f"{name} {other}", declare(durable=True, arguments={name: other}))
        s.step(f"no {name}", declare(durable=True))
        s.step("delete", lambda ch: ch.queue_delete(s.queue))
        s.step("declare without", declare(durable=True))
        s.step(f"{name} {one}", declare(durable=True, arguments={name: one}))
        s.step("delete", lambda ch: ch.queue_delete(s.queue))
    exchange = partial(_exchange, s.exchange)
    s.step("declare", exchange("direct", durable=True, arguments={"alternate-exchange": "a"}))
    s.step("same", exchange("direct", durable=True, arguments={"alternate-exchange": "a"}))
    s.step("type", exchange("fanout", durable=True, arguments={"alternate-exchange": "a"}))
    s.step("transient", exchange("direct", durable=False, arguments={"alternate-exchange": "a"}))
    s.step("auto-delete", exchange("direct", durable=True, auto_delete=True, arguments={"alternate-exchange": "a"}))
    s.step("internal", exchange("direct", durable=True, internal=True, arguments={"alternate-exchange": "a"}))
    s.step("other alternate", exchange("direct", durable=True, arguments={"alternate-exchange": "b"}))
    s.step("no alternate", exchange("direct", durable=True))
    s.step("argument unknown", exchange("direct", durable=True, arguments={"alternate-exchange": "a", "x-mine": 1}))
    s.step("delete", lambda ch: ch.exchange_delete(s.exchange))


def _declare(queue: str, **how: Any) -> Any:
    return lambda ch: ch.queue_declare(queue, **how)


def _exchange(name: str, kind: str, **how: Any) -> Any:
    return lambda ch: ch.exchange_declare(name, kind, **how)


def in_use(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, "m")
    s.step("delete if empty", lambda ch: ch.queue_delete(s.queue, if_empty=True))
    s.step("delete if unused", lambda ch: ch.queue_delete(s.queue, if_unused=True))
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.step("exchange", lambda ch: ch.exchange_declare(s.exchange))
    s.step("bind", lambda ch: ch.queue_bind(s.queue, s.exchange, "k"))
    s.step("delete used exchange", lambda ch: ch.exchange_delete(s.exchange, if_unused=True))
    s.step("unbind", lambda ch: ch.queue_unbind(s.queue, s.exchange, "k"))
    s.step("bind as a source", lambda ch: ch.exchange_bind("amq.fanout", s.exchange, "k"))
    s.step("delete used exchange", lambda ch: ch.exchange_delete(s.exchange, if_unused=True))
    s.step("unbind", lambda ch: ch.exchange_unbind("amq.fanout", s.exchange, "k"))
    s.step("bind as a destination", lambda ch: ch.exchange_bind(s.exchange, "amq.fanout", "k"))
    s.step("delete exchange", lambda ch: ch.exchange_delete(s.exchange, if_unused=True))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def settlements(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, "1", "2", "3")
    s.step("ack of nothing", lambda ch: ch.basic_ack(1))
    s.step("ack of 0", lambda ch: ch.basic_ack(0))
    s.step("ack of all of nothing", lambda ch: ch.basic_ack(0, multiple=True))
    s.step("ack up to what is not there", lambda ch: ch.basic_ack(3, multiple=True))
    s.step("nack of nothing", lambda ch: ch.basic_nack(1))
    s.step("nack of all of nothing", lambda ch: ch.basic_nack(0, multiple=True))
    s.step("reject of nothing", lambda ch: ch.basic_reject(7))

    def twice(ch: Any) -> None:
        method, _, _ = ch.basic_get(s.queue)
        ch.basic_ack(method.delivery_tag)
        ch.basic_ack(method.delivery_tag)

    def of_auto_ack(ch: Any) -> None:
        method, _, _ = ch.basic_get(s.queue, auto_ack=True)
        ch.basic_ack(method.delivery_tag)

    s.step("ack twice", twice)
    s.say("left", s.ready(s.queue))
    s.step("ack of an auto-acked one", of_auto_ack)
    s.say("left", s.ready(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def _publish(queue: str, properties: Any, ch: Any) -> None:
    ch.basic_publish("", queue, b"", properties)


def modes(s: Script) -> None:
    s.step("commit without select", lambda ch: ch.tx_commit())
    s.step("rollback without select", lambda ch: ch.tx_rollback())
    s.step("select", lambda ch: ch.tx_select())
    s.step("select again", lambda ch: ch.tx_select())
    s.step("confirm after tx", lambda ch: ch.confirm_delivery())
    s.step("confirm", lambda ch: ch.confirm_delivery())
    s.step("tx after confirm", lambda ch: ch.tx_select())
    s.step("prefetch size", lambda ch: ch.basic_qos(prefetch_size=1))
    s.step("declare", lambda ch: ch.queue_declare(s.queue))

    def same_tag(ch: Any) -> None:
        ch.basic_consume(s.queue, print, consumer_tag="t")
        ch._impl._consumers.pop("t", None)  # pika itself would refuse
        ch._consumer_infos.pop("t", None)
        ch.basic_consume(s.queue, print, consumer_tag="t")

    s.step("consumer tag twice", same_tag)
    s.step("priority of a consumer", lambda ch: ch.basic_consume(s.queue, print, arguments={"x-priority": "high"}))
    s.step(
        "expiration no number", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(expiration="soon"))
    )
    s.step("expiration negative", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(expiration="-1")))
    s.step("expiration empty", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(expiration="")))
    s.step(
        "expiration huge",
        lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(expiration="99999999999999999999")),
    )
    for expiration in ("4294967295", "4294967296", "315360000000", "315360000001"):
        properties = pika.BasicProperties(expiration=expiration)
        s.step(f"expiration {expiration}", partial(_publish, s.queue, properties))
    s.step("CC is no list", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(headers={"CC": "a"})))
    s.step("BCC of numbers", lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(headers={"BCC": [1]})))
    s.step(
        "reply-to without consumer",
        lambda ch: ch.basic_publish("", s.queue, b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")),
    )
    s.step("reply consumer with acks", lambda ch: ch.basic_consume("amq.rabbitmq.reply-to", print))
    s.step("recover", lambda ch: ch.basic_recover(requeue=True))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


SCENARIOS = (not_found, locked, refused, inequivalent, in_use, settlements, modes)
