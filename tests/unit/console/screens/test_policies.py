"""Policies are listed, set and cleared by administrators."""

from __future__ import annotations

import pytest

from tests.unit.console.sites import Browser, notices

PAGE = "/console/policies"
GIVEN = {
    "vhost": "/",
    "name": "p<q>",
    "pattern": "^a",
    "definition": '{"max-length": 3}',
    "priority": "-2",
    "apply_to": "queues",
}


@pytest.mark.parametrize(("kind", "title"), [("policy", "Policy"), ("operator-policy", "Operator policy")])
def test_a_policy_is_set_and_cleared(kind: str, title: str) -> None:
    browser = Browser()
    assert browser.text(PAGE).count("There are no ") == 2
    answer = browser.fill(PAGE, f"{kind}-set", **GIVEN)
    assert notices(answer) == [("done", f"{title} p<q> of virtual host / was set.")]
    text = browser.text(PAGE)
    assert "max-length: 3" in text
    assert text.count("There are no ") == 1
    answer = browser.fill(PAGE, f"{kind}-clear", typed="p<q>")
    assert notices(answer) == [("done", f"{title} p<q> was removed.")]
    assert browser.text(PAGE).count("There are no ") == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"definition": "max-length=3"}, "the definition must be a JSON object"),
        ({"definition": '{"max": 3}'}, "not recognised policy settings"),
        ({"priority": "high"}, "is not a number"),
        ({"pattern": "("}, "invalid regular expression"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_reason(changed: dict[str, str], reason: str) -> None:
    browser = Browser()
    ((state, text),) = notices(browser.fill(PAGE, "policy-set", **GIVEN | changed))
    assert (state, reason in text) == ("failed", True)
    assert browser.text(PAGE).count("There are no ") == 2


def test_those_that_count_first_are_listed_first() -> None:
    browser = Browser()
    for name, priority in (("b", "1"), ("a", "1"), ("c", "5")):
        browser.fill(PAGE, "policy-set", **GIVEN | {"name": name, "priority": priority})
    text = browser.text(PAGE)
    places = [text.index(f'<th scope="row">{name}</th>') for name in ("c", "a", "b")]
    assert places == sorted(places)
