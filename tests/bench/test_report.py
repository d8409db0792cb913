"""The benchmark's report: medians, ratios, targets, and the entries that stay in the file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import report
from bench.backlogs import Backlog
from bench.measure import Measurement
from bench.rates import Rate
from bench.scenario import steadiness
from bench.scenarios import SCENARIOS


def runs(own: list[float], other: list[float]) -> report.Runs:
    return {
        "EscrowMQ": [Measurement({"x": value}) for value in own],
        "RabbitMQ": [Measurement({"x": value}) for value in other],
    }


@pytest.mark.parametrize(
    ("own", "other", "ratio", "met"),
    [
        ([30, 10, 20], [5, 4, 6], 4.0, True),
        ([30, 10, 19], [5, 4, 6], 3.8, False),
        ([30], [], None, None),
        ([], [5], None, None),
        ([30], [0], None, None),
    ],
)
def test_a_rate_is_judged_by_the_ratio_of_medians(
    own: list[float], other: list[float], ratio: float | None, met: bool | None
) -> None:
    entry = report.figures_of(Rate("x", "title", 4), runs(own, other))["x"]
    assert (entry["ratio"], entry["met"], entry["target"]) == (ratio, met, "≥ 4×")


@pytest.mark.parametrize(("scenario", "ratio"), [("amqp10-varied-first", 3.0), ("amqp10-varied-latency", 6.0)])
def test_the_better_of_several_brokers_is_compared(scenario: str, ratio: float) -> None:
    """The better one has the higher rate, but the lower latency."""
    chosen = SCENARIOS[scenario]
    values = {"EscrowMQ": 12.0, "Artemis": 4.0, "Broker-J": 2.0}
    measured = {
        name: [Measurement(dict.fromkeys((figure.name for figure in chosen.figures), value))]
        for name, value in values.items()
    }
    assert report.figures_of(chosen, measured)[scenario]["ratio"] == ratio


@pytest.mark.parametrize(
    ("own", "other", "met"), [(200.0, 300.0, True), (260.0, 300.0, False), (200.0, 100.0, False), (260.0, None, False)]
)
def test_memory_is_judged_by_its_limit_and_by_the_other_broker(own: float, other: float | None, met: bool) -> None:
    scenario = Backlog()
    measured = {
        "EscrowMQ": [Measurement(dict.fromkeys((figure.name for figure in scenario.figures), own))],
        "RabbitMQ": []
        if other is None
        else [Measurement(dict.fromkeys((figure.name for figure in scenario.figures), other))],
    }
    entry = report.figures_of(scenario, measured)["backlog.memory"]
    assert (entry["target"], entry["met"]) == ("≤ 1×, < 250 MB", met)


def entry(value: float) -> dict[str, object]:
    return {
        "syncs_per_second": 1000,
        "commits_per_sync": 7.5,
        "figures": report.figures_of(Rate("x", "a title", 4), runs([value], [1.0])),
        "errors": {"RabbitMQ": "it broke"},
    }


def test_the_table_shows_figures_context_and_errors() -> None:
    out = io.StringIO()
    report.show(Console(file=out, width=200), [entry(1234.0)])
    for text in ("a title, messages/s", "1,234 / 1,234 / 1,234", "1234.00×", "≥ 4×", "met", "1,000", "7.5", "it broke"):
        assert text in out.getvalue()


def test_a_partial_run_leaves_the_other_scenarios_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    machine = {"cores": 2}
    report.write(path, machine, {"EscrowMQ": "1"}, {"a": entry(1), "b": entry(2)})
    report.write(path, machine, {"EscrowMQ": "1"}, {"b": entry(3)})
    scenarios = json.loads(path.read_text())["scenarios"]
    assert [scenarios[name]["figures"]["x"]["brokers"]["EscrowMQ"]["median"] for name in "ab"] == [1, 3]


def test_results_of_another_version_go(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    report.write(path, {"cores": 2}, {"EscrowMQ": "1"}, {"a": entry(1)})
    report.write(path, {"cores": 2}, {"EscrowMQ": "2"}, {"b": entry(2)})
    assert json.loads(path.read_text())["scenarios"].keys() == {"b"}


def test_results_stay_when_further_brokers_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    report.write(path, {"cores": 2}, {"EscrowMQ": "1", "RabbitMQ": "3"}, {"a": entry(1)})
    found = report.write(path, {"cores": 2}, {"EscrowMQ": "1", "Artemis": "2"}, {"b": entry(2)})
    assert found["scenarios"].keys() == {"a", "b"}
    assert found["versions"] == {"EscrowMQ": "1", "RabbitMQ": "3", "Artemis": "2"}


def test_results_of_another_machine_say_so(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    report.write(path, {"cores": 2}, {"EscrowMQ": "1"}, {"a": entry(1), "b": entry(2)})
    report.write(path, {"cores": 4}, {"EscrowMQ": "1"}, {"b": entry(3)})
    found = report.write(path, {"cores": 4}, {"EscrowMQ": "1"}, {"c": entry(4)})
    assert found == json.loads(path.read_text())
    assert found["machine"] == {"cores": 4}
    assert {name: each.get("machine") for name, each in found["scenarios"].items()} == {
        "a": {"cores": 2},
        "b": None,
        "c": None,
    }
    found = report.write(path, {"cores": 2}, {"EscrowMQ": "1"}, {})
    assert {name: each.get("machine") for name, each in found["scenarios"].items()} == {
        "a": None,
        "b": {"cores": 4},
        "c": {"cores": 4},
    }


def test_steadiness_compares_the_last_tenth_with_the_first() -> None:
    series = [[float(i), 100.0 * i, 0.0, 0.0] for i in range(11)]
    assert steadiness(series) == 1.0
    series += [[11.0 + i, 1000.0 + 50.0 * (i + 1), 0.0, 0.0] for i in range(10)]
    assert steadiness(series) == 0.5


def test_every_scenario_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    missing = [name for name in SCENARIOS if f"`{name}`" not in page]
    assert not missing
