"""Arguments of queues, bindings and consumers: accepted values, and the errors for others."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

from tests.interop.differential.script import Script


def _try(s: Script, what: str, arguments: dict[str, Any], **how: Any) -> None:
    s.step(what, lambda ch: ch.queue_declare(s.queue, **{"durable": True, **how}, arguments=arguments))
    s.fresh().queue_delete(s.queue)


def numbers(s: Script) -> None:
    for name in ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority"):
        for value in (
            0,
            1,
            -1,
            255,
            256,
            4294967295,
            4294967296,
            2**62,
            "5",
            Decimal("5.5"),
            True,
            None,
            [5],
            {"a": 5},
        ):
            _try(s, f"{name}={value!r}", {name: value})


def texts(s: Script) -> None:
    for name in (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-overflow",
        "x-queue-mode",
        "x-queue-type",
        "x-single-active-consumer",
        "x-queue-master-locator",
        "x-queue-version",
        "x-dead-letter-strategy",
    ):
        for value in ("", "mine", 5, True, None, ["a"]):
            _try(s, f"{name}={value!r}", {name: value})
    _try(s, "dead-letter key and exchange", {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"})
    for overflow in ("drop-head", "reject-publish", "reject-publish-dlx"):
        _try(s, f"overflow {overflow}", {"x-overflow": overflow})
    for mode in ("default", "lazy"):
        _try(s, f"mode {mode}", {"x-queue-mode": mode})
    _try(s, "version 2", {"x-queue-version": 2})


def quorum(s: Script) -> None:
    base = {"x-queue-type": "quorum"}
    _try(s, "quorum", base)
    _try(s, "quorum, transient", base, durable=False)
    _try(s, "quorum, auto-delete", base, auto_delete=True)
    _try(s, "quorum, exclusive", base, exclusive=True)
    _try(s, "quorum, exclusive and transient", base, exclusive=True, durable=False)
    for name, value in (
        ("x-max-priority", 5),
        ("x-queue-mode", "lazy"),
        ("x-message-ttl", 1000),
        ("x-expires", 1000),
        ("x-max-length", 5),
        ("x-overflow", "reject-publish"),
        ("x-overflow", "reject-publish-dlx"),
        ("x-delivery-limit", 5),
        ("x-delivery-limit", -1),
        ("x-delivery-limit", "5"),
        ("x-single-active-consumer", True),
        ("x-quorum-initial-group-size", 1),
        ("x-max-in-memory-length", 5),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-dead-letter-strategy", "at-most-once"),
        ("x-mine", 5),
        ("x-max-age", "1h"),
    ):
        _try(s, f"quorum, {name}={value!r}", {**base, name: value})
    _try(s, "classic, x-delivery-limit", {"x-delivery-limit": 5})


def streams(s: Script) -> None:
    base = {"x-queue-type": "stream"}
    _try(s, "stream", base)
    _try(s, "stream, transient", base, durable=False)
    _try(s, "stream, auto-delete", base, auto_delete=True)
    _try(s, "stream, exclusive", base, exclusive=True)
    for name, value in (
        ("x-max-age", "1h"),
        ("x-max-age", "5m"),
        ("x-max-age", "1Y"),
        ("x-max-age", "1Q"),
        ("x-max-age", "h"),
        ("x-max-age", 5),
        ("x-max-length-bytes", 1000000),
        ("x-stream-max-segment-size-bytes", 1000000),
        ("x-initial-cluster-size", 1),
        ("x-max-length", 5),
        ("x-message-ttl", 5),
        ("x-expires", 1000),
        ("x-dead-letter-exchange", "x"),
        ("x-max-priority", 5),
        ("x-single-active-consumer", True),
        ("x-overflow", "reject-publish"),
        ("x-queue-leader-locator", "client-local"),
    ):
        _try(s, f"stream, {name}={value!r}", {**base, name: value})
    _try(s, "classic, x-max-age", {"x-max-age": "1h"})
    s.step("declare", lambda ch: ch.queue_declare(s.queue, durable=True, arguments=base))
    s.step("get", lambda ch: ch.basic_get(s.queue))
    s.step("purge", lambda ch: ch.queue_purge(s.queue))
    s.step("no prefetch", lambda ch: ch.basic_consume(s.queue, print))
    s.step("no ack", lambda ch: (ch.basic_qos(prefetch_count=5), ch.basic_consume(s.queue, print, auto_ack=True)))
    for offset in ("first", "last", "next", 0, 5, -1, "tomorrow", "1h", "5m", "1x", True, Decimal("5.5")):

        def consume(ch: Any, offset: Any = offset) -> None:
            ch.basic_qos(prefetch_count=5)
            ch.basic_consume(s.queue, print, consumer_tag="t", arguments={"x-stream-offset": offset})

        s.step(f"offset {offset!r}", consume)
        if s.channel.is_open:
            s.channel.close()
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def _bind(queue: str, arguments: dict[str, Any], ch: Any) -> Any:
    return ch.queue_bind(queue, "amq.headers", "", arguments=arguments)


def _exchange(exchange: str, kind: str, ch: Any) -> Any:
    return ch.exchange_declare(exchange, kind)


def bindings(s: Script) -> None:
    s.step("declare", lambda ch: ch.queue_declare(s.queue))
    for value in ("all", "any", "all-with-x", "any-with-x", "some", 5, True):
        arguments = {"x-match": value, "a": 1}
        s.step(f"x-match={value!r}", partial(_bind, s.queue, arguments))
    s.step("no x-match", lambda ch: ch.queue_bind(s.queue, "amq.headers", "", arguments={"a": 1}))
    s.step("x-match on direct", lambda ch: ch.queue_bind(s.queue, "amq.direct", "", arguments={"x-match": "some"}))
    s.step("twice", lambda ch: ch.queue_bind(s.queue, "amq.direct", "", arguments={"x-match": "some"}))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))


def declarations(s: Script) -> None:
    s.step("server-named", lambda ch: ch.queue_declare(""))
    s.step("server-named, exclusive", lambda ch: ch.queue_declare("", exclusive=True))
    s.step("last one", lambda ch: (ch.queue_declare(s.queue), ch.queue_bind("", "amq.direct"), ch.basic_get("")))
    s.step("bound by its name", lambda ch: ch.basic_publish("amq.direct", s.queue, b"m"))
    s.say("arrived", s.drain(s.queue))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    s.step("durable and exclusive", lambda ch: ch.queue_declare(s.queue, durable=True, exclusive=True))
    s.step("the same, transient", lambda ch: ch.queue_declare(s.queue, durable=False, exclusive=True))
    s.step("delete", lambda ch: ch.queue_delete(s.queue))
    for kind in ("direct", "fanout", "topic", "headers", "x-recent-history", ""):
        s.step(f"exchange type {kind!r}", partial(_exchange, s.exchange, kind))
        s.fresh().exchange_delete(s.exchange)
    s.step("long name", lambda ch: ch.queue_declare("n" * 255))
    s.step("delete", lambda ch: ch.queue_delete("n" * 255))
    s.step("name with spaces", lambda ch: ch.queue_declare("a b\tü"))
    s.step("delete", lambda ch: ch.queue_delete("a b\tü"))
    s.step("auto-delete exchange", lambda ch: ch.exchange_declare(s.exchange, auto_delete=True))
    s.step("queue", lambda ch: ch.queue_declare(s.queue, auto_delete=True))
    s.step("bind", lambda ch: ch.queue_bind(s.queue, s.exchange, "k"))
    s.step("unbind", lambda ch: ch.queue_unbind(s.queue, s.exchange, "k"))
    s.step("gone", lambda ch: ch.exchange_declare(s.exchange, passive=True))
    s.step("consume and cancel", lambda ch: (ch.basic_consume(s.queue, print, consumer_tag="t"), ch.basic_cancel("t")))
    s.step("gone", lambda ch: ch.queue_declare(s.queue, passive=True))


SCENARIOS = (numbers, texts, quorum, streams, bindings, declarations)
