"""The settings that each kind of client cannot do without."""

from __future__ import annotations

from escrowmq.wire.rocketmq.grpc.settings import Retries, completed, duration
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Publishing, Resource, Settings, Subscription


def test_a_producer_gets_a_size_and_an_exponential_back_off() -> None:
    given = Settings(client_type=ClientType.PRODUCER, publishing=Publishing(topics=[Resource(name="t")]))
    found = completed(given, None)
    assert found.publishing.max_body_size == 4 << 20
    assert found.publishing.validate_message_type
    assert found.publishing.topics == given.publishing.topics
    assert found.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    assert found.HasField("metric")
    assert not found.metric.on
    assert not given.HasField("backoff_policy")


def test_a_consumer_gets_the_policy_of_its_group() -> None:
    given = Settings(client_type=ClientType.PUSH_CONSUMER, subscription=Subscription(group=Resource(name="g")))
    found = completed(given, Retries(fifo=True, attempts=5, back_off_ms=(1500, 3000)))
    assert found.subscription.fifo
    assert found.subscription.receive_batch_size == 32
    assert found.subscription.long_polling_timeout.seconds == 20
    assert found.backoff_policy.max_attempts == 5
    assert list(found.backoff_policy.customized_backoff.next) == [duration(1500), duration(3000)]
    assert found.subscription.group.name == "g"
