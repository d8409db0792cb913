"""Ids and properties of the load's messages."""

from __future__ import annotations

from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.rocketmq.properties import (
    FIRST_NUMBER,
    id_prefix,
    load_messages,
    numbered,
    parsed,
    rendered,
    user_properties,
)
from escrowmq.perf.workload import ROCKETMQ, workload_of


def test_an_id_has_its_length_and_ends_with_its_number() -> None:
    ident = numbered(id_prefix(32), FIRST_NUMBER)
    assert (len(ident), ident[-10:]) == (32, "1000000000")


def test_each_message_has_a_key_of_its_own() -> None:
    made = load_messages(workload_of(None, {"protocol": ROCKETMQ, "confirms": True}), 0)
    assert len({message.message_id for message in made}) == len(made)


def test_messages_fill_whole_batches() -> None:
    made = load_messages(workload_of(None, {"protocol": ROCKETMQ, "confirms": True, "batch": 32}), 0)
    assert made
    assert len(made) % 32 == 0


def test_properties_are_read_as_they_were_written() -> None:
    assert parsed(rendered({"KEYS": "a b", "TAGS": "t"}.items())) == {"KEYS": "a b", "TAGS": "t"}


def test_headers_and_the_correlation_id_are_properties_of_the_application() -> None:
    message = LoadMessage(b"", correlation_id="c", headers={"sequence": 5})
    assert user_properties(message) == {"sequence": "5", "correlation-id": "c"}
