"""The options of an audit."""

from __future__ import annotations

from typing import Final, NamedTuple


class Options(NamedTuple):
    """Options of an audit.

    Args:
        payloads: whether the table of records contains their payloads.
        prepared_seconds: the time in seconds after which a branch in doubt is a violation.
        unsettled_seconds: the time in seconds after which an unsettled delivery of a durable link is a violation.
        routing: the share of the log's records whose messages are routed again, from 0 to 1.
        ids: whether the table of messages contains their message ids, correlation ids and publishers.
        format: "parquet", or "delta" or "iceberg" to write silver and gold in that format as well; None takes the
            session's default source if it is one of these.
    """

    payloads: bool = True
    prepared_seconds: float = 3600.0
    unsettled_seconds: float = 86400.0
    routing: float = 0.0
    ids: bool = True
    format: str | None = None


OPTIONS: Final = Options()
