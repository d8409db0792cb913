"""The streams that a topic needs, and their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange
from escrowmq.core.topology.partitions import check_new_streams, check_not_partition, stream_arguments
from tests.unit.core.site import Site

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue


def test_streams_get_the_retention_of_the_topic() -> None:
    arguments = {"x-partitions": 2, "x-message-type": "fifo", "x-max-age": "1D", "x-max-length-bytes": 5}
    assert stream_arguments(arguments) == {"x-queue-type": "stream", "x-max-age": "1D", "x-max-length-bytes": 5}


def test_only_missing_streams_are_new() -> None:
    site = Site()
    topic = site.broker.topics.declare(site.vhost, "t", 2)
    assert check_new_streams(site.vhost, topic.exchange, 4, site.broker.access) == range(2, 4)
    assert not check_new_streams(site.vhost, topic.exchange, 2, site.broker.access)


def test_the_names_of_streams_are_those_that_clients_may_use() -> None:
    site = Site()
    exchange: PartitionedExchange[Queue] = PartitionedExchange("amq.t", durable=True)
    with pytest.raises(BrokerError, match="reserved prefix"):
        check_new_streams(site.vhost, exchange, 1, site.broker.access)


def test_a_queue_that_is_bound_elsewhere_is_no_partition() -> None:
    site = Site()
    queue = site.queue("q")
    site.broker.directory.bind_queue(site.vhost, "amq.direct", "q", "k")
    check_not_partition(site.vhost, queue)


@pytest.mark.rule("FAIR-1")
def test_a_stream_of_a_topic_is_recognised_among_queues_of_similar_names() -> None:
    site = Site()
    directory, vhost = site.broker.directory, site.vhost
    site.broker.topics.declare(vhost, "t", 2)
    for name in ("t-2", "t-", "t-x", "t-01"):
        directory.delete_queue(site.queue(name))
    with pytest.raises(BrokerError, match="is a stream of topic 't'"):
        directory.delete_queue(vhost.queue("t-1"))
