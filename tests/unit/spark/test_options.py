"""Options have defaults, and invalid ones are refused with one clear line."""

from __future__ import annotations

import pytest

from escrowmq.spark.endpoint import Endpoint
from escrowmq.spark.errors import OptionError
from escrowmq.spark.options import MESSAGES_PER_PARTITION, MESSAGES_PER_TRIGGER, SinkOptions, SourceOptions


def test_a_source_needs_only_a_queue() -> None:
    found = SourceOptions.of({"subscribe": "orders"})
    assert (found.queues, found.pattern, found.group) == (("orders",), "", "")
    assert (found.starting, found.ending, found.partitions) == ("earliest", "latest", None)
    assert (found.most, found.most_of_partition) == (MESSAGES_PER_TRIGGER, MESSAGES_PER_PARTITION)
    assert found.fail_on_loss
    assert found.in_transaction
    assert found.endpoint == Endpoint(variable="ESCROWMQ_URL")


def test_options_of_a_source_are_case_insensitive() -> None:
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
            "path": "added by Spark",
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
        ({}, "set exactly one of the options subscribe"),
        ({"subscribe": "a", "subscribePattern": "b"}, "set exactly one of the options subscribe"),
        ({"subscribe": " , "}, "names no queue and no topic"),
        ({"subscribePattern": "("}, "is not a valid regular expression"),
        ({"subscribe": "a", "topic": "b"}, "unknown option of the source: topic; valid options: connection, url,"),
        ({"subscribe": "a", "queue": "b"}, "unknown option of the source: queue"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions must be an integer of at least 1, not '0'"),
        ({"subscribe": "a", "maxMessagesPerTrigger": "many"}, "must be an integer of at least 1, not 'many'"),
        (
            {"subscribe": "a", "txn.timeout": "0"},
            "txn.timeout must be from 1 to 86400 whole seconds, such as 30",
        ),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "must be true or false, not 'no'"),
        ({"subscribe": "a", "acknowledge": "never"}, "must be transaction or commit, not 'never'"),
        ({"subscribe": "a", "startingPosition": "first"}, "must be earliest, latest, or JSON such as"),
        ({"subscribe": "a", "startingPosition": '{"a": -1}'}, "must be earliest, latest, or JSON such as"),
        ({"subscribe": "a", "startingPosition": '{"a": true}'}, "must be earliest, latest, or JSON such as"),
        (
            {"subscribe": "a", "startingPosition": '{"a": 1, "b": 2}'},
            "has a position for 'b', which is not in option subscribe",
        ),
        (
            {"subscribe": "a", "startingPosition": '{"b-1": 2}'},
            "has a position for 'b-1', which is not in option subscribe",
        ),
        ({"subscribe": "a", "group": "g" * 256}, "group may have at most 255 bytes"),
        ({"subscribe": "a," + "ü" * 128}, "a queue's name may have at most 255 bytes"),
    ],
)
def test_invalid_options_of_a_source_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.of(given)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_position_may_be_that_of_a_stream_of_a_topic() -> None:
    assert SourceOptions.of({"subscribe": "a", "startingPosition": '{"a-10": 2}'}).starting == {"a-10": 2}


def test_options_of_a_sink_are_parsed() -> None:
    found = SinkOptions.of(
        {"exchange": "", "routingKey": "late", "txn.app_id": "job", "txn.version": "3", "checkpointLocation": "/x"}
    )
    assert (found.exchange, found.queue, found.routing_key) == (None, None, "late")
    assert (found.app_id, found.sink_id, found.version) == ("job", None, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"queue": "q", "exchange": "e"}, "option queue cannot be combined with exchange or routingKey"),
        ({"queue": "q", "routingKey": "k"}, "option queue cannot be combined with exchange or routingKey"),
        ({"queue": "q", "txn.version": "1"}, "txn.version requires txn.app_id"),
        ({"queue": "q", "txn.app_id": "a", "txn.version": "-1"}, "txn.version must be an integer of at least 0"),
        ({"queue": "q", "subscribe": "a"}, "unknown option of the sink: subscribe"),
        ({"queue": "q" * 256}, "queue may have at most 255 bytes"),
    ],
)
def test_invalid_options_of_a_sink_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        SinkOptions.of(given)
    assert text in str(caught.value)


def test_a_url_is_not_shown_by_repr() -> None:
    options = {"url": "amqp://me:secret@host/", "subscribe": "a"}
    assert "secret" not in repr(SourceOptions.of(options))
    assert SourceOptions.of(options).endpoint.resolve() == options["url"]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        *[("0", 0), ("30", 30), (" 7 ", 7), ("30s", 30), ("2m", 120), ("2 min", 120)],
        *[("1H", 3600), ("1d", 86_400), ("1.5m", 90), ("2000ms", 2)],
    ],
)
def test_a_duration_may_have_one_of_sparks_units(given: str, seconds: int) -> None:
    options = {"subscribe": "q", "reconnectTimeout": given}
    assert SourceOptions.of(options).reconnect == seconds


@pytest.mark.parametrize("given", ["soon", "-1", "2 days", "1ms", "0.5", "25h", "1e3", "s", "\u0663"])
def test_another_duration_is_refused_with_examples(given: str) -> None:
    with pytest.raises(OptionError, match="from 0 to 86400 whole seconds, such as 30, 30s or 2m, not"):
        SourceOptions.of({"subscribe": "q", "reconnectTimeout": given})


def test_the_timeout_of_branches_is_a_duration_too() -> None:
    assert SinkOptions.of({"queue": "q", "txn.timeout": "10m"}).seconds == 600
    with pytest.raises(OptionError, match="from 1 to 86400 whole seconds"):
        SinkOptions.of({"queue": "q", "txn.timeout": "0s"})


def test_a_table_in_a_catalog_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(OptionError, match=r"cannot be a table of a catalog .* use CREATE TEMPORARY VIEW"):
        SourceOptions.of({"owner": "me", "provider": "escrowmq", "option.subscribe": "q"})
