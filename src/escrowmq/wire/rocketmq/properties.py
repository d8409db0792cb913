"""The properties of a message: the names that RocketMQ uses, their text form, and the delay that they ask for.

The text form is `name, octet 1, value, octet 2` for each property. The producer sends it, the broker keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
TRANSACTION: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
UNIQUE_KEY: Final = "UNIQ_KEY"
TRANSACTION_ID: Final = "__transactionId__"
CHECKS: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
FAILURES: Final = "RECONSUME_TIME"
MOST_FAILURES: Final = "MAX_RECONSUME_TIMES"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_DEAD_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
MESSAGE_GROUP: Final = "__SHARDINGKEY"
CORRELATION_ID: Final = "CORRELATION_ID"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"

DELAYS: Final = frozenset({DELAY, DELIVER_MS, DELAY_SECONDS, DELAY_MS})
"""Every property by which a producer asks for a later delivery."""

SYSTEM: Final = frozenset(
    {
        "BORN_HOST",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        CHECK_IMMUNITY,
        "CLUSTER",
        "CONSUME_START_TIME",
        CORRELATION_ID,
        DELAY,
        ORIGIN_DEAD_ID,
        ORIGIN_TOPIC,
        "EXTEND_UNIQ_INFO",
        "FORWARD_QUEUE_ID",
        "INDEX_TYPE",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "INSTANCE_ID",
        KEYS,
        MOST_FAILURES,
        "MAX_OFFSET",
        "MIN_OFFSET",
        "MSG_REGION",
        ORIGIN_ID,
        PRODUCER_GROUP,
        "POP_CK",
        "PUSH_REPLY_TIME",
        REAL_QUEUE,
        REAL_TOPIC,
        FAILURES,
        "REDIRECT",
        "REPLY_TO_CLIENT",
        RETRY_TOPIC,
        MESSAGE_GROUP,
        TAGS,
        DELAY_MS,
        DELAY_SECONDS,
        DELIVER_MS,
        "TIMER_DELAY_LEVEL",
        "TIMER_OUT_MS",
        "TRACE_ON",
        CHECKS,
        TRANSACTION_ID,
        "TRANSFER_FLAG",
        TRANSACTION,
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        UNIQUE_KEY,
        WAIT,
    }
)
"""The names that are not the application's. Everything else is a user property."""

_TELLING: Final = tuple(name.encode() for name in (TRANSACTION, MESSAGE_GROUP, *sorted(DELAYS)))

DELAY_LEVELS_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""The delay of each level, from level 1 on, as brokers have it without a setting of their own."""

_BETWEEN: Final = "\x01"
_AFTER: Final = "\x02"
_NAMES: Final = 64  # of properties that are looked for
_DIGITS: Final = 19  # of a number of 64 bits


def parse(text: bytes) -> dict[str, str]:
    """Return the properties in `text`. Pairs without the octet 1 are left out; the last of equal names counts."""
    pairs = (pair.partition(_BETWEEN) for pair in text.decode("utf-8", "surrogateescape").split(_AFTER))
    return {name: value for name, between, value in pairs if between and name}


def render(properties: Mapping[str, str]) -> bytes:
    """Return the text form. Values that contain one of the two separators are left out, as no client can read them."""
    count = len(properties)
    text = "".join([f"{name}{_BETWEEN}{value}{_AFTER}" for name, value in properties.items()])
    if "" in properties or text.count(_BETWEEN) != count or text.count(_AFTER) != count:
        return render({name: value for name, value in properties.items() if name and _is_plain(name + value)})
    return text.encode("utf-8", "surrogateescape")


def _is_plain(text: str) -> bool:
    return _BETWEEN not in text and _AFTER not in text


def value_of(text: bytes, name: str) -> str | None:
    """Return one property of `text`, or None if it has none of that name. Other properties are not decoded."""
    found = octets_of(text, name)
    return None if found is None else found.decode("utf-8", "surrogateescape")


@lru_cache(_NAMES)
def _beginnings(name: str) -> tuple[bytes, bytes]:
    """Return what is before the value of a property: at the beginning of a text, and in it."""
    return name.encode() + b"\x01", b"\x02" + name.encode() + b"\x01"


def octets_of(text: bytes, name: str) -> bytes | None:
    """Return one property of `text` as it was sent, or None if it has none of that name."""
    first, later = _beginnings(name)
    if text.startswith(first):
        start = len(first)
    else:
        at = text.rfind(later)
        if at < 0:
            return None
        start = at + len(later)
    end = text.find(b"\x02", start)
    return text[start : end if end >= 0 else len(text)]


def applications(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the user properties, which exclude RocketMQ's own."""
    return {name: value for name, value in properties.items() if name not in SYSTEM}


def kind_of(properties: Mapping[str, str]) -> str:
    """Return the type of a message, as a topic's type names it: transaction, delay, fifo, or normal."""
    if properties.get(TRANSACTION) == "true":
        return "transaction"
    if not DELAYS.isdisjoint(properties):
        return "delay"
    return "fifo" if MESSAGE_GROUP in properties else "normal"


def kind_in(text: bytes) -> str:
    """Return the type of a message with the properties in `text`, which are read only if they may tell it."""
    for name in _TELLING:
        if name in text:
            return kind_of(parse(text))
    return "normal"


def delay_of(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return ("at", time of delivery in ms) or ("after", delay in ms), or None if the message is due at once.

    Values that are no numbers, and the level 0, ask for nothing. A level above the highest is the highest.
    """
    for name, unit in ((DELIVER_MS, 1), (DELAY_SECONDS, 1000), (DELAY_MS, 1)):
        number = whole(properties.get(name))
        if number is not None:
            return ("at" if name == DELIVER_MS else "after"), number * unit
    level = whole(properties.get(DELAY)) or 0
    return ("after", DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1]) if level > 0 else None


def whole(text: str | None) -> int | None:
    """Return the number in `text`, or None unless it is a whole one of at most 64 bits."""
    if text is None or not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > _DIGITS:
        return None
    return int(text)
