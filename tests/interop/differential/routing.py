"""Routing by exchanges and bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pika

from tests.interop.differential.script import Script


def _queues(s: Script, *names: str) -> None:
    for name in names:
        s.fresh().queue_declare(f"routing.{name}")


def _arrived(s: Script, what: str, names: Iterable[str]) -> None:
    s.say(what, [f"{name}:{len(s.drain(f'routing.{name}'))}" for name in names])


def _delete(s: Script, names: Iterable[str]) -> None:
    for name in names:
        s.fresh().queue_delete(f"routing.{name}")


def topic(s: Script) -> None:
    patterns = ("#", "*", "a.*", "a.#", "*.b", "#.b", "a.#.b", "a.*.b", "a", "", "*.*", "#.#", "a..b", "*.#.c", "#.*")
    names = [str(i) for i in range(len(patterns))]
    _queues(s, *names)
    for name, pattern in zip(names, patterns, strict=True):
        s.fresh().queue_bind(f"routing.{name}", "amq.topic", pattern)
    for key in ("", "a", "b", "a.b", "a.b.c", "a.c.b", "a..b", ".", "a.", ".b", "a.x.y.b", "x.y.c"):
        s.publish(key, "m", exchange="amq.topic")
        _arrived(s, repr(key), names)
    _delete(s, names)


def headers(s: Script) -> None:
    bindings: list[dict[str, Any]] = [
        {"x-match": "all", "a": 1, "b": "two"},
        {"x-match": "any", "a": 1, "b": "two"},
        {"a": 1},
        {"x-match": "all"},
        {"x-match": "any"},
        {"x-match": "all", "a": None},
        {"x-match": "all", "x-a": 1},
        {"x-match": "all", "c": True},
    ]
    names = [str(i) for i in range(len(bindings))]
    _queues(s, *names)
    for name, arguments in zip(names, bindings, strict=True):
        s.fresh().queue_bind(f"routing.{name}", "amq.headers", "", arguments=arguments)
    tables: list[dict[str, Any] | None] = [
        None,
        {},
        {"a": 1},
        {"a": 1, "b": "two"},
        {"a": 2, "b": "two"},
        {"a": "1"},
        {"a": None},
        {"x-a": 1},
        {"x-a": 2},
        {"c": True},
        {"c": False},
        {"a": 1, "c": True, "d": [1]},
    ]
    for table in tables:
        s.publish("", "m", exchange="amq.headers", headers=table)
        _arrived(s, repr(table), names)
    _delete(s, names)


def kinds(s: Script) -> None:
    names = ("one", "two")
    _queues(s, *names)
    for kind in ("direct", "fanout", "topic", "headers"):
        s.fresh().exchange_declare(s.exchange, kind)
        s.fresh().queue_bind("routing.one", s.exchange, "k")
        s.fresh().queue_bind("routing.one", s.exchange, "k2")
        s.fresh().queue_bind("routing.two", s.exchange, "k")
        for key in ("k", "k2", "k3"):
            s.publish(key, "m", exchange=s.exchange)
            _arrived(s, f"{kind} {key}", names)
        s.fresh().exchange_delete(s.exchange)
    _delete(s, names)


def chains(s: Script) -> None:
    names = ("q", "alternate")
    _queues(s, *names)
    ch = s.fresh()
    ch.exchange_declare(s.exchange + "2", "fanout")
    ch.exchange_declare(s.exchange, "direct", arguments={"alternate-exchange": s.exchange + "2"})
    ch.exchange_declare(s.exchange + "3", "topic", internal=True)
    ch.queue_bind("routing.alternate", s.exchange + "2")
    ch.exchange_bind(s.exchange + "3", s.exchange, "k")
    ch.exchange_bind(s.exchange, s.exchange + "3", "#")  # a cycle
    ch.queue_bind("routing.q", s.exchange + "3", "#")
    for key in ("k", "other"):
        s.publish(key, "m", exchange=s.exchange)
        _arrived(s, key, names)
    ch.exchange_unbind(s.exchange + "3", s.exchange, "k")
    s.publish("k", "m", exchange=s.exchange)
    _arrived(s, "unbound", names)
    ch.exchange_delete(s.exchange + "2")
    s.publish("k", "m", exchange=s.exchange)
    _arrived(s, "alternate deleted", names)
    for name in (s.exchange, s.exchange + "3"):
        ch.exchange_delete(name)
    _delete(s, names)


def copies(s: Script) -> None:
    names = ("a", "b", "c")
    _queues(s, *names)
    ch = s.fresh()
    ch.confirm_delivery()
    properties = pika.BasicProperties(headers={"CC": ["routing.b"], "BCC": ["routing.c", "routing.a"], "mine": 1})
    ch.basic_publish("", "routing.a", b"m", properties)
    for name in names:
        method, got, _ = s.fetch(f"routing.{name}")
        s.say(name, (method.routing_key, got))
    _delete(s, names)


def tables(s: Script) -> None:
    """Every type of field that pika can send comes back unchanged."""
    import datetime as dt
    from decimal import Decimal

    _queues(s, "t")
    values = {
        "bool": True,
        "int8": -5,
        "int16": -3000,
        "int32": 2**31 - 1,
        "int64": -(2**40),
        "big": 2**63 - 1,
        "decimal": Decimal("3.14"),
        "text": "ü",
        "bytes": b"\x00\xff",
        "time": None,
        "list": [1, "a", [True, None], {"x": 1}],
        "table": {"a": {"b": {"c": [1, 2]}}},
        "void": None,
        "when": dt.datetime(2020, 2, 3, 4, 5, 6),  # noqa: DTZ001
        "empty": {},
        "none": [],
    }
    s.publish("routing.t", "m", headers=values)
    _, properties, _ = s.fetch("routing.t")
    s.say("headers", properties.headers)
    s.say("the same", {key: properties.headers.get(key) == value for key, value in values.items()})
    everything: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": 1234567890,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "x",
        "expiration": "100000",
    }
    s.publish("routing.t", "m", **everything)
    s.say("properties", s.fetch("routing.t")[1])
    _delete(s, ["t"])


SCENARIOS = (topic, headers, kinds, chains, copies, tables)
