"""A real Prometheus scrapes a real broker: the alert rules hold, and every expression of the dashboards has a value."""

from __future__ import annotations

import json
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
from tests.unit.admin.http.test_metrics import ALERTS, DASHBOARD, OF_RABBITMQS_OVERVIEW, expressions

PROGRAMS = Path(sys.prefix, "prometheus")
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
        return [float(row["value"][1]) for row in found["data"]["result"]]

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
    assert prometheus.values(compared), "nothing is compared"


@pytest.mark.parametrize("metric", OF_RABBITMQS_OVERVIEW)
def test_a_metric_joins_the_identity_as_rabbitmqs_dashboards_do(prometheus: Prometheus, metric: str) -> None:
    """Their expressions multiply each metric by the identity, to choose a cluster and a name space."""
    series = f"rate({metric}[1m])" if metric.endswith("_total") else metric
    identity = 'rabbitmq_identity_info{rabbitmq_cluster=~"escrowmq@.*", rabbitmq_endpoint=~"[^:]*", namespace=""}'
    join = "on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node)"
    assert prometheus.values(f"sum({series} * {join} {identity}) by(rabbitmq_node)")
