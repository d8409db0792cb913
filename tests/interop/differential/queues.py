"""Queues with TTLs, length limits and priorities: expiry, overflow, dead-lettering, and headers of dead letters."""

from __future__ import annotations

from typing import Any

import pika

from tests.interop.differential.script import Script, render


def _dead_letters(s: Script, count: int) -> None:
    for _ in range(count):
        method, properties, body = s.fetch(s.dead)
        s.say("dead", (body, method.exchange, method.routing_key, properties))


def _setup(s: Script, arguments: dict[str, Any], **how: Any) -> None:
    s.step("dead", lambda ch: ch.queue_declare(s.dead))
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.dead, **arguments}
    s.step("declare", lambda ch: ch.queue_declare(s.queue, arguments=arguments, **how))


def _teardown(s: Script) -> None:
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    s.step("delete dead", lambda ch: ch.queue_delete(s.dead))


def dead_by_rejection(s: Script) -> None:
    _setup(s, {})
    s.publish(s.queue, "1", headers={"mine": 5}, message_id="m", expiration="60000", priority=3, delivery_mode=2)
    s.publish(s.queue, "2")
    ch = s.fresh()
    for _ in range(2):
        ch.basic_reject(ch.basic_get(s.queue)[0].delivery_tag, requeue=False)
    _dead_letters(s, 2)
    _teardown(s)


def dead_by_time(s: Script) -> None:
    _setup(s, {"x-message-ttl": 30})
    s.publish(s.queue, "queue's ttl")
    s.publish(s.queue, "message's ttl", expiration="10")
    s.publish(s.queue, "longer than the queue's", expiration="60000")
    _dead_letters(s, 3)
    s.say("left", s.ready(s.queue))
    _teardown(s)


def dead_by_length(s: Script) -> None:
    _setup(s, {"x-max-length": 2})
    s.publish(s.queue, *"1234", correlation_id="c")
    _dead_letters(s, 2)
    s.say("left", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    _setup(s, {"x-max-length-bytes": 10})
    s.publish(s.queue, "1234", "5678", "9", "10", "11")
    s.say("left", s.drain(s.queue))
    s.say("dead", s.drain(s.dead))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    _setup(s, {"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    try:
        s.publish(s.queue, *"12")
    except pika.exceptions.NackError:
        s.say("nacked", "yes")
    _dead_letters(s, 1)
    s.say("left", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    _setup(s, {"x-max-length": 0})
    s.publish(s.queue, "1")
    _dead_letters(s, 1)
    _teardown(s)


def dead_cycle(s: Script) -> None:
    s.step(
        "ttl queue",
        lambda ch: ch.queue_declare(
            s.dead, arguments={"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.queue}
        ),
    )
    s.step(
        "work queue",
        lambda ch: ch.queue_declare(
            s.queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.dead}
        ),
    )
    s.publish(s.queue, "retry", headers={"CC": [s.queue + ".none"]})
    ch = s.fresh()
    for _ in range(3):
        while (got := ch.basic_get(s.queue))[0] is None:
            s.connection.sleep(0.02)
        s.say("got", got[1])
        ch.basic_reject(got[0].delivery_tag, requeue=False)
    while (got := ch.basic_get(s.queue))[0] is None:
        s.connection.sleep(0.02)
    s.say("got", got[1])
    ch.basic_ack(got[0].delivery_tag)
    _teardown(s)
    # A cycle without a rejection ends automatically.
    s.step(
        "cycle",
        lambda ch: ch.queue_declare(
            s.queue, arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.dead}
        ),
    )
    s.step(
        "cycle",
        lambda ch: ch.queue_declare(
            s.dead, arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.queue}
        ),
    )
    s.publish(s.queue, "round")
    s.wait(lambda: s.ready(s.queue) + s.ready(s.dead) == 0, "the cycle's end")
    _teardown(s)


def dead_keys(s: Script) -> None:
    s.step("exchange", lambda ch: ch.exchange_declare("queues.dlx", "fanout"))
    s.step("dead", lambda ch: ch.queue_declare(s.dead))
    s.step("bind", lambda ch: ch.queue_bind(s.dead, "queues.dlx"))
    s.step("declare", lambda ch: ch.queue_declare(s.queue, arguments={"x-dead-letter-exchange": "queues.dlx"}))
    s.step("bind", lambda ch: ch.queue_bind(s.queue, "amq.topic", "a.#"))
    s.publish("a.b", "1", exchange="amq.topic", headers={"CC": ["cc"], "BCC": ["bcc"], "x": "y"})
    ch = s.fresh()
    ch.basic_reject(ch.basic_get(s.queue)[0].delivery_tag, requeue=False)
    _dead_letters(s, 1)
    s.publish("a.b", "1", exchange="amq.topic", headers={"x-death": "forged", "x-first-death-queue": "forged"})
    ch.basic_reject(ch.basic_get(s.queue)[0].delivery_tag, requeue=False)
    _dead_letters(s, 1)
    s.step("delete", lambda ch: ch.exchange_delete("queues.dlx"))
    s.publish(s.queue, "2")
    ch.basic_reject(ch.basic_get(s.queue)[0].delivery_tag, requeue=False)
    s.say("without exchange", s.drain(s.dead))
    _teardown(s)


def republished(s: Script) -> None:
    """A client publishes a dead-lettered message again, with its x-death header."""
    _setup(s, {})
    s.publish(s.queue, "1")
    ch = s.fresh()
    ch.basic_reject(ch.basic_get(s.queue)[0].delivery_tag, requeue=False)
    _, properties, body = s.fetch(s.dead)
    ch.basic_publish("", s.queue, body, properties)
    ch.basic_reject(_get(s, ch)[0].delivery_tag, requeue=False)
    _dead_letters(s, 1)
    _teardown(s)


def _get(s: Script, ch: Any) -> Any:
    while (got := ch.basic_get(s.queue))[0] is None:
        s.connection.sleep(0.02)
    return got


def delivery_limit(s: Script) -> None:
    _setup(s, {"x-queue-type": "quorum", "x-delivery-limit": 2}, durable=True)
    s.publish(s.queue, "1")
    ch = s.fresh()
    for _ in range(3):
        method, properties, _ = _get(s, ch)
        s.say("got", (method.redelivered, properties))
        ch.basic_nack(method.delivery_tag, requeue=True)
    _dead_letters(s, 1)
    _teardown(s)


def priorities(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue, arguments={"x-max-priority": 5}))
    for body, priority in (("a", None), ("b", 1), ("c", 5), ("d", 9), ("e", 0), ("f", 1), ("g", 255)):
        s.publish(s.queue, body, priority=priority)
    s.say("order", s.drain(s.queue))
    s.publish(s.queue, "low", priority=1)
    s.publish(s.queue, "high", priority=4)
    ch = s.fresh()
    ch.basic_reject(_get(s, ch)[0].delivery_tag, requeue=True)
    s.say("after a requeue", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def expiry(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue, arguments={"x-expires": 80}))
    s.wait(lambda: _gone(s, s.queue), "the queue's end")
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    s.publish(s.queue, "0", expiration="0")
    s.wait(lambda: s.ready(s.queue) == 0, "the end of a message with ttl 0")
    got: list[bytes] = []
    ch = s.fresh()
    ch.basic_consume(s.queue, lambda _ch, _method, _properties, body: got.append(body), auto_ack=True, consumer_tag="t")
    s.publish(s.queue, "0", expiration="0")
    s.wait(lambda: got, "the message with ttl 0")
    s.say("ttl 0, somebody waits", got)
    ch.basic_cancel("t")
    s.publish(s.queue, "long")
    s.publish(s.queue, "short", expiration="20")
    s.connection.sleep(0.1)  # gives the broker time to expire the message, which it must not do
    s.say("behind the head", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def _gone(s: Script, queue: str) -> bool:
    try:
        s.fresh().queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        return bool(error.reply_code == 404)
    s.connection.sleep(
        0.2
    )  # a declaration counts as use, so the queue must be left alone for longer than its x-expires
    return False


def stream(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue, durable=True, arguments={"x-queue-type": "stream"}))
    s.publish(s.queue, *"01234", headers={"mine": 1})

    def read(offset: Any, count: int) -> None:
        got: list[str] = []
        ch = s.fresh()
        ch.basic_qos(prefetch_count=10)

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(f"{body.decode()}{'!' if method.redelivered else ''} {render(properties)}")
            channel.basic_ack(method.delivery_tag)

        arguments = {} if offset is None else {"x-stream-offset": offset}
        ch.basic_consume(s.queue, take, arguments=arguments)
        if not count:
            s.publish(s.queue, f"new for {offset}")
            count = 1
        s.wait(lambda: len(got) >= count, f"{count} from {offset}")
        s.say(f"from {offset}", got[:count])
        ch.close()

    read("first", 5)
    read(3, 2)
    read(0, 5)
    read("next", 0)
    read(None, 0)
    read("1h", 5)
    s.step("counts", lambda ch: ch.queue_declare(s.queue, passive=True).method.queue)
    s.step("delete", lambda ch: ch.queue_delete(s.queue).method.NAME)


SCENARIOS = (
    dead_by_rejection,
    dead_by_time,
    dead_by_length,
    dead_cycle,
    dead_keys,
    republished,
    delivery_limit,
    priorities,
    expiry,
    stream,
)
