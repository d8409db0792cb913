"""The kinds of values and of tables in the configuration: how each is read, and the form in which it is described."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic import ValidationInfo as Info

from escrowmq.units import (
    ADDRESS_FORM,
    DURATION_FORM,
    SIZE_FORM,
    Address,
    parse_address,
    parse_duration,
    parse_size,
)

LEAST_WATERMARK = 1 << 20
"""The lowest watermark in bytes. A smaller number is probably a mistake, such as a percentage."""
HELD_FORM = 'a share of `memory.high_watermark` like 0.4, or a size of at least 1 MiB like "1GiB"'
CONNECTIONS_FORM = "a share of `limits.connections` like 0.8, or a whole number; 0 for no limit"
WATERMARK_FORM = 'a share of this machine\'s memory like 0.4, or a size of at least 1 MiB like "1GiB"'

MOST_CHECKS = 65_535
TOPIC_CHECKS_FORM = 'a text of five parts, virtual host, topic, timeout, interval and checks, as in "/ orders 10s 1m 5"'

BROKER_URL_FORM = 'a URL like "amqp://broker-1.example:5672" without a login, or an empty text'
VERSION_FORM = 'three numbers like "4.2.0", or an empty text'


class Section(BaseModel):
    """A table of the file. Unknown keys are refused, values are not converted, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class Accepts:
    """A description of the accepted values, for the documentation."""

    form: str


def _watermark(value: object, form: str = WATERMARK_FORM) -> float | int:
    if isinstance(value, float) and 0 < value <= 1:
        return value
    try:
        size = parse_size(value)
    except ValueError:
        size = 0
    if size < LEAST_WATERMARK:
        raise ValueError(form)
    return size


def _connections(value: object) -> float | int:
    if isinstance(value, float) and 0 < value <= 1:
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(CONNECTIONS_FORM)
    return value


def in_bytes(mark: float, total: int) -> int:
    """Return a watermark in bytes: a whole number is one already, another one is a share of `total`."""
    return mark if isinstance(mark, int) else int(mark * total)


def some_mechanism(mechanisms: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an empty list of mechanisms."""
    if not mechanisms:
        raise ValueError("at least one mechanism")
    return mechanisms


def some_algorithm(algorithms: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an empty list of algorithms."""
    if not algorithms:
        raise ValueError("at least one algorithm")
    return algorithms


def _version(text: str) -> str:
    if text and re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", text) is None:
        raise ValueError(VERSION_FORM)
    return text


def _broker_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        named = parts.scheme and parts.hostname and "@" not in parts.netloc and parts.port != 0
        if text and not (named and text.isascii() and text.isprintable()):
            raise ValueError
    except ValueError:
        raise ValueError(BROKER_URL_FORM) from None
    return text


def _beside_the_file(path: Path, info: Info) -> Path:
    if path == Path():  # the result of an empty text: the folder of the file itself, which is never intended
        raise ValueError("a path")
    folder = (info.context or {}).get("folder")
    return Path(folder, path) if folder else path


Size = Annotated[int, BeforeValidator(parse_size), Accepts(SIZE_FORM)]
Duration = Annotated[float, BeforeValidator(parse_duration), Accepts(DURATION_FORM)]
Listen = Annotated[Address, BeforeValidator(parse_address), Accepts(ADDRESS_FORM)]
Watermark = Annotated[float | int, BeforeValidator(_watermark), Accepts(WATERMARK_FORM)]
HeldMemory = Annotated[float | int, BeforeValidator(lambda value: _watermark(value, HELD_FORM)), Accepts(HELD_FORM)]
Connections = Annotated[float | int, BeforeValidator(_connections), Accepts(CONNECTIONS_FORM)]
File = Annotated[
    Path,
    Field(strict=False),
    AfterValidator(_beside_the_file),
    Accepts("a path; a relative one starts at the folder of the configuration file"),
]
Secret = Annotated[SecretStr, Field(strict=False), Accepts("a text")]
BrokerUrl = Annotated[str, AfterValidator(_broker_url), Accepts(BROKER_URL_FORM)]
Version = Annotated[str, AfterValidator(_version), Accepts(VERSION_FORM)]
TokenAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
]
Mechanism = Literal["PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class TopicCheckOptions(NamedTuple):
    """When the half messages of one topic are checked; times are in seconds."""

    vhost: str
    topic: str
    timeout: float
    interval: float
    checks: int


def _topic_checks(value: object) -> TopicCheckOptions:
    words = value.split(" ") if isinstance(value, str) else []
    if len(words) != len(TopicCheckOptions._fields):
        raise ValueError(TOPIC_CHECKS_FORM)
    vhost, topic, timeout, interval, checks = words
    try:
        found = TopicCheckOptions(
            vhost, topic, parse_duration(timeout), parse_duration(interval), int(checks) if checks.isdecimal() else 0
        )
    except ValueError:
        raise ValueError(TOPIC_CHECKS_FORM) from None
    if found.timeout <= 0 or found.interval <= 0 or not 1 <= found.checks <= MOST_CHECKS:
        raise ValueError(TOPIC_CHECKS_FORM)
    return found


TopicChecks = Annotated[TopicCheckOptions, BeforeValidator(_topic_checks), Accepts(TOPIC_CHECKS_FORM)]
