"""The settings of the replicated log."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from escrowmq.config.replication import ReplicationSection


@pytest.mark.parametrize("url", ["", "amqp://broker-1.example:5672", "amqps://[::1]", "amqp://10.0.0.1"])
def test_the_address_for_clients_of_a_leader_is_a_url(url: str) -> None:
    assert ReplicationSection(advertised_url=url).advertised_url == url


@pytest.mark.parametrize(
    "url",
    ["broker-1", "broker-1:5672", "amqp://", "amqp://h:port", "amqp://[::1", "amqp://u:p@h", "amqp://h\n", "amqp://é"],
)
def test_other_nodes_do_not_get_an_address_that_they_cannot_use(url: str) -> None:
    with pytest.raises(ValidationError, match=r'a URL like "amqp://broker-1\.example:5672" without a login'):
        ReplicationSection(advertised_url=url)
