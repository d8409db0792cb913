"""Forms become arguments of operations, or are refused."""

from __future__ import annotations

from inspect import signature

import pytest

from escrowmq.admin.audit import LOGGED
from escrowmq.console.actions import ACTIONS, AUDIT, BACKUP, FormRefused, arguments_of, outcome_of
from tests.unit.admin.http.sites import HttpSite

GIVEN = {"xid": "1:a:b", "typed": "1:a:b", "why": " because "}


def test_a_form_becomes_the_arguments_of_an_operation() -> None:
    assert arguments_of(ACTIONS["branch-commit"], GIVEN, {"by": "u"}) == {"xid": "1:a:b", "by": "u", "why": "because"}
    form = {"name": "v", "password": "p", "tags": "monitoring, administrator"}
    assert arguments_of(ACTIONS["user-add"], form, {"by": "u"})["tags"] == ["monitoring", "administrator"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"typed": "1:a"}, "typed"),
        ({"typed": ""}, "typed"),
        ({"why": " "}, "reason"),
        ({"why": "x" * 1001}, "reason"),
    ],
)
def test_an_incomplete_form_is_refused(change: dict[str, str], text: str) -> None:
    with pytest.raises(FormRefused, match=text):
        arguments_of(ACTIONS["branch-commit"], GIVEN | change, {"by": "u"})


@pytest.mark.parametrize(("name", "value"), [("count", "-1"), ("count", "x"), ("count", ""), ("count", "9" * 10)])
def test_a_number_is_a_number(name: str, value: str) -> None:
    form = {"vhost": "/", "queue": "a", "destination": "b", "count": "5"}
    assert arguments_of(ACTIONS["queue-move"], form, {"by": "u"})["count"] == 5
    with pytest.raises(FormRefused, match="not a number"):
        arguments_of(ACTIONS["queue-move"], form | {name: value}, {"by": "u"})


@pytest.mark.parametrize("value", ["[]", "x", "[" * 10_000])
def test_properties_are_a_json_object(value: str) -> None:
    form = {"vhost": "/", "exchange": "", "routing_key": "q", "payload": "p", "properties": ""}
    assert arguments_of(ACTIONS["message-publish"], form, {"by": "u"})["properties"] == {}
    with pytest.raises(FormRefused, match="JSON object"):
        arguments_of(ACTIONS["message-publish"], form | {"properties": value}, {"by": "u"})


def test_a_form_without_a_field_is_refused() -> None:
    with pytest.raises(FormRefused, match="xid"):
        arguments_of(ACTIONS["branch-commit"], {"typed": "", "why": "x"}, {"by": "u"})


@pytest.mark.parametrize("name", [name for name, each in ACTIONS.items() if each.operation not in {AUDIT, BACKUP}])
def test_every_action_is_an_operation_of_the_broker_with_these_arguments(name: str) -> None:
    action = ACTIONS[name]
    operation = HttpSite().broker._operations[action.operation]
    assert set(action.fields) <= set(signature(operation, follow_wrapped=True).parameters)
    assert action.logged == (action.operation in LOGGED)
    assert action.typed in ("", *action.fields)
    assert outcome_of(action, dict.fromkeys(action.fields, ""), 5)


@pytest.mark.parametrize("text", ['{"a": 1e400}', '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 40 + "1" + "}" * 40])
def test_json_that_no_client_could_use_is_refused(text: str) -> None:
    form = {"vhost": "/", "exchange": "", "routing_key": "q", "payload": "", "properties": text}
    with pytest.raises(FormRefused, match="JSON object"):
        arguments_of(ACTIONS["message-publish"], form, {"by": "guest"})
