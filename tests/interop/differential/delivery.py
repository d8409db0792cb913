"""Delivery and settlement: order, redelivery, prefetch, consumer priorities, cancellation, transactions."""

from __future__ import annotations

from typing import Any

import pika

from tests.interop.differential.script import Script


class Collector:
    """Collects the messages of a consumer. `bodies` marks redelivered ones with `!`."""

    def __init__(self, name: str = "", *, ack: bool = False) -> None:
        self.name = name
        self.bodies: list[str] = []
        self.tags: list[int] = []
        self.messages: list[tuple[Any, Any]] = []
        self._ack = ack

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body.decode() + ("!" if method.redelivered else ""))
        self.tags.append(method.delivery_tag)
        self.messages.append((method, properties))
        if self._ack:
            channel.basic_ack(method.delivery_tag)


def requeue(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, *"12345")
    ch = s.fresh()
    got = [ch.basic_get(s.queue)[0] for _ in range(3)]
    s.say("counts", [method.message_count for method in got])
    ch.basic_nack(got[1].delivery_tag, requeue=True)
    ch.basic_reject(got[0].delivery_tag, requeue=True)
    s.say("ready", s.ready(s.queue))
    s.say("order", s.drain(s.queue))
    ch.basic_reject(got[2].delivery_tag, requeue=False)
    s.say("rejected", s.drain(s.queue))
    s.publish(s.queue, *"abc")
    held = s.fresh()
    held.basic_get(s.queue)
    held.basic_get(s.queue)
    held.basic_recover(requeue=True)
    s.say("recovered", s.drain(s.queue))
    s.publish(s.queue, *"xyz")
    other = s.connect()
    collector = Collector()
    channel = other.channel()
    channel.basic_consume(s.queue, collector)
    while len(collector.bodies) < 3:
        other.process_data_events(0.05)
    channel.basic_ack(collector.tags[0])
    other.close()
    s.wait(lambda: s.ready(s.queue) == 2, "both come back")
    s.say("after a lost connection", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def prefetch(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, *"123456789")
    ch = s.fresh()
    ch.basic_qos(prefetch_count=2)
    first, second = Collector(), Collector()
    ch.basic_consume(s.queue, first)
    s.wait(lambda: len(first.bodies) == 2, "two")
    s.say("ready", s.ready(s.queue))
    ch.basic_qos(prefetch_count=3)
    ch.basic_consume(s.queue, second)
    s.wait(lambda: len(second.bodies) == 3, "three")
    s.say("first", first.bodies)
    s.say("second", second.bodies)
    ch.basic_ack(first.tags[0])
    s.wait(lambda: len(first.bodies) == 3, "one more")
    s.say("first", first.bodies)
    ch.basic_ack(0, multiple=True)
    s.wait(lambda: len(first.bodies) + len(second.bodies) == 9, "all")
    ch.basic_ack(0, multiple=True)
    ch.close()
    s.publish(s.queue, *"123456789")
    shared = s.fresh()
    shared.basic_qos(prefetch_count=3, global_qos=True)
    first, second = Collector(), Collector()
    shared.basic_consume(s.queue, first)
    shared.basic_consume(s.queue, second)
    s.wait(lambda: len(first.bodies) + len(second.bodies) == 3, "three together")
    s.say("ready", s.ready(s.queue))
    shared.basic_ack(0, multiple=True)
    s.wait(lambda: len(first.bodies) + len(second.bodies) == 6, "three more")
    s.say("ready", s.ready(s.queue))
    shared.close()
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def consumers(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    ch = s.fresh()
    low, high = Collector(), Collector()
    ch.basic_qos(prefetch_count=2)
    ch.basic_consume(s.queue, low)
    ch.basic_consume(s.queue, high, arguments={"x-priority": 5})
    s.publish(s.queue, *"12345")
    s.wait(lambda: len(low.bodies) + len(high.bodies) == 4, "four")
    s.say("high", high.bodies)
    s.say("low", low.bodies)
    s.say("counts", s.fresh().queue_declare(s.queue, passive=True))
    ch.close()
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    s.step("single", lambda ch: ch.queue_declare(s.queue, arguments={"x-single-active-consumer": True}))
    ch = s.fresh()
    one, two = Collector(ack=True), Collector(ack=True)
    ch.basic_consume(s.queue, one, consumer_tag="one")
    ch.basic_consume(s.queue, two, consumer_tag="two")
    s.step("exclusive", lambda ch: ch.basic_consume(s.queue, print, exclusive=True))
    s.publish(s.queue, *"123")
    s.wait(lambda: len(one.bodies) == 3, "all to one")
    ch.basic_cancel("one")
    s.publish(s.queue, *"45")
    s.wait(lambda: len(two.bodies) == 2, "the next takes over")
    s.say("one", one.bodies)
    s.say("two", two.bodies)
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def cancellation(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    ch = s.fresh()
    seen: list[str] = []
    ch.add_on_cancel_callback(lambda frame: seen.append(frame.method.consumer_tag))
    ch.basic_consume(s.queue, print, consumer_tag="t")
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    s.wait(lambda: seen, "basic.cancel")
    s.say("cancelled", seen)
    s.say("channel open", ch.is_open)
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, *"12")
    collector = Collector()
    ch = s.fresh()
    ch.basic_consume(s.queue, collector, consumer_tag="t")
    s.wait(lambda: len(collector.bodies) == 2, "both")
    ch.basic_cancel("t")
    s.say("still held", s.ready(s.queue))
    ch.basic_ack(0, multiple=True)
    s.say("left", s.ready(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def returns(s: Script) -> None:
    ch = s.fresh()
    ch.confirm_delivery()
    try:
        ch.basic_publish(
            "", "delivery.none", b"m", pika.BasicProperties(message_id="1", headers={"a": 1}), mandatory=True
        )
    except pika.exceptions.UnroutableError as error:
        (returned,) = error.messages
        s.say("returned", (returned.method, returned.properties, returned.body))
    ch.basic_publish("", "delivery.none", b"m")
    s.say("not mandatory", "confirmed")
    s.step(
        "declare", lambda ch: ch.queue_declare(s.queue, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    )
    ch.basic_publish("", s.queue, b"1")
    try:
        ch.basic_publish("", s.queue, b"2")
    except pika.exceptions.NackError as error:
        s.say("nacked", len(error.messages))
    s.say("left", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def transactions(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    ch = s.fresh()
    ch.tx_select()
    for body in (b"1", b"2"):
        ch.basic_publish("", s.queue, body)
    s.say("before", s.ready(s.queue))
    ch.tx_rollback()
    s.say("rolled back", s.ready(s.queue))
    ch.basic_publish("", s.queue, b"3")
    ch.tx_commit()
    s.say("committed", s.ready(s.queue))
    method, _, _ = ch.basic_get(s.queue)
    ch.basic_ack(method.delivery_tag)
    ch.tx_rollback()
    s.say("after rollback of the ack", s.ready(s.queue))
    ch.basic_ack(method.delivery_tag)
    ch.tx_commit()
    ch.close()
    s.say("after commit of the ack", s.ready(s.queue))
    ch = s.fresh()
    ch.tx_select()
    ch.basic_publish("", s.queue, b"4")
    ch.close()
    s.say("closed without commit", s.ready(s.queue))
    ch = s.fresh()
    returned: list[str] = []
    ch.add_on_return_callback(lambda _ch, method, _properties, body: returned.append(render(method, body)))
    ch.tx_select()
    ch.basic_publish("", "delivery.none", b"5", mandatory=True)
    s.connection.process_data_events(0.05)
    s.say("returned before the commit", returned)
    ch.tx_commit()
    s.wait(lambda: returned, "the return")
    s.say("returned", returned)
    s.publish(s.queue, "6")
    method, _, _ = ch.basic_get(s.queue)
    ch.basic_nack(method.delivery_tag, requeue=True)
    s.say("nacked, not committed", s.ready(s.queue))
    ch.tx_commit()
    s.say("nacked and committed", s.drain(s.queue))
    s.step("publish to no exchange in tx", lambda ch: (ch.tx_select(), ch.basic_publish("delivery.none", "k", b"")))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def render(method: Any, body: bytes) -> str:
    return f"{method.reply_code} {method.reply_text} {method.exchange!r} {method.routing_key!r} {body!r}"


def replies(s: Script) -> None:
    requester, responder = s.fresh(), s.fresh()
    answers, requests = Collector(), Collector()
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    requester.basic_consume("amq.rabbitmq.reply-to", answers, auto_ack=True)
    requester.basic_publish(
        "",
        s.queue,
        b"ask",
        pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7", headers={"a": 1}),
    )
    responder.basic_consume(s.queue, requests, auto_ack=True)
    s.wait(lambda: requests.bodies, "the request")
    _, properties = requests.messages[0]
    s.say("reply-to", properties.reply_to.startswith("amq.rabbitmq.reply-to."))
    s.say("kept", (properties.correlation_id, properties.headers))
    s.say("there", responder.queue_declare(properties.reply_to, passive=True).method.consumer_count)
    responder.basic_publish(
        "", properties.reply_to, b"answer", pika.BasicProperties(correlation_id="7"), mandatory=True
    )
    s.wait(lambda: answers.bodies, "the answer")
    method, got = answers.messages[0]
    s.say("answer", (answers.bodies, method.exchange, got))
    requester.close()
    s.step("gone", lambda ch: ch.queue_declare(properties.reply_to, passive=True))
    s.step("answer to nobody", lambda ch: ch.basic_publish("", properties.reply_to, b"late"))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


SCENARIOS = (requeue, prefetch, consumers, cancellation, returns, transactions, replies)
