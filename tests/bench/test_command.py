"""The command line of the benchmark."""

from __future__ import annotations

import click
import pytest

from bench.command import chosen
from bench.scenarios import SCENARIOS


def test_patterns_choose_scenarios_in_the_order_in_which_they_run() -> None:
    assert chosen("tx1x64,tx1,confirms") == ["confirms", "tx1", "tx1x64"]
    assert chosen("amqp10-held-*") == ["amqp10-held-received", "amqp10-held-published"]
    assert chosen("*") == list(SCENARIOS)


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="unknown scenario 'amqp11-\\*'; the scenarios are transient, "):
        chosen("confirms,amqp11-*")
