"""Parse and validate the options of source and sink. Unknown options are errors.

Options that mean the same as in Spark's Kafka source have the same names. Names are case-insensitive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import OptionError

MESSAGES_PER_TRIGGER: Final = 500_000
MESSAGES_PER_PARTITION: Final = 100_000
TRANSACTION_SECONDS: Final = 3600
BRANCH_SECONDS: Final = (1, 86_400)
RECONNECT_SECONDS: Final = 60
MOST_RECONNECT_SECONDS: Final = 86_400
_DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?) *(?P<unit>|ms|s|m|min|h|d)")
_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_MOST: Final = 1 << 62
SHORT: Final = 255
"""The maximum length of a name in AMQP, in bytes."""

_CONNECTION: Final = ("connection", "url", "txn.app_id", "txn.sink_id", "txn.timeout", "reconnectTimeout")
_SOURCE: Final = (
    *_CONNECTION,
    "subscribe",
    "subscribePattern",
    "group",
    "startingPosition",
    "endingPosition",
    "maxMessagesPerTrigger",
    "maxMessagesPerPartition",
    "minPartitions",
    "failOnDataLoss",
    "acknowledge",
)
_SINK: Final = (*_CONNECTION, "exchange", "queue", "routingKey", "txn.version")
_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself adds to ours."""

_TABLES: Final = frozenset({"owner", "provider"})
"""Options that Spark adds for a table that is to be created."""

_STREAM_OF_TOPIC: Final = re.compile(r"(.+)-\d+", re.DOTALL)

Positions = str | dict[str, int]
"""`earliest`, `latest`, or a position for each queue."""


class Options:
    """The given options, by case-insensitive name.

    Raises:
        OptionError: an option is unknown.
    """

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower() for name in known}
        unknown = sorted(name for name in self._given if name not in names and name not in _SPARKS)
        if self._given.keys() >= _TABLES:
            raise OptionError(
                "escrowmq cannot be a table of a catalog (CREATE TABLE … USING escrowmq); use CREATE TEMPORARY VIEW … "
                "USING escrowmq OPTIONS (…), or spark.read and spark.readStream"
            )
        if unknown:
            raise OptionError(f"unknown option of the {what}: {', '.join(unknown)}; valid options: {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """Return the option's text; None if it is missing or empty."""
        return self._given.get(name.lower()) or None

    def name(self, name: str) -> str | None:
        """Return a name in AMQP, at most 255 bytes."""
        found = self.text(name)
        if found is not None and len(found.encode()) > SHORT:
            raise OptionError(f"option {name} may have at most {SHORT} bytes")
        return found

    def number(self, name: str, default: int | None, least: int = 1, most: int = _MOST) -> int | None:
        """Return an integer from `least` to `most`; `default` if it is missing."""
        found = self.text(name)
        if found is None:
            return default
        try:
            value = int(found)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            limit = f"from {least} to {most}" if most < _MOST else f"of at least {least}"
            raise OptionError(f"option {name} must be an integer {limit}, not {found!r}")
        return value

    def seconds(self, name: str, default: int, least: int, most: int) -> int:
        """Return a duration in whole seconds, from `least` to `most`; `default` if it is missing. It is a number of
        seconds, or has a unit as in Spark's own settings: `30s`, `2m`, `2min`, `1h`.
        """
        found = self.text(name)
        if found is None:
            return default
        match = _DURATION.fullmatch(found.strip().lower())
        value = float(match["number"]) * _UNITS[match["unit"]] if match else -1.0
        if value != int(value) or not least <= value <= most:
            raise OptionError(
                f"option {name} must be from {least} to {most} whole seconds, such as 30, 30s or 2m, not {found!r}"
            )
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean; `default` if it is missing."""
        found = (self.text(name) or str(default)).lower()
        if found not in {"true", "false"}:
            raise OptionError(f"option {name} must be true or false, not {found!r}")
        return found == "true"

    def choice(self, name: str, *choices: str) -> str:
        """Return one of `choices`; the first if the option is missing."""
        found = self.text(name) or choices[0]
        if found.lower() not in choices:
            raise OptionError(f"option {name} must be {' or '.join(choices)}, not {found!r}")
        return found.lower()

    def positions(self, name: str, default: str) -> Positions:
        """`earliest`, `latest`, or JSON with a position for each queue."""
        found = self.text(name) or default
        if found.lower() in {"earliest", "latest"}:
            return found.lower()
        try:
            value = json.loads(found)
        except ValueError:
            value = None
        if isinstance(value, dict) and all(type(each) is int and 0 <= each < _MOST for each in value.values()):
            return value
        example = '{"orders": 1000}'
        raise OptionError(f"option {name} must be earliest, latest, or JSON such as {example}, not {found!r}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of `readStream` and `read`. A missing option without a default is empty or None."""

    endpoint: Endpoint
    queues: tuple[str, ...]
    pattern: str
    group: str
    starting: Positions
    ending: Positions
    most: int
    most_of_partition: int
    partitions: int | None
    fail_on_loss: bool
    in_transaction: bool
    app_id: str | None
    sink_id: str | None
    seconds: int
    reconnect: int = RECONNECT_SECONDS

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse the options.

        Raises:
            OptionError: an option is unknown, missing or invalid.
        """
        options = Options(given, _SOURCE, "source")
        names, pattern = options.text("subscribe"), options.text("subscribePattern")
        if (names is None) == (pattern is None):
            raise OptionError(
                "set exactly one of the options subscribe (queues and topics, comma-separated) and subscribePattern"
            )
        queues = tuple(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
        if names is not None and not queues:
            raise OptionError("option subscribe names no queue and no topic")
        if any(len(name.encode()) > SHORT for name in queues):
            raise OptionError(f"option subscribe: a queue's name may have at most {SHORT} bytes")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise OptionError(f"option subscribePattern is not a valid regular expression: {error}") from None
        starting, ending = (
            options.positions("startingPosition", "earliest"),
            options.positions("endingPosition", "latest"),
        )
        for name, positions in (("startingPosition", starting), ("endingPosition", ending)):
            named = positions.keys() if queues and isinstance(positions, dict) else ()
            others = sorted(each for each in named if each not in queues and _topic_of(each) not in queues)
            if others:
                raise OptionError(f"option {name} has a position for {others[0]!r}, which is not in option subscribe")
        return cls(
            endpoint=Endpoint.of(options.text("connection"), options.text("url")),
            queues=queues,
            pattern=pattern or "",
            group=options.name("group") or "",
            starting=starting,
            ending=ending,
            most=options.number("maxMessagesPerTrigger", MESSAGES_PER_TRIGGER) or 0,
            most_of_partition=options.number("maxMessagesPerPartition", MESSAGES_PER_PARTITION) or 0,
            partitions=options.number("minPartitions", None),
            fail_on_loss=options.flag("failOnDataLoss", True),
            in_transaction=options.choice("acknowledge", "transaction", "commit") == "transaction",
            app_id=options.text("txn.app_id"),
            sink_id=options.text("txn.sink_id"),
            seconds=options.seconds("txn.timeout", TRANSACTION_SECONDS, *BRANCH_SECONDS),
            reconnect=options.seconds("reconnectTimeout", RECONNECT_SECONDS, 0, MOST_RECONNECT_SECONDS),
        )


def _topic_of(name: str) -> str | None:
    """Return the topic to which a stream of this name would belong."""
    found = _STREAM_OF_TOPIC.fullmatch(name)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of `writeStream` and `write`. A missing option is None."""

    endpoint: Endpoint
    exchange: str | None
    queue: str | None
    routing_key: str | None
    app_id: str | None
    sink_id: str | None
    version: int | None
    seconds: int
    reconnect: int = RECONNECT_SECONDS
    checkpoint: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse the options.

        Raises:
            OptionError: an option is unknown, invalid, or excluded by another.
        """
        options = Options(given, _SINK, "sink")
        queue, exchange, key = (options.name(name) for name in ("queue", "exchange", "routingKey"))
        if queue is not None and (exchange is not None or key is not None):
            raise OptionError("option queue cannot be combined with exchange or routingKey")
        version = options.number("txn.version", None, 0)
        if version is not None and options.text("txn.app_id") is None:
            raise OptionError("option txn.version requires txn.app_id, the application that the version belongs to")
        return cls(
            endpoint=Endpoint.of(options.text("connection"), options.text("url")),
            exchange=exchange,
            queue=queue,
            routing_key=key,
            app_id=options.text("txn.app_id"),
            sink_id=options.text("txn.sink_id"),
            version=version,
            seconds=options.seconds("txn.timeout", TRANSACTION_SECONDS, *BRANCH_SECONDS),
            reconnect=options.seconds("reconnectTimeout", RECONNECT_SECONDS, 0, MOST_RECONNECT_SECONDS),
            checkpoint=options.text("checkpointLocation") or "",
        )
