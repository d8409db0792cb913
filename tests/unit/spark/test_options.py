"""Options: what they mean, and what is refused in one clear line."""

from __future__ import annotations

import pytest

from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import OptionError
from escrowmq.spark.options import MESSAGES_PER_PARTITION, MESSAGES_PER_TRIGGER, SinkOptions, SourceOptions


def test_a_source_with_as_little_as_possible() -> None:
    found = SourceOptions.of({"subscribe": "orders"})
    assert (found.queues, found.pattern, found.group) == (("orders",), "", "")
    assert (found.starting, found.ending, found.partitions) == ("earliest", "latest", None)
    assert (found.most, found.most_of_partition) == (MESSAGES_PER_TRIGGER, MESSAGES_PER_PARTITION)
    assert found.fail_on_loss
    assert found.in_transaction
    assert found.endpoint == Endpoint(variable="ESCROWMQ_URL")


def test_a_source_with_everything_in_any_case() -> None:
    found = SourceOptions.of(
        {
            "CONNECTION": "env:BROKER",
            "subscribe": "b, a,b",
            "GROUP": "etl",
            "startingposition": '{"a": 7}',
            "endingPosition": "EARLIEST",
            "maxMessagesPerTrigger": "10",
            "maxmessagesperpartition": "5",
            "minPartitions": "3",
            "failOnDataLoss": "FALSE",
            "acknowledge": "Commit",
            "txn.app_id": "job",
            "txn.sink_id": "one",
            "txn.timeout": "60",
            "path": "what Spark adds",
        }
    )
    assert found == SourceOptions(
        endpoint=Endpoint(variable="BROKER"),
        queues=("b", "a"),
        pattern="",
        group="etl",
        starting={"a": 7},
        ending="earliest",
        most=10,
        most_of_partition=5,
        partitions=3,
        fail_on_loss=False,
        in_transaction=False,
        app_id="job",
        sink_id="one",
        seconds=60,
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "give exactly one of the options subscribe"),
        ({"subscribe": "a", "subscribePattern": "b"}, "give exactly one of the options subscribe"),
        ({"subscribe": " , "}, "names no queue"),
        ({"subscribePattern": "("}, "is no regular expression"),
        ({"subscribe": "a", "topic": "b"}, "unknown option of the source: topic; there are connection, url,"),
        ({"subscribe": "a", "queue": "b"}, "unknown option of the source: queue"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions is a whole number of at least 1, not '0'"),
        ({"subscribe": "a", "maxMessagesPerTrigger": "many"}, "is a whole number of at least 1, not 'many'"),
        ({"subscribe": "a", "txn.timeout": "0"}, "txn.timeout is a whole number from 1 to 86400, not '0'"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "is true or false, not 'no'"),
        ({"subscribe": "a", "acknowledge": "never"}, "is transaction or commit, not 'never'"),
        ({"subscribe": "a", "startingPosition": "first"}, "is earliest, latest, or JSON as"),
        ({"subscribe": "a", "startingPosition": '{"a": -1}'}, "is earliest, latest, or JSON as"),
        ({"subscribe": "a", "startingPosition": '{"a": true}'}, "is earliest, latest, or JSON as"),
        (
            {"subscribe": "a", "startingPosition": '{"a": 1, "b": 2}'},
            "has a position for 'b', which option subscribe does",
        ),
        ({"subscribe": "a", "group": "g" * 256}, "group has at most 255 bytes"),
        ({"subscribe": "a," + "ü" * 128}, "a queue's name has at most 255 bytes"),
    ],
)
def test_what_a_source_refuses(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(given)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sink() -> None:
    found = SinkOptions.of(
        {"exchange": "", "routingKey": "late", "txn.app_id": "job", "txn.version": "3", "checkpointLocation": "/x"}
    )
    assert (found.exchange, found.queue, found.routing_key) == (None, None, "late")
    assert (found.app_id, found.sink_id, found.version) == ("job", None, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queue": "q", "exchange": "e"}, "option queue goes with neither exchange nor routingKey"),
        ({"queue": "q", "routingKey": "k"}, "option queue goes with neither exchange nor routingKey"),
        ({"queue": "q", "txn.version": "1"}, "txn.version needs txn.app_id"),
        ({"queue": "q", "txn.app_id": "a", "txn.version": "-1"}, "txn.version is a whole number of at least 0"),
        ({"queue": "q", "subscribe": "a"}, "unknown option of the sink: subscribe"),
        ({"queue": "q" * 256}, "queue has at most 255 bytes"),
    ],
)
def test_what_a_sink_refuses(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        SinkOptions.of(given)
    assert text in str(caught.value)


def test_a_url_is_nowhere_to_be_seen() -> None:
    options = {"url": "amqp://me:secret@host/", "subscribe": "a"}
    assert "secret" not in repr(SourceOptions.of(options))
    assert SourceOptions.of(options).endpoint.resolve() == options["url"]
