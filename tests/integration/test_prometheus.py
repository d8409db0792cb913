"""A real Prometheus scrapes a real broker: the alert rules hold, and every expression of the dashboards has a value."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from escrowmq import client
from tests.broker import wait_until
from tests.integration.test_server_http import HttpBroker, started
from tests.ports import reserve_port
from tests.unit.admin.http.test_metrics import ALERTS, DASHBOARD, OF_OLDER_OVERVIEWS, expressions
from tests.unit.sources import ROOT

PROGRAMS = Path(sys.prefix, "prometheus")
OVERVIEW = Path(__file__).with_name("rabbitmq_overview.txt")
_CHOSEN = 'rabbitmq_cluster="$rabbitmq_cluster", namespace="$namespace", rabbitmq_endpoint="$endpoint"'
IDENTITY = f"rabbitmq_identity_info{{{_CHOSEN}}}"
NOT_COUNTED = {
    "rabbitmq_message_size_bytes": "the sizes of messages (RabbitMQ 4.1): counting would cost each publish something"
}
"""Metrics of RabbitMQ's dashboard that do not exist here, with the reason. The guide names them."""
NEEDS_TRAFFIC = 3
"""Scrapes from which a rate can be computed."""

pytestmark = pytest.mark.skipif(
    not (PROGRAMS / "prometheus").exists(), reason="needs the Prometheus that .ci/run installs"
)


class Prometheus:
    """A Prometheus that scrapes a broker every second."""

    def __init__(self, folder: Path, site: HttpBroker) -> None:
        config = folder / "prometheus.yml"
        target = {"job_name": "escrowmq", "static_configs": [{"targets": [f"127.0.0.1:{site.port}"]}]}
        config.write_text(
            json.dumps({"global": {"scrape_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": [target]})
        )
        self._port = reserve_port(self)
        options = (
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        )
        self._process = subprocess.Popen([PROGRAMS / "prometheus", *options], stderr=subprocess.DEVNULL)
        wait_until(lambda: self.values("count_over_time(up[1m])") >= [NEEDS_TRAFFIC], 60)

    def values(self, expression: str) -> list[float]:
        """Return the values of an expression now; none while Prometheus is not ready."""
        return [float(row["value"][1]) for row in self._result(expression)]

    def _result(self, expression: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self._port}/api/v1/query?query={quote(expression)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        except urllib.error.URLError:
            return []
        rows: list[dict[str, Any]] = found["data"]["result"]
        return rows

    def labels(self, expression: str) -> list[dict[str, str]]:
        """Return the labels of the series that an expression selects now."""
        return [row["metric"] for row in self._result(expression)]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    config = folder / "broker.toml"
    config.write_text("[http]\nopen_metrics = true\n")
    with started(folder, "--config", str(config)) as site, client.connect(site.broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"body", client.Properties(delivery_mode=2))
        wait_until(lambda: channel.message_count("q") == 1)
        found = Prometheus(folder, site)
        yield found
        found.stop()


def promtool(*arguments: str) -> None:
    done = subprocess.run([PROGRAMS / "promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alert_rules_are_valid_and_pass_their_tests() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(ALERTS.with_name("alerts_test.yml")))


def test_every_alert_has_a_test_in_which_it_is_raised() -> None:
    names = {line.split()[-1] for line in ALERTS.read_text().splitlines() if "- alert: " in line}
    tests = ALERTS.with_name("alerts_test.yml").read_text()
    assert {name for name in names if f"alertname: {name}\n        exp_alerts:\n          - " in tests} == names


@pytest.mark.parametrize("expression", list(expressions(DASHBOARD)))
def test_every_expression_of_our_dashboard_has_a_value(prometheus: Prometheus, expression: str) -> None:
    assert prometheus.values(expression.replace("$__rate_interval", "1m"))


@pytest.mark.parametrize("expression", list(expressions(ALERTS)))
def test_every_expression_of_an_alert_is_understood_and_false_for_a_broker_in_order(
    prometheus: Prometheus, expression: str
) -> None:
    assert prometheus.values(expression) == []
    compared = expression.rpartition(" > ")[0] or expression.rpartition(" == ")[0]
    if "escrowmq_replica_" not in expression:  # this broker has its journal alone
        assert prometheus.values(compared), "nothing is compared"


def of_rabbitmq() -> list[str]:
    """Return the expressions of RabbitMQ's overview dashboard."""
    lines = [line for line in OVERVIEW.read_text().splitlines() if not line.startswith("#")]
    join = f" * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) {IDENTITY}"
    return [re.sub("<([^>]*)>", lambda found: found[1] + join if found[1] else IDENTITY, line) for line in lines]


def variables(prometheus: Prometheus) -> dict[str, str]:
    """Return the variables of the dashboard, as Grafana chooses them: by the labels of the identity."""
    (labels,) = prometheus.labels("rabbitmq_identity_info")
    return {
        "$__rate_interval": "1m",
        "$__range": "5m",
        "$rabbitmq_cluster": labels["rabbitmq_cluster"],
        "$namespace": labels.get("namespace", ""),
        "$endpoint": labels["rabbitmq_endpoint"],
    }


@pytest.mark.parametrize("expression", of_rabbitmq())
def test_every_expression_of_rabbitmqs_dashboard_has_a_value_or_a_reason(
    prometheus: Prometheus, expression: str
) -> None:
    for name, chosen in variables(prometheus).items():
        expression = expression.replace(name, chosen)
    reasons = [reason for metric, reason in NOT_COUNTED.items() if metric in expression]
    assert bool(prometheus.values(expression)) is not bool(reasons), expression


def test_the_dashboard_is_whole_and_each_reason_is_needed() -> None:
    found = of_rabbitmq()
    assert len(found) == 49
    assert all(any(metric in expression for expression in found) for metric in NOT_COUNTED)
    guide = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    assert all(metric in guide for metric in NOT_COUNTED)


@pytest.mark.parametrize("metric", OF_OLDER_OVERVIEWS)
def test_a_metric_joins_the_identity_as_older_dashboards_do(prometheus: Prometheus, metric: str) -> None:
    """Those of RabbitMQ 3.8 and 3.9 have other metrics, and do not choose by endpoint."""
    series = f"rate({metric}[60s])" if metric.endswith("_total") else metric
    identity = 'rabbitmq_identity_info{rabbitmq_cluster=~"escrowmq@.*", namespace=""}'
    for join in (
        "on(instance) group_left(rabbitmq_cluster)",
        "on(instance) group_left(rabbitmq_cluster, rabbitmq_node)",
    ):
        assert prometheus.values(f"sum({series} * {join} {identity})")
