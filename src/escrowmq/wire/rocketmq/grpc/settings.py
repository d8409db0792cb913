"""The settings that a client gets: its own, completed by those that it needs from the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration

from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    CustomizedBackoff,
    ExponentialBackoff,
    Metric,
    RetryPolicy,
    Settings,
)

LARGEST_BODY: Final = 4 << 20
RECEIVE_BATCH: Final = 32
LONG_POLLING_MS: Final = 20_000
_SEND_ATTEMPTS: Final = 3


class Retries(NamedTuple):
    """How a consumer group retries. `attempts` includes the first one."""

    fifo: bool
    attempts: int
    back_off_ms: Sequence[int]


def duration(milliseconds: int) -> Duration:
    """Return a duration for the wire."""
    return Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def completed(settings: Settings, retries: Retries | None) -> Settings:
    """Return the answer to a client's settings. `retries` is that of its consumer group, None for a producer."""
    answer = Settings()
    answer.CopyFrom(settings)
    answer.metric.CopyFrom(Metric(on=False))
    if answer.WhichOneof("pub_sub") == "publishing":
        # Java's client refuses to start without the back-off, and takes a size of 0 as the limit.
        answer.publishing.max_body_size = LARGEST_BODY
        answer.publishing.validate_message_type = True
        answer.backoff_policy.CopyFrom(
            RetryPolicy(
                max_attempts=_SEND_ATTEMPTS,
                exponential_backoff=ExponentialBackoff(initial=duration(10), max=duration(1000), multiplier=2),
            )
        )
    elif retries is not None:
        subscription = answer.subscription
        subscription.fifo = retries.fifo
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.CopyFrom(duration(LONG_POLLING_MS))
        answer.backoff_policy.CopyFrom(
            RetryPolicy(
                max_attempts=retries.attempts,
                customized_backoff=CustomizedBackoff(next=[duration(each) for each in retries.back_off_ms]),
            )
        )
    return answer
