"""The figures of the pages are those of the last benchmark, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.neighbours import NEIGHBOURS
from bench.scenarios import SCENARIOS
from tests.unit.sources import ROOT
from tools import figures
from tools.figures import BEGIN, END, PAGES, Figures

README = PAGES[ROOT / "README.md"]

RESULTS: dict[str, Any] = {
    "machine": {
        "cpu": "some CPU",
        "cores": 2,
        "memory_mb": 8000,
        "kernel": "6.1",
        "filesystem": "ext4",
        "python": "3.11.7",
    },
    "versions": {"EscrowMQ": "EscrowMQ 0.1.0", "RabbitMQ": "RabbitMQ 3.10.8"},
    "scenarios": {
        "confirms": {
            "figures": {
                "confirms": {
                    "unit": "messages/s",
                    "brokers": {"EscrowMQ": {"median": 123456.7}, "RabbitMQ": {"median": 12345.6}},
                    "ratio": 10.00,
                }
            }
        },
        "varied-confirms": {
            "figures": {
                "varied-confirms": {
                    "unit": "messages/s",
                    "brokers": {"EscrowMQ": {"median": 23456.0}, "RabbitMQ": {"median": 24691.0}},
                    "ratio": 0.95,
                }
            }
        },
        "many": {"figures": {"many": {"unit": "messages/s", "brokers": {"EscrowMQ": {"median": 2345}}, "ratio": None}}},
        "history": {
            "figures": {"history.restart": {"unit": "s", "brokers": {"EscrowMQ": {"median": 0.4321}}, "ratio": None}}
        },
    },
}


def test_the_pages_are_fresh() -> None:
    assert figures.main(["--check"]) == 0


def test_no_rate_is_quoted_outside_of_the_marks() -> None:
    """Only figures that the benchmark wrote may be quoted; a rate in the prose would become outdated unnoticed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = text.partition(BEGIN)[0] + text.partition(END)[2]
    assert not re.search(r"\d(?: ?messages/s|[\d.,]*×)", prose)


def test_medians_and_their_ratio_become_rows() -> None:
    text = figures.figures(RESULTS, README)
    assert "| persistent, confirms, 10 producers, 10 consumers, 10 queues | 2,345 messages/s | – | – |" in text
    assert "| restart with 1,000 messages, after 10,000,000 others | 0.432 s | – | – |" in text
    assert "transactions of 1," not in text
    assert "EscrowMQ 0.1.0, RabbitMQ 3.10.8" in text


def test_uniform_and_varied_traffic_stand_side_by_side() -> None:
    text = figures.figures(RESULTS, README)
    own = "| 123,457 messages/s | 12,346 messages/s | 10.0× |"
    assert f"| persistent, confirms, acknowledged {own} 23,456 messages/s | 24,691 messages/s | 0.95× |" in text
    assert "| transient, acknowledged | – | – | – | – | – | – |" in text
    assert "Each varied message has its own size" in text


def test_a_page_without_pairs_has_one_table() -> None:
    assert figures.figures(RESULTS, Figures(README.rows)).count("|---|") == 1


def test_latencies_beside_other_clients_are_a_table_as_soon_as_one_was_measured() -> None:
    assert "Latency of" not in figures.figures(RESULTS, README)
    measured = {
        f"neighbours-commit{end}": {"unit": "ms", "brokers": {"EscrowMQ": {"median": median}}, "ratio": None}
        for end, median in (("", 7.123), (".worst", 61.0))
    }
    scenarios = {**RESULTS["scenarios"], "neighbours-commit": {"figures": measured}}
    text = figures.figures({**RESULTS, "scenarios": scenarios}, README)
    assert "| | p99 | longest |\n|---|---:|---:|\n| commits 300,000 messages | 7.12 ms | 61 ms |" in text
    assert text.index("| commits 300,000") < text.index("Medians, on")


def test_variants_of_one_scenario_are_the_columns_of_a_table() -> None:
    wanted = figures.Figures({}, grid=figures.Grid("models", {"tx": "`tx`", "xa": "XA"}, {"rate": "one user"}))
    assert figures.figures(RESULTS, wanted) == figures.NO_RESULTS
    measured = {
        f"models.{name}.rate": {"unit": "messages/s", "brokers": {"EscrowMQ": {"median": median}}, "ratio": None}
        for name, median in (("tx", 400.0), ("xa", 99.0))
    }
    text = figures.figures({**RESULTS, "scenarios": {"models": {"figures": measured}}}, wanted)
    assert text.startswith(
        "| | `tx` | XA |\n|---|---:|---:|\n| one user | 400 messages/s | 99 messages/s |\n\nMedians, on"
    )


def test_every_figure_of_the_models_is_shown() -> None:
    grid = PAGES[ROOT / "docs" / "guides" / "choosing-a-transaction.md"].grid
    assert grid is not None
    shown = {f"models.{column}.{row}" for column in grid.columns for row in grid.rows}
    assert shown == {figure.name for figure in SCENARIOS["models"].figures}


def test_every_scenario_of_neighbours_has_a_row() -> None:
    assert set(README.neighbours) == {scenario.name for scenario in NEIGHBOURS}


def test_rows_of_several_machines_say_which() -> None:
    results = json.loads(json.dumps(RESULTS))
    results["scenarios"]["history"]["machine"] = {**RESULTS["machine"], "cpu": "another CPU"}
    text = figures.figures(results, README)
    where = "2 cores shared by broker and load tool, 8,000 MB, ext4, Python 3.11.7"
    assert "| restart with 1,000 messages, after 10,000,000 others \\* |" in text
    assert f"Medians, on some CPU, {where}. Rows with \\* were measured on another CPU, {where}. Versions: " in text
    assert text.count("\\*") == 2


@pytest.mark.parametrize(("ratio", "text"), [(None, "–"), (10.04, "10.0×"), (0.777, "0.78×"), (0.0221, "0.022×")])
def test_a_ratio_below_one_keeps_its_digits(ratio: float | None, text: str) -> None:
    assert figures.times(ratio) == text


def test_without_results_it_says_so() -> None:
    assert "No results" in figures.figures(None, README)


def test_write_then_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme, results = tmp_path / "README.md", tmp_path / "latest.json"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    results.write_text(json.dumps(RESULTS), encoding="utf-8")
    assert figures.main(["--check"], {readme: README}, results) == 1
    assert "make docs" in capsys.readouterr().err
    assert figures.main([], {readme: README}, results) == 0
    assert figures.main(["--check"], {readme: README}, results) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize(("text", "missing"), [("nothing", BEGIN), (f"{BEGIN}\n", END)])
def test_marks_are_needed(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match=re.escape(missing)):
        figures.render(text, None, README)


def test_each_comparison_with_other_brokers_is_a_table_of_its_own() -> None:
    assert "Kafka" not in figures.figures(RESULTS, README)
    measured = {
        "spark-kafka.read-varied-all": {
            "unit": "messages/s",
            "brokers": {"EscrowMQ": {"median": 2000.0}, "Kafka": {"median": 1000.0}},
            "ratio": 2.0,
        }
    }
    text = figures.figures({**RESULTS, "scenarios": {"spark-kafka": {"figures": measured}}}, README)
    head = "| | EscrowMQ | Kafka | ratio |\n|---|---:|---:|---:|\n"
    assert head + "| read, varied, all columns | 2,000 messages/s | 1,000 messages/s | 2.0× |" in text
    assert "Kafka synced" not in text
