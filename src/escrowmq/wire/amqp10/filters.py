"""The filters of a source (section 3.5.8), and what is granted of them.

| filter | descriptor | value |
|---|---|---|
| a selector of JMS | `apache.org:selector-filter:string`, 0x468C00000004 | an expression |
| an SQL expression, as in RabbitMQ | `amqp:sql-filter`, 0x120 | an expression |
| no messages of the own container | `apache.org:no-local-filter:list`, 0x468C00000003 | ignored |
| properties | `amqp:properties-filter`, 0x173 | a map of required values |
| application properties | `amqp:application-properties-filter`, 0x174 | a map of required values |
| where a stream is read from | `rabbitmq:stream-offset-spec` | `first`, `last`, `next`, an offset, or a timestamp |
| messages of a stream by their filter value | `rabbitmq:stream-filter` | a text, or a list of them |
| also those without a filter value | `rabbitmq:stream-match-unfiltered` | a boolean |

A selector may also be an undescribed string with the key `jms-selector`. The filter no-local works for subscriptions to
exchanges only: their queues belong to the subscriber, so the own messages need not be routed to them. A filter that is
malformed, or that must not be ignored, is refused. Unknown filters are not granted: the answer to the attach names
those that are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.admission import MessageFilter
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.selection import Selector
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, OffsetKind, StreamOffset
from escrowmq.wire.amqp10.codec.encoding import CodecError, decode, encode
from escrowmq.wire.amqp10.codec.types import Described, Symbol, Timestamp, Value
from escrowmq.wire.amqp10.errors import INVALID_FIELD, LIMIT_EXCEEDED, NOT_IMPLEMENTED, AmqpFault, link_fault
from escrowmq.wire.amqp10.subscriptions import NO_LOCAL
from escrowmq.wire.selectors.properties import application_properties_filter, properties_filter
from escrowmq.wire.selectors.sql import jms_selector, sql_filter
from escrowmq.wire.selectors.stored import admitting, selecting
from escrowmq.wire.selectors.values import ANNOTATIONS, Matcher, MessageFields, SelectorError

NO_LOCAL_FILTER: Final = "apache.org:no-local-filter:list"
FILTER: Final = "x-escrowmq-filter"
"""The argument of a subscription's queue that has the encoded filters by which messages are routed to it."""
MOST: Final = 8
"""Filters of one source."""
MOST_VALUES: Final = 16
"""Values of a `rabbitmq:stream-filter`."""
FILTER_VALUE: Final = "x-stream-filter-value"
_CODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0x0000_468C_0000_0004: "apache.org:selector-filter:string",
        0x0000_468C_0000_0003: NO_LOCAL_FILTER,
        0x120: "amqp:sql-filter",
        0x173: "amqp:properties-filter",
        0x174: "amqp:application-properties-filter",
    }
)
_UNDESCRIBED: Final[Mapping[str, str]] = MappingProxyType(
    {"jms-selector": "apache.org:selector-filter:string", "no-local": NO_LOCAL_FILTER}
)


class Filters(NamedTuple):
    """What a consumer needs for the filters of its source, and the filters that the attach reports."""

    selects: Selector | None = None
    options: ConsumerOptions = ConsumerOptions()
    granted: dict[Value, Value] | None = None


def filters_of(queue: Queue, asked: Mapping[Value, Value] | None) -> Filters:
    """Return the granted filters of a source that reads `queue`. Raises AmqpFault for those that are refused."""
    if not asked:
        return Filters()
    if len(asked) > MOST:
        raise link_fault(LIMIT_EXCEEDED, f"the source has {len(asked)} filters; at most {MOST} are allowed")
    granted: dict[Value, Value] = {}
    matchers: list[Matcher] = _matchers(asked) if FILTER not in queue.arguments else []
    options = ConsumerOptions()
    stream: dict[str, Value] = {}
    for key, filtered in asked.items():
        kind, value = _kind_of(key, filtered)
        if kind in _MATCHERS:
            pass
        elif kind in _OF_STREAMS and queue.is_stream:
            stream[kind] = value
            if kind == "rabbitmq:stream-offset-spec":
                options = ConsumerOptions(stream_offset=_offset(value))
        elif kind == NO_LOCAL_FILTER:
            if NO_LOCAL not in queue.arguments:
                raise link_fault(NOT_IMPLEMENTED, "the filter no-local needs a source that is an exchange or a topic")
        else:
            continue
        granted[key] = filtered
    if "rabbitmq:stream-filter" in stream:
        matchers.append(
            _stream_filter(stream["rabbitmq:stream-filter"], stream.get("rabbitmq:stream-match-unfiltered"))
        )
    return Filters(selecting(matchers) if matchers else None, options, granted or None)


def _matchers(asked: Mapping[Value, Value]) -> list[Matcher]:
    """Return the matchers of the filters that look at messages. Raises AmqpFault for malformed ones."""
    matchers: list[Matcher] = []
    for key, filtered in asked.items():
        kind, value = _kind_of(key, filtered)
        make = _MATCHERS.get(kind)
        if make is not None:
            try:
                matchers.append(make(value))
            except SelectorError as error:
                raise link_fault(INVALID_FIELD, f"filter '{key}' is refused: {error}") from error
    return matchers


def subscription_arguments(asked: Mapping[Value, Value] | None, container: str) -> dict[str, object]:
    """Return the arguments of a subscription's queue, for the filters that apply when messages are routed to it.

    Raises AmqpFault for filters that are malformed, or too many.
    """
    arguments: dict[str, object] = {}
    if asked and len(asked) <= MOST and _matchers(asked):
        kept = {key: value for key, value in asked.items() if _kind_of(key, value)[0] in _MATCHERS}
        arguments[FILTER] = encode(kept)
    if excludes_own(asked):
        arguments[NO_LOCAL] = container
    return arguments


def admission(value: object) -> MessageFilter:
    """Return the filter in the argument `FILTER`. Raises BrokerError."""
    try:
        asked, _ = decode(value if isinstance(value, bytes) else b"")
        if isinstance(asked, dict) and len(asked) <= MOST:
            return admitting(_matchers(asked))
    except (CodecError, AmqpFault):
        pass
    raise BrokerError(Condition.PRECONDITION_FAILED, f"invalid arg '{FILTER}': it is no map of filters")


def excludes_own(asked: Mapping[Value, Value] | None) -> bool:
    """Return whether a source must not get the messages of its own container."""
    return any(_kind_of(key, filtered)[0] == NO_LOCAL_FILTER for key, filtered in (asked or {}).items())


def _kind_of(key: Value, filtered: Value) -> tuple[str, Value]:
    """Return the symbolic descriptor of a filter, and its value."""
    if isinstance(filtered, Described):
        descriptor = filtered.descriptor
        return (_CODES.get(descriptor, "") if isinstance(descriptor, int) else str(descriptor)), filtered.value
    return _UNDESCRIBED.get(str(key), str(key)), filtered


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise SelectorError("an expression must be a string")
    return str(value)


def _map(value: Value) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise SelectorError("the value must be a map, and its keys must be names")
    return {str(name): str(item) if isinstance(item, Symbol) else item for name, item in value.items()}


_MATCHERS: Final[Mapping[str, Callable[[Any], Matcher]]] = MappingProxyType(
    {
        "apache.org:selector-filter:string": lambda value: jms_selector(_text(value)),
        "amqp:sql-filter": lambda value: sql_filter(_text(value)),
        "amqp:properties-filter": lambda value: properties_filter(_map(value)),
        "amqp:application-properties-filter": lambda value: application_properties_filter(_map(value)),
    }
)
_OF_STREAMS: Final = frozenset(
    {"rabbitmq:stream-offset-spec", "rabbitmq:stream-filter", "rabbitmq:stream-match-unfiltered"}
)


def _offset(value: Value) -> StreamOffset:
    if isinstance(value, Timestamp):
        return StreamOffset("time", int(value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return StreamOffset("offset", int(value))
    if isinstance(value, str) and str(value) in {"first", "last", "next"}:
        return StreamOffset(cast("OffsetKind", str(value)))
    raise link_fault(INVALID_FIELD, "rabbitmq:stream-offset-spec must be first, last, next, an offset or a timestamp")


def _stream_filter(value: Value, unfiltered: Value) -> Matcher:
    values = list(value) if isinstance(value, list) else [value]
    if not 0 < len(values) <= MOST_VALUES or not all(isinstance(item, str) for item in values):
        raise link_fault(INVALID_FIELD, f"rabbitmq:stream-filter must have between 1 and {MOST_VALUES} texts")
    wanted = frozenset(map(str, values))

    def matches(message: MessageFields) -> bool:
        found = message.value(ANNOTATIONS + FILTER_VALUE)
        return unfiltered is True if found is None else found in wanted

    return matches
