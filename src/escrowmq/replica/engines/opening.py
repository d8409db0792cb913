"""Opens the log that a URL names."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from escrowmq.replica.engines.address import KAFKA, NATS, NATS_TLS, EngineAddress
from escrowmq.replica.engines.errors import EngineMissing, SettingsRefused
from escrowmq.replica.engines.port import EngineLog
from escrowmq.urls import redacted

TIMEOUT_SECONDS: Final = 10.0
"""How long a call waits for the engine. Engines need 5 to 10 s to replace a node that was killed."""


_LIBRARIES: Final = {
    KAFKA: ("Kafka", "confluent_kafka", "replication-kafka"),
    NATS: ("NATS", "nats", "replication-nats"),
    NATS_TLS: ("NATS", "nats", "replication-nats"),
}
"""By scheme: the engine, the module of its library, and the extra that installs it."""
_COMPRESSION: Final = "zstandard"
"""The module that all extras install."""


def check_url(url: str) -> None:
    """Check what can be checked without the engine.

    Raises:
        ValueError: The URL is invalid, or the library refuses its parameters.
        EngineMissing: The library is not installed.
    """
    address = EngineAddress.parse(url)
    engine, library, extra = _LIBRARIES[address.scheme]
    if not (_installed(library) and _installed(_COMPRESSION)):
        raise EngineMissing(engine, extra)
    if address.scheme == KAFKA:
        from escrowmq.replica.engines.kafka import check_options
    else:
        from escrowmq.replica.engines.nats_login import check_options
    try:
        check_options(address)
    except ValueError as error:
        raise ValueError(f"bad URL {redacted(url)}: {error}") from None


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it is None in `sys.modules`
        return False


def open_log(url: str, *, timeout: float = TIMEOUT_SECONDS) -> EngineLog:
    """Connect to an engine, and create the topic or stream unless it exists. Blocks for up to `timeout` seconds.

    Raises:
        ValueError: The URL is invalid.
        EngineMissing: The library is not installed.
        SettingsRefused: The topic or stream has settings with which confirmed messages could be lost.
        OSError: The engine cannot be reached, or refuses the login.
    """
    address = EngineAddress.parse(url)
    log = _open(address, timeout)
    try:
        wrong = log.check()
    except BaseException:
        log.close()
        raise
    if wrong:
        log.close()
        raise SettingsRefused(wrong)
    return log


def _open(address: EngineAddress, timeout: float) -> EngineLog:
    if address.scheme == KAFKA:
        try:
            from escrowmq.replica.engines.kafka import KafkaLog
        except ModuleNotFoundError as error:
            raise _missing(error, address.scheme) from None
        return KafkaLog(address, timeout)
    try:
        from escrowmq.replica.engines.nats import NatsLog
    except ModuleNotFoundError as error:
        raise _missing(error, address.scheme) from None
    return NatsLog(address, timeout)


def _missing(error: ModuleNotFoundError, scheme: str) -> Exception:
    """Return what to raise if an import failed."""
    engine, library, extra = _LIBRARIES[scheme]
    return EngineMissing(engine, extra) if (error.name or "").partition(".")[0] == library else error
