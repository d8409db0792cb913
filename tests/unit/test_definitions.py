"""Files of definitions."""

from __future__ import annotations

import pytest

from escrowmq.definitions import LONGEST_OBJECT, DefinitionPart, DefinitionsError, ignored, parsed, parts


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"\xff", b"[" * 100_000, b"{"])
def test_other_files_are_refused(text: bytes) -> None:
    with pytest.raises(DefinitionsError, match="no file of definitions"):
        parsed(text)


def test_sections_come_in_the_order_in_which_they_can_be_imported() -> None:
    queue, vhost = {"vhost": "v", "name": "q"}, {"name": "v"}
    document = parsed(b'{"queues": [{"vhost": "v", "name": "q"}], "vhosts": [{"name": "v"}], "more": 1, "users": null}')
    assert list(parts(document)) == [DefinitionPart("vhosts", [vhost]), DefinitionPart("queues", [queue])]
    assert list(parts(document, "w")) == [DefinitionPart("queues", [{"vhost": "w", "name": "q"}])]


def test_long_objects_are_divided_by_their_size() -> None:
    queues = [{"vhost": "v", "name": "q", "arguments": {"a": "x" * 100_000}} for _ in range(5)]
    assert [len(part.objects) for part in parts({"queues": queues})] == [2, 2, 1]


@pytest.mark.parametrize(
    "bad", [{"queues": 1}, {"queues": [1]}, {"queues": [{"name": "q"}]}, {"vhosts": [{"name": 1}]}]
)
def test_a_malformed_document_is_refused_before_anything_is_imported(bad: dict[str, object]) -> None:
    with pytest.raises(DefinitionsError):
        next(parts({"vhosts": [{"name": "v"}]} | bad))


def test_policies_without_a_counterpart_are_left_out_and_counted() -> None:
    names = {"vhost": "/", "name": "p", "pattern": ""}
    policies = [names | {"definition": {key: 1}} for key in ("federation-upstream", "max-length", "consumer-timeout")]
    document: dict[str, object] = {"policies": policies, "operator_policies": [], "global_parameters": 1}
    assert ignored(document) == {"policies": 2}
    del document["global_parameters"]
    assert [part.objects for part in parts(document)] == [[policies[1]]]


QUEUE = {"vhost": "/", "name": "q"}
USER = {"name": "u"}
BINDING = {"vhost": "/", "source": "s", "destination": "d", "destination_type": "queue", "routing_key": ""}


@pytest.mark.parametrize(
    ("section", "given", "field"),
    [
        ("queues", QUEUE | {"durable": "false"}, "durable"),
        ("queues", QUEUE | {"auto_delete": 1}, "auto_delete"),
        ("queues", QUEUE | {"arguments": 5}, "arguments"),
        ("queues", QUEUE | {"arguments": [1]}, "arguments"),
        ("users", USER | {"tags": 5}, "tags"),
        ("users", USER | {"tags": [5]}, "tags"),
        ("users", USER | {"limits": [5]}, "limits"),
        ("users", USER | {"limits": {"max-channels": "x"}}, "limits"),
        ("users", USER | {"password_hash": 5}, "password_hash"),
        ("policies", QUEUE | {"pattern": "", "definition": 5}, "definition"),
        ("policies", QUEUE | {"pattern": "", "definition": {}, "priority": True}, "priority"),
        ("bindings", BINDING | {"destination_type": "topic"}, "destination_type"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_before_anything_is_imported(
    section: str, given: dict[str, object], field: str
) -> None:
    document = {"vhosts": [{"name": "v"}], section: [given]}
    with pytest.raises(DefinitionsError, match=f"{section}: an object has a wrong value in '{field}'"):
        next(parts(document))


def test_an_object_that_the_broker_could_not_take_is_refused_before_anything_is_imported() -> None:
    queues = [QUEUE, QUEUE | {"arguments": {"a": "x" * LONGEST_OBJECT}}]
    with pytest.raises(DefinitionsError, match="an object has more than"):
        next(parts({"queues": queues}))
