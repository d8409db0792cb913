"""Global parameters: kept as they are, through restarts and snapshots."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.policies import parameters
from tests.unit.core.site import Site


def test_values_survive_a_restart_and_a_snapshot() -> None:
    site = Site()
    values = {"a": {"b": [1, None, "c"]}, "n": 1.5, "none": None}
    known = site.broker.directory.policies.parameters
    assert all(known.put(name, value) for name, value in values.items())
    assert not known.put("a", values["a"])
    known.put("gone", 1)
    known.remove("gone")
    site.sync()
    assert site.restart().broker.directory.policies.parameters.values == values
    site.snapshot()
    assert site.restart().broker.directory.policies.parameters.values == values


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BrokerError, match="no global parameter 'no'"):
        Site().broker.directory.policies.parameters.remove("no")


@pytest.mark.rule("FAIR-3")
def test_number_and_size_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    known = site.broker.directory.policies.parameters
    for name, value in (("", 1), ("long", "x" * parameters.LONGEST)):
        with pytest.raises(BrokerError) as refused:
            known.put(name, value)
        assert refused.value.condition is Condition.INVALID_ARGUMENT
    monkeypatch.setattr(parameters, "MOST", 1)
    known.put("a", 1)
    with pytest.raises(BrokerError, match="the limit; delete one"):
        known.put("b", 1)
    known.put("a", 2)
    site.broker.engine.scarcity = "low on memory"
    known.put("a", 3)
    monkeypatch.setattr(parameters, "MOST", 2)
    with pytest.raises(BrokerError, match="low on memory"):
        known.put("b", 1)
